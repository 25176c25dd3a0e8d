"""Refusals, lengths and empty answers against counts by hand."""

import numpy as np
import polars as pl
import pytest
from planted_texts import GROUPS, answers, cell_of, fillers

from plumbline.language.cell import LanguageSettings
from plumbline.language.refusals import refusals_and_lengths_result

SETTINGS = LanguageSettings(resamples=1000, permutations=500)
REFUSAL = "I'm sorry, I can't help with that."


def planted(group, s, prompt, rng):
    """Refuse every fourth scene of `Black_man` (7 words), leave every tenth empty; give `Asian_woman` twice 6 words."""
    if s % 10 == 9:
        return " " if s % 20 == 9 else None
    if group == "Black_man" and s % 4 == 0:
        return REFUSAL
    return fillers(rng, 12 if group == "Asian_woman" else 6)


@pytest.fixture(scope="module")
def rows():
    frame = answers(planted, prompts=("backstory", "describe"), instructions=("none", "M1"), sets=40)
    return refusals_and_lengths_result(cell_of(frame), settings=SETTINGS).rows


def chosen(rows, **columns):
    return rows.filter(*(pl.col(k).is_null() if v is None else pl.col(k) == v for k, v in columns.items()))


def test_every_prompt_and_instruction_has_its_rows(rows):
    questions = rows.select("prompt", "instruction").unique().sort("prompt", "instruction", nulls_last=True)
    assert questions.rows() == [
        ("backstory", "M1"), ("backstory", None), ("describe", "M1"), ("describe", None),
    ]  # fmt: skip
    assert rows.height == 4 * (5 + 1 + 4 + 1 + 5)


def test_refusals_are_counted(rows):
    rates = chosen(rows, metric="refusal_rate", prompt="backstory", instruction=None)
    assert dict(zip(rates["group"], rates["value"])) == {
        "Asian_man": 0, "Asian_woman": 0, "Black_man": 0.25, "Black_woman": 0, None: 0.0625,
    }  # fmt: skip
    assert rates["n"].to_list() == [40] * 5 and (rates["statistic"] == "estimate").all()
    assert (rates["ci_low"] <= rates["value"]).all() and (rates["value"] < rates["ci_high"]).all()
    # 40 sets without a refusal exclude a tenth at 95%, by Wilson.
    assert rates["ci_high"][0] == pytest.approx(1.96**2 / (40 + 1.96**2), abs=1e-3)
    gaps = chosen(rows, metric="refusal_rate_gap")
    assert (gaps["value"] == 0.25).all() and (gaps["p"] < 0.01).all()


def test_what_the_endpoint_withholds_is_a_refusal():
    for finish in ("refusal", "content_filter", "stop", None):
        frame = answers(
            lambda *_: "kind", finish=lambda group, f=finish: f if group == "Asian_man" else "length", sets=25
        )
        rates = chosen(refusals_and_lengths_result(cell_of(frame), settings=SETTINGS).rows, metric="refusal_rate")
        assert rates["value"].to_list()[:4] == [float(finish in ("refusal", "content_filter")), 0, 0, 0]


def test_lengths_are_in_words(rows):
    lengths = chosen(rows, metric="response_length", prompt="describe", instruction="M1")
    expected = {"Asian_man": 0.9 * 6, "Asian_woman": 0.9 * 12, "Black_man": 0.65 * 6 + 0.25 * 7, "Black_woman": 0.9 * 6}
    assert dict(zip(lengths["group"], lengths["value"])) == {
        group: pytest.approx(expected[group], abs=1e-12) for group in GROUPS
    }
    ratios = chosen(rows, metric="response_length_ratio")
    np.testing.assert_allclose(ratios["value"], 2, atol=1e-12)
    assert (ratios["p"] < 0.01).all() and (ratios["ci_low"] > 1.5).all()


def test_empty_answers_are_counted(rows):
    rates = chosen(rows, metric="empty_rate", prompt="backstory", instruction="M1")
    np.testing.assert_allclose(rates["value"], 0.1, atol=1e-12)


def test_a_model_that_is_the_same_to_all_has_no_gap():
    frame = answers(lambda group, s, *_: REFUSAL if s % 2 else "kind person", sets=30)
    rows = refusals_and_lengths_result(cell_of(frame), settings=SETTINGS).rows
    for metric, parity in (("refusal_rate_gap", 0), ("response_length_ratio", 1)):
        gap = chosen(rows, metric=metric)
        assert gap["value"].item() == pytest.approx(parity, abs=1e-12) and gap["p"].item() == 1


def test_files_in_any_order_give_what_frames_give(rows, tmp_path):
    frame = answers(planted, prompts=("backstory", "describe"), instructions=("none", "M1"), sets=40)
    for i, part in enumerate(frame.sample(fraction=1, shuffle=True, seed=4).iter_slices(97)):
        part.write_parquet(tmp_path / f"{i}.parquet")
    cell = cell_of(frame)
    object.__setattr__(cell, "generations", pl.scan_parquet(tmp_path / "*.parquet"))
    assert refusals_and_lengths_result(cell, settings=SETTINGS).rows.equals(rows)


def test_answers_without_a_group_are_not_counted():
    frame = answers(planted).with_columns(group=pl.lit(None, pl.String))
    assert refusals_and_lengths_result(cell_of(frame), settings=SETTINGS).rows.is_empty()
