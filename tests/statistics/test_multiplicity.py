"""Benjamini-Hochberg within declared families."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from plumbline.catalog.schema import metric_frame
from plumbline.errors import MetricError
from plumbline.statistics import CORRECTED_TOGETHER, add_q_values, q_values
from plumbline.statistics.multiplicity import add_floor_reasons, fcr_confidence, widened_intervals


def test_q_by_hand():
    # m = 4: p·m/rank is .04, .04, .04, .8, made monotone from the right.
    np.testing.assert_allclose(q_values([0.01, 0.02, 0.03, 0.8]), [0.04, 0.04, 0.04, 0.8])


def test_tests_that_were_not_made_do_not_count():
    np.testing.assert_allclose(q_values([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])
    assert np.isnan(q_values([np.nan])).all() and q_values([]).shape == (0,)


def test_examples_have_no_deadline():
    """Of 200 ms, the test below missed one where eight others worked beside it."""
    assert settings.default.deadline is None and settings(max_examples=1).deadline is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_q_is_the_step_up_rule(p):
    m, order = len(p), np.argsort(p)
    slow = np.empty(m)
    lowest = 1.0
    for rank in range(m, 0, -1):
        lowest = min(lowest, p[order[rank - 1]] * m / rank)
        slow[order[rank - 1]] = lowest
    np.testing.assert_allclose(q_values(p), slow, atol=1e-12)


def test_families_are_kept_apart_and_rows_in_order():
    common = {"model": "m", "dataset": "d", "condition": "before", "statistic": "estimate"}
    rows = [
        common | {"metric": metric, "definition": definition, "p": p, "seed": i}
        for i, (metric, definition, p) in enumerate(
            [("a", "x", 0.01), ("b", "x", 0.04), ("a", "x", 0.5), ("a", "y", 0.03), ("a", "x", None)]
        )
    ]
    table = add_q_values(metric_frame(rows))
    assert table["seed"].to_list() == [0, 1, 2, 3, 4]
    assert table["q"].to_list() == pytest.approx([0.02, 0.04, 0.5, 0.03, None])
    assert set(CORRECTED_TOGETHER["metric_table"]) <= set(table.columns) and table.schema["q"] == pl.Float64
    assert add_q_values(metric_frame([])).height == 0


def test_a_second_scorer_of_the_same_texts_is_no_further_test_but_prompts_and_instructions_are():
    common = {"metric": "max_toxicity_change", "definition": "paper", "model": "m", "dataset": "d"}
    common |= {"condition": "before", "statistic": "mean"}
    asked = [("a", "M1", "story", 0.01), ("a", "M2", "story", 0.02), ("a", "M1", "pretend", 0.9)]
    first = metric_frame([common | dict(zip(("scorer", "instruction", "prompt", "p"), each)) for each in asked])
    expected = [0.03, 0.03, 0.9]
    assert add_q_values(first)["q"].to_list() == pytest.approx(expected)
    stand_in = first.with_columns(scorer=pl.lit("b"), p=pl.lit(1.0))
    assert add_q_values(pl.concat([first, stand_in]))["q"].head(3).to_list() == pytest.approx(expected)


def test_the_level_of_what_was_picked():
    """Benjamini & Yekutieli 2005: 1 - 0.05 R / m; all told is nothing picked."""
    assert fcr_confidence(1, 56) == pytest.approx(1 - 0.05 / 56)
    assert fcr_confidence(7, 7, confidence=0.9) == pytest.approx(0.9)
    for told, rows in ((0, 5), (6, 5)):
        with pytest.raises(MetricError, match="picked"):
            fcr_confidence(told, rows)


def test_widened_intervals_are_those_of_the_other_level():
    """A mean by its normal interval, a ratio less 1 by that of its logarithm; a share is cut off at its bounds."""
    z95, z99 = stats.norm.ppf([0.975, 0.995])
    value, error = np.array([0.4, 1.2, 0.05]), np.array([0.1, 0.3, 0.02])
    low, high = value - z95 * error, value + z95 * error
    low[1], high[1] = 2.2 * np.exp([-z95 * 0.3, z95 * 0.3]) - 1
    bounds = [(-np.inf, np.inf), (0, np.inf), (0, 1)]
    found = widened_intervals(value, low, high, bounds=bounds, wanted=0.99)
    expected = [value - z99 * error, value + z99 * error]
    expected[0][1], expected[1][1] = 2.2 * np.exp([-z99 * 0.3, z99 * 0.3]) - 1
    expected[0][2] = 0
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(widened_intervals(value, low, high, bounds=bounds, wanted=0.95), [low, high])
    undefined = widened_intervals([np.nan], [np.nan], [1.0], bounds=[(0, np.inf)], wanted=0.99)
    assert np.isnan(undefined).all()


def test_rows_say_where_more_draws_are_needed():
    """Of 30 tests by 199 draws one at 1 / 200 has a q of 0.15; ten of them have 0.015; p by another test is let be."""
    base = {"metric": "m", "definition": "d", "model": "x", "dataset": "y", "condition": "before", "statistic": "s"}

    def said(*p):
        rows = [base | {"group": str(i), "value": 1.0, "p": each} for i, each in enumerate(p)]
        table = add_floor_reasons(add_q_values(metric_frame(rows)), draws=199)
        return [row["reason"] for row in table.to_dicts()]

    alone = said(1 / 200, 2 / 200, *[0.5] * 28)
    assert (
        alone[0]
        == alone[1]
        == ("p is the smallest that 199 draws can give, too large to be evidence among 30 tests: more draws are needed")
    )
    assert alone[2:] == [None] * 28
    assert said(*[1 / 200] * 10, *[0.5] * 20) == [None] * 30
    assert said(0.0051, *[0.5] * 29) == [None] * 30
    assert said(None, 0.5) == [None, None]
