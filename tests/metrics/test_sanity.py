"""Zero-shot accuracy against chance, and the agreement of wordings."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.schema import polars_schema
from plumbline.catalog.suites import load_suite
from plumbline.metrics.cell import SuiteLogits
from plumbline.metrics.zero_shot import chance_accuracy, sanity_rows, wording_agreement, zero_shot_accuracy
from plumbline.reasons import find
from plumbline.report.findings import findings


def test_accuracy_chance_and_agreement_by_hand():
    guessed, labelled = np.array(["a", "a", "b", "a", "b"]), np.array(["a", "b", "b", "a", ""])
    accuracy = zero_shot_accuracy(guessed, labelled)
    assert (accuracy.value, accuracy.n) == (3 / 4, 4)
    assert (accuracy.ci_low, accuracy.ci_high) == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert chance_accuracy(guessed, labelled) == 3 / 4 * 1 / 2 + 1 / 4 * 1 / 2
    agreement = wording_agreement(np.array([["a", "b", "c"], ["a", "b", "d"], ["a", "d", "d"]]))
    assert (agreement.value, agreement.n) == (pytest.approx((2 + 1 + 2) / 9), 3)
    # The first two images were asked about in two wordings, the third in one, the last in none.
    apart = wording_agreement(np.array([["a", "b", "", ""], ["a", "d", "c", ""], ["", "b", "", ""]]))
    assert (apart.value, apart.n) == (pytest.approx((1 + 1 / 3) / 2), 2)
    none = wording_agreement(np.array([["a", ""], ["", "b"]]))
    assert np.isnan(none.value) and [each.code for each in none.reason] == ["no_image_in_two_wordings"]
    assert np.isnan(zero_shot_accuracy(guessed, np.full(5, "")).value) and np.isnan(
        chance_accuracy(guessed, np.full(5, ""))
    )


def seeing(cell, share, seed=0):
    """Return a cell whose model recognises this share of the images by every suite that names what they show."""
    rng = np.random.default_rng(seed)
    crime = load_suite("crime")
    n = cell.records.height
    logits = {name: rng.normal(size=(n, len(each.suite.candidates))) for name, each in cell.logits.items()}
    logits["crime"] = rng.normal(size=(n, len(crime.candidates)))
    suites = {**{name: each.suite for name, each in cell.logits.items()}, "crime": crime}
    seen = rng.random(n) < share
    for name, suite in suites.items():
        for column, candidate in enumerate(suite.candidates):
            people = cell.records["race"] if name == "trident" else cell.records["race"] + " " + cell.records["gender"]
            people = people.str.to_lowercase().str.replace("_hispanic", "")
            shows = (people == candidate.id.lower().split("_")[0]).fill_null(value=False)
            logits[name][seen & shows.to_numpy(), column] += 20
    made = {name: SuiteLogits(suite, logits[name].astype(np.float32)) for name, suite in suites.items()}
    return replace(cell, logits=made)


@pytest.fixture
def cell(make_cell):
    return make_cell(n=400, seed=0, suites=("trident",))


def test_rows_of_a_model_that_sees_and_of_one_that_does_not(cell, quick):
    rows = sanity_rows(seeing(cell, 0.9), settings=quick)
    accuracy = rows.filter(metric="zero_shot_accuracy", statistic="estimate")
    assert set(accuracy.select("suite", "attribute").iter_rows()) == {
        ("trident", "race"), ("crime", "race"), ("crime", "gender"),
    }  # fmt: skip
    assert (accuracy["value"] > 0.85).all()
    assert not any(find(codes, "at_chance") for codes in accuracy["reason_codes"])
    chance = rows.filter(metric="zero_shot_accuracy", statistic="chance", attribute="gender")["value"].item()
    assert chance == pytest.approx(0.5, abs=0.05)
    agreement = rows.filter(metric="wording_agreement")
    assert agreement["attribute"].to_list() == ["race"] and agreement["value"].item() > 0.8
    assert agreement["probe"].item() == "crime, trident"
    blind = sanity_rows(seeing(cell, 0.0, seed=1), settings=quick).filter(
        metric="zero_shot_accuracy", statistic="estimate"
    )
    assert all(find(codes, "at_chance") for codes in blind["reason_codes"])


def test_an_image_that_several_classes_match_equally_well_is_not_guessed(cell, quick):
    of = seeing(cell, 0.9)
    crime = of.logits["crime"]
    scores = np.array(crime.scores[:])
    scores[:50] = 1.0
    tied = replace(of, logits=of.logits | {"crime": SuiteLogits(crime.suite, scores)})

    def guessed(of):
        return (
            sanity_rows(of, settings=quick)
            .filter(metric="zero_shot_accuracy", statistic="estimate", suite="crime", attribute="gender")["n"]
            .item()
        )

    labelled = cell.records["gender"][:50].is_not_null().sum()
    assert labelled > 0 and guessed(of) - guessed(tied) == labelled


def test_nothing_is_found_of_a_model_at_chance_but_that(cell, quick):
    def table(model, share):
        of = replace(seeing(cell, share, seed=1), model=model)
        skew = {
            "model": model, "dataset": of.dataset, "condition": "before", "suite": "crime", "metric": "harm_rate",
            "definition": "mean", "statistic": "estimate", "event": "non_human", "value": 0.2, "ci_low": 0.1,
            "ci_high": 0.3, "n": 400,
        }  # fmt: skip
        harm = pl.DataFrame([skew], schema={name: kind for name, kind in polars_schema().items() if name in skew})
        return pl.concat([sanity_rows(of, settings=quick), harm], how="diagonal_relaxed")

    both = pl.concat([table("sees", 0.9), table("blind", 0.0)]).select(list(polars_schema()))
    told = {(finding.model, finding.topic[0]): finding for finding in findings(both)}
    assert set(told) == {("sees", "harm"), ("blind", "weak")}
    assert "too weak to interpret" in told["blind", "weak"].sentence
