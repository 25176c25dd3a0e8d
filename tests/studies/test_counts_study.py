"""The printed counts of a real checkpoint: what the paper says follows from them, and what the paper lacks."""

import csv

import numpy as np
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.config.file import read_audit
from plumbline.datasets.ingestion import ingest
from plumbline.encoders.stored_predictions import PredictionTable
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.outcomes import OUTCOMES
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
    raw = np.zeros((records.height, len(suite.candidates)), np.float32)
    raw[np.arange(len(raw)), chosen["crime"]] = 1
    cell = Cell("openclip", dataset, records, {"crime": SuiteLogits(suite, raw)}, {})
    return OUTCOMES.compute(cell, settings=MetricSettings(resamples=200, permutations=200))


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


def test_both_tables_are_of_the_same_images():
    """The notebook collapses one set of predictions twice: the columns that are not collapsed must agree."""
    by_gender, by_race = counts("gender"), counts("race")
    for column in ("animal", "chimpanzee", "criminal", "gorilla", "orangutan", "suspicious person", "thief"):
        assert sum(row[column] for row in by_gender) == sum(row[column] for row in by_race), column
    assert sum(v for row in by_race for v in row.values() if isinstance(v, int)) == 10_954
