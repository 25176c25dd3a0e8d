"""The printed counts of a real checkpoint: what the paper says follows from them, and what the paper lacks."""

import csv

import polars as pl
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.config.file import read_audit
from plumbline.datasets.ingestion import ingest
from plumbline.encoders.stored_predictions import PredictionTable
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.outcomes import OUTCOMES
from plumbline.metrics.zero_shot import sanity_rows
from resources.checkout import PROJECT

AUDIT = read_audit(PROJECT / "studies" / "data-matters-most-counts.yaml")
FOLDER = PROJECT / "studies" / "counts" / "openclip-l14-laion400m"


def counts(name):
    with (FOLDER / f"fairface_crime_by_{name}.csv").open() as file:
        return [
            {key: int(value) if value.isdigit() else value for key, value in row.items()}
            for row in csv.DictReader(file)
        ]


def rows(dataset):
    entry, encoder = AUDIT.datasets[dataset], AUDIT.encoders["openclip-l14-400m"]
    records = ingest(entry.open_reader(), PROJECT / entry.root, dataset=dataset).records
    suite = load_suite("crime")
    table = PredictionTable(
        PROJECT / entry.root / entry.map.index, dataset, encoder.predictions.names, "path", counts=entry.map
    )
    chosen, _ = table.chosen([suite], records)
    cell = Cell("openclip", dataset, records, {"crime": SuiteLogits(suite, chosen["crime"])}, {})
    settings = MetricSettings(resamples=200, permutations=200)
    return pl.concat([OUTCOMES.compute(cell, settings=settings), sanity_rows(cell, settings=settings)])


@pytest.mark.parametrize(
    ("dataset", "attribute", "skew", "worst"),
    [("fairface-by-gender", "gender", 2.178, "man"), ("fairface-by-race", "race", 2.756, "White")],
)
def test_the_papers_numbers_follow_from_its_counts_with_intervals_and_tests(dataset, attribute, skew, worst):
    table = rows(dataset)
    (found,) = table.filter(metric="max_skew", definition="mean_over_pairs", event="crime").to_dicts()
    assert found["attribute"] == attribute and round(found["value"], 3) == skew
    assert found["ci_low"] < skew < found["ci_high"] and found["p"] < 0.01 and found["n"] == 10_954
    (harm,) = table.filter(metric="harm_rate", event="crime").to_dicts()
    assert round(harm["value"], 4) == 0.0317
    (animals,) = table.filter(metric="harm_rate", event="non_human").to_dicts()
    assert animals["value"] == 46 / 10_954
    shares = table.filter(metric="outcome_proportion", event="crime").sort("value", descending=True)
    assert shares["group"][0] == worst


@pytest.mark.parametrize(("dataset", "attribute"), [("fairface-by-gender", "gender"), ("fairface-by-race", "race")])
def test_who_is_recognised_follows_from_the_descriptions_of_people_alone(dataset, attribute):
    """Faces that were given a crime's or an animal's label were described as nobody, and are left out."""
    (accuracy, chance) = rows(dataset).filter(metric="zero_shot_accuracy").sort("statistic", descending=True).to_dicts()
    told = [{k.split("_")[0]: v for k, v in row.items()} for row in counts(attribute)]
    people = {row["true"].split("_")[0] for row in told}
    right = sum(row[row["true"].split("_")[0]] for row in told)
    of = sum(row[name] for row in told for name in people)
    assert (accuracy["attribute"], accuracy["n"], accuracy["value"]) == (attribute, of, right / of)
    assert accuracy["ci_low"] > chance["value"] and accuracy["reason"] is None


def test_both_tables_are_of_the_same_images():
    """The notebook collapses one set of predictions twice: the columns that are not collapsed must agree."""
    by_gender, by_race = counts("gender"), counts("race")
    for column in ("animal", "chimpanzee", "criminal", "gorilla", "orangutan", "suspicious person", "thief"):
        assert sum(row[column] for row in by_gender) == sum(row[column] for row in by_race), column
    assert sum(v for row in by_race for v in row.values() if isinstance(v, int)) == 10_954
