"""Gaps in true-positive rates: by hand, by the loop, and shuffled within classes."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from only_row import one
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from plumbline.errors import MetricError
from plumbline.metrics import MetricSettings, equal_opportunity_gap
from plumbline.metrics.equal_opportunity import equal_opportunity_rows, max_gap, mean_gap
from plumbline.reasons import in_words


def test_by_hand():
    # Rates 3/4 and 1/2; 1/5 and 1; a class of one group: gaps 1/4 and 4/5, mean 21/40.
    found = equal_opportunity_gap([[3, 2], [1, 3], [2, 0]], [[4, 4], [5, 3], [2, 0]])
    np.testing.assert_allclose(found.per_class, [1 / 4, 4 / 5, np.nan], atol=1e-12)
    assert found.value == pytest.approx(21 / 40, abs=1e-12) and found.maximum == pytest.approx(4 / 5)
    assert found.n == 16 and in_words(found.reason) == "1 of 3 classes seen in fewer than two groups, left out"
    np.testing.assert_allclose(found.rate, [[3 / 4, 1 / 2], [1 / 5, 1], [1, np.nan]])


def test_where_nothing_can_be_compared():
    found = equal_opportunity_gap([[3, 0]], [[4, 0]])
    assert np.isnan([found.value, found.maximum]).all() and found.n == 0 and "1 of 1" in in_words(found.reason)


def test_many_tables_at_once():
    rng = np.random.default_rng(0)
    totals = rng.integers(0, 6, (200, 4, 3))
    right = rng.binomial(totals, 0.6)
    for i in range(200):
        found = equal_opportunity_gap(right[i], totals[i])
        assert mean_gap(right, totals)[i] == pytest.approx(found.value, nan_ok=True)
        assert max_gap(right, totals)[i] == pytest.approx(found.maximum, nan_ok=True)


@pytest.mark.parametrize(
    ("right", "totals"),
    [([[1, 2]], [[1, 2], [3, 4]]), ([[1]], [[1]]), ([[2, 1]], [[1, 1]]), ([[-1, 1]], [[1, 1]]), ([1, 1], [1, 1])],
)
def test_counts_that_do_not_fit_are_refused(right, totals):
    with pytest.raises(MetricError):
        equal_opportunity_gap(right, totals)


def test_rows_are_those_of_the_loop(cell, quick):
    rows = equal_opportunity_rows(cell, settings=quick)
    logits = cell.logits["trident"]
    labels = list(logits.suite.class_labels)
    top = logits.logits[:, : len(labels)].argmax(axis=1)
    known = [(r, g, labels[t] == r) for r, g, t in zip(cell.records["race"], cell.records["gender"], top) if r and g]
    assert set(rows["attribute"]) == {"gender"} and rows["probe"].null_count() == rows.height
    gaps = {}
    for label in labels:
        rates = []
        for gender in ("man", "woman"):
            own = [hit for r, g, hit in known if (r, g) == (label, gender)]
            row = one(rows, metric="true_positive_rate", event=label, group=gender)
            rates.append(row["value"])
            assert row["n"] == len(own) and row["value"] == pytest.approx(np.mean(own))
            ends = proportion_confint(sum(own), len(own), method="wilson")
            assert (row["ci_low"], row["ci_high"]) == pytest.approx(ends)
        gaps[label] = abs(rates[0] - rates[1])
        row = one(rows, metric="equal_opportunity_gap", definition="by_class", event=label)
        assert row["value"] == pytest.approx(gaps[label]) and 0 < row["p"] <= 1
        assert row["n"] == sum(r == label for r, *_ in known)
    mean = one(rows, metric="equal_opportunity_gap", definition="mean_over_classes")
    assert mean["value"] == pytest.approx(np.mean(list(gaps.values()))) and mean["n"] == len(known)
    assert mean["ci_low"] <= mean["value"] <= mean["ci_high"] and 0 < mean["p"] <= 1
    largest = one(rows, metric="equal_opportunity_gap", definition="max_over_classes")
    assert largest["value"] == pytest.approx(max(gaps.values()))


def test_filters_small_cells_and_lacking_labels(cell, quick):
    kept = replace(cell, keep={"trident": np.arange(cell.records.height) % 2 == 0})
    half = equal_opportunity_rows(kept, settings=MetricSettings(resamples=100, permutations=100))
    mean = one(half, metric="equal_opportunity_gap", definition="mean_over_classes")
    assert mean["n"] < 210 and "of 14 cells with fewer than 30 images" in mean["reason"]
    for changed in (
        replace(cell, logits={}),
        replace(cell, records=cell.records.drop("race")),
        replace(cell, records=cell.records.drop("gender")),
        replace(cell, records=cell.records.with_columns(gender=pl.lit("man"))),
        replace(cell, records=cell.records.with_columns(race=pl.lit("Martian"))),
    ):
        assert equal_opportunity_rows(changed, settings=quick).height == 0


def test_a_class_of_one_gender_is_left_out_and_said(cell, quick):
    man = pl.when(pl.col("race") == "Black").then(pl.lit("man")).otherwise("gender")
    rows = equal_opportunity_rows(replace(cell, records=cell.records.with_columns(gender=man)), settings=quick)
    black = one(rows, metric="equal_opportunity_gap", definition="by_class", event="Black")
    assert np.isnan(black["value"]) and "fewer than two groups" in black["reason"]
    mean = one(rows, metric="equal_opportunity_gap", definition="mean_over_classes")
    assert mean["value"] >= 0 and "1 of 7 classes" in mean["reason"]
    empty = one(rows, metric="true_positive_rate", event="Black", group="woman")
    assert np.isnan(empty["value"]) and empty["n"] == 0 and empty["reason"] == "empty group"


def planted(cell, rng, gap, in_sets):
    """Return the cell with classes recognised at rates of their own, and men more often by `gap`."""
    n = cell.records.height
    logits = cell.logits["trident"]
    labels = list(logits.suite.class_labels)
    # A class is recognised well or badly, and the classes hold men and women in unequal shares.
    race = rng.integers(0, 7, n)
    sets = np.arange(n) // 4
    race = race[sets * 4] if in_sets else race
    man = rng.random(n) < 0.2 + 0.1 * race
    luck = rng.random(n)[sets * 4] if in_sets else rng.random(n)
    known = np.where(rng.random(n) < 0.7, luck, rng.random(n)) < 0.3 + 0.08 * race + gap * man - gap / 2
    scores = np.zeros_like(logits.logits)
    scores[np.arange(n), np.where(known, race, (race + 1) % 7)] = 1
    records = pl.DataFrame(
        {
            "image_id": cell.records["image_id"],
            "race": [labels[r] for r in race],
            "gender": np.where(man, "man", "woman"),
        }
    )
    records = records.with_columns(set_id=pl.Series(sets)) if in_sets else records
    return replace(cell, records=records, logits={"trident": replace(logits, logits=scores)})


@pytest.mark.parametrize("worlds", [20, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("in_sets", [False, True], ids=["images", "sets"])
def test_equal_rates_are_rejected_at_the_level_and_a_planted_gap_is_found(cell, in_sets, worlds):
    settings = MetricSettings(resamples=100, permutations=199, min_group=1)
    rng, levels = np.random.default_rng(1), []
    for _ in range(worlds):
        rows = equal_opportunity_rows(planted(cell, rng, 0.0, in_sets), settings=settings)
        levels.append(one(rows, metric="equal_opportunity_gap", definition="mean_over_classes")["p"])
    low, high = stats.binom.ppf([0.0005, 0.9995], worlds, 0.05)
    assert low <= sum(p <= 0.05 for p in levels) <= high
    rows = equal_opportunity_rows(planted(cell, rng, 0.4, in_sets), settings=settings)
    found = one(rows, metric="equal_opportunity_gap", definition="mean_over_classes")
    assert found["p"] == pytest.approx(1 / 200) and 0 < found["ci_low"] < 0.4 < found["ci_high"] + 0.1
