"""The adjustment of outcome suites: where a gap is planted, against fits by hand, and in datasets' own words."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.metrics import Cell, SuiteLogits
from plumbline.mitigations import fit_logit_adjustment
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import (
    NotAdjustable,
    adjusted_outcomes,
    demographic_labels,
    outcome_adjustment,
)
from plumbline.world import captions

CRIME = load_suite("crime")
RACES = load_suite("trident", classes="fairface").class_labels
WORDS = [c.id for c in CRIME.candidates]
SCALE = 50.0


def planted(n=2_100, seed=0, *, suite=CRIME):
    """Draw faces that a crime word wins too often, and most often where the race is Black or Middle Eastern.

    The own label stands out by 3 logits; the crime words are as near for everyone by chance, and nearer still
    for these two races.
    """
    rng = np.random.default_rng(seed)
    race, gender = np.arange(n) % 7, rng.integers(0, 2, n)
    records = pl.DataFrame({"race": [RACES[r] for r in race], "gender": [("man", "woman")[g] for g in gender]})
    logits = rng.normal(12, 0.7, (n, len(suite.candidates)))
    names = [c.id for c in suite.candidates]
    own = [names.index(label) for label in captions.demographic_labels(records)]
    logits[np.arange(n), own] += 3
    shift = np.where(np.isin(race, [RACES.index("Black"), RACES.index("Middle Eastern")]), 1.6, 0.4)
    logits[:, suite.columns("crime")] += shift[:, None] + rng.normal(0, 1.8, (n, 1))
    cosine = (logits / SCALE).astype(np.float32)
    answers = SuiteLogits(suite, rng.normal(size=cosine.shape).astype(np.float32), cosine, SCALE)
    return Cell(model="encoder", dataset="faces", records=records, logits={suite.id: answers}, keep={})


def crime_rates(tops, cell, rows):
    """Return the crime rate of every race among the given rows."""
    crime = np.isin(tops, CRIME.columns("crime"))
    race = cell.records["race"].to_numpy()
    return np.array([crime[rows & (race == name)].mean() for name in RACES])


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_the_gap_in_crime_rates_falls_where_one_is_planted(mode):
    cell = planted()
    rate = 0.01 if mode == "multiplicative" else 0.1
    settings = LogitAdjustmentSettings(mode=mode, learning_rate=rate, epochs=8)
    found = outcome_adjustment(cell, "crime", settings, seed=1)
    rows = np.ones(cell.records.height, dtype=bool)
    rows[found.train_rows[0]] = False
    logits = adjusted_outcomes(cell, "crime", found)
    before = crime_rates(cell.logits["crime"].cosine.argmax(axis=1), cell, rows)
    after = crime_rates(logits.argmax(axis=1), cell, rows)
    assert np.ptp(before) > 0.2 and np.ptp(after) < 0.6 * np.ptp(before)
    assert 0 < after.mean() < before.mean()
    assert set(demographic_labels(cell.records[found.train_rows[0]])) == set(WORDS[:14])
    own = np.array([WORDS.index(label) for label in captions.demographic_labels(cell.records)])
    right = [(z.argmax(axis=1) == own)[rows].mean() for z in (cell.logits["crime"].cosine, logits)]
    assert right[1] > right[0] + 0.05, "the images that crime words lose go to who is pictured"


def test_factors_are_those_of_the_scaled_cosines_with_the_labels_as_classes():
    cell = planted(300)
    keep = np.arange(300) % 4 != 1
    cell = replace(cell, keep={"crime": keep})
    settings = LogitAdjustmentSettings(per_class=5, epochs=12, trials=2)
    found = outcome_adjustment(cell, "crime", settings, seed=4)
    z = SCALE * cell.logits["crime"].cosine.astype(float)
    own = np.array([WORDS.index(label) for label in captions.demographic_labels(cell.records)])
    rows = np.flatnonzero(keep)
    expected = fit_logit_adjustment(z[rows], own[rows], n_classes=14, per_class=5, epochs=12, trials=2, seed=4)
    np.testing.assert_allclose(found.factors, expected.factors)
    np.testing.assert_array_equal(found.train_rows, rows[expected.train_rows])
    np.testing.assert_allclose(adjusted_outcomes(cell, "crime", found), z * found.factors[0])
    assert keep[found.train_rows].all() and found.train_rows.shape == (2, 70)


def test_the_order_of_the_candidates_changes_nothing():
    moved = replace(CRIME, candidates=(*CRIME.candidates[14:], *CRIME.candidates[:14]))
    cell, settings = planted(300), LogitAdjustmentSettings(per_class=5)
    answers = cell.logits["crime"]
    order = [*range(14, 21), *range(14)]
    turned = replace(cell, logits={"crime": SuiteLogits(moved, answers.logits, answers.cosine[:, order], SCALE)})
    one, other = (outcome_adjustment(each, "crime", settings, seed=2) for each in (cell, turned))
    logits = [adjusted_outcomes(c, "crime", fit) for c, fit in ((cell, one), (turned, other))]
    np.testing.assert_array_equal(logits[0][:, order], logits[1])
    np.testing.assert_array_equal(one.factors[:, order], other.factors)


def test_without_cosines_the_logits_are_adjusted():
    cell = planted(300)
    answers = cell.logits["crime"]
    cell = replace(cell, logits={"crime": SuiteLogits(CRIME, answers.logits)})
    found = outcome_adjustment(cell, "crime", LogitAdjustmentSettings(per_class=5), seed=2)
    np.testing.assert_allclose(adjusted_outcomes(cell, "crime", found), answers.logits.astype(float) * found.factors[0])


def test_words_are_those_of_the_planted_world():
    faces = pl.DataFrame({"race": np.repeat(RACES, 2).tolist(), "gender": ["man", "woman"] * 7})
    assert demographic_labels(faces).to_list() == captions.demographic_labels(faces).to_list()
    assert sorted(demographic_labels(faces)) == sorted(WORDS[:14])


def test_other_datasets_words_match_in_lower_case_or_are_left_out():
    records = pl.DataFrame(
        {
            "race": ["black", "hispanic", "eastasian", "caucasian", "Latino", "Asian", "Others", None, "White"],
            "gender": ["woman", "man", "man", "woman", "woman", "man", "man", "man", None],
        }
    )
    assert demographic_labels(records).to_list() == [
        "black woman", "latino man", "east asian man", "white woman", "latino woman", "asian man",
        "others man", None, None,
    ]  # fmt: skip
    cell = planted(300)
    words = cell.records.with_columns(
        pl.col("race").replace({"White": "Others", "Indian": None}),
        gender=pl.when(pl.col("race") == "Black").then(pl.lit("man")).otherwise("gender"),
    )
    cell = replace(cell, records=words)
    found = outcome_adjustment(cell, "crime", LogitAdjustmentSettings(per_class=5), seed=1)
    fitted = words[found.train_rows[0].tolist()]
    labels = set(demographic_labels(fitted))
    assert not {"white man", "white woman", "indian man", "indian woman", "black woman"} & labels
    assert len(labels) == 9 and fitted.height == 45
    assert not fitted["race"].is_in(["Others"]).any() and not fitted["race"].is_null().any()
    assert np.isfinite(adjusted_outcomes(cell, "crime", found)).all() and found.factors.shape == (3, 21)


@pytest.mark.parametrize("suite", ["communion", "agency", "crime_pooled"])
def test_suites_without_people_among_their_candidates_say_why_not(suite):
    cell = planted(60)
    suite = load_suite(suite)
    logits = np.zeros((60, len(suite.candidates)), np.float32)
    cell = replace(cell, logits={suite.id: SuiteLogits(suite, logits, logits, SCALE)})
    found = outcome_adjustment(cell, suite.id, LogitAdjustmentSettings(), seed=1)
    assert found == NotAdjustable(f"no candidate of the suite `{suite.id}` says who is pictured")


def test_cells_without_logits_or_labels_say_why_not():
    cell, settings = planted(60), LogitAdjustmentSettings()
    for each, why in (
        (replace(cell, logits={}), "no logits of the suite `crime`"),
        (replace(cell, records=cell.records.drop("race")), "no labels of race and gender"),
        (replace(cell, records=cell.records.with_columns(race=pl.lit(None))), "fewer than two images"),
        (replace(cell, keep={"crime": np.zeros(60, dtype=bool)}), "fewer than two images"),
    ):
        found = outcome_adjustment(each, "crime", settings, seed=1)
        assert isinstance(found, NotAdjustable) and why in found.reason
