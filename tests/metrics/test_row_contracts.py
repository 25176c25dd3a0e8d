"""What the contracts prove of a declared metric holds for the rows: both give the same values on hard cells."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from contract_measures import MEASURES

from plumbline.catalog.schema import metric_frame
from plumbline.metrics.cell import without_small_groups
from plumbline.metrics.registry import FAMILIES, METRICS
from plumbline.metrics.trident.scores import normalise_probe_rates
from plumbline.statistics.groups import Groups, label_codes

DEFAULTS = {
    "max_skew": "mean_over_pairs", "accuracy": "logit", "class_accuracy": "logit", "macro_accuracy": "paper",
    "probe_rate": "logit", "probe_rate_normalised": "single",
}  # fmt: skip
PROBE = "thief"
# The families whose metrics depend on which candidate wins; the rows of the others are compared in their own tests.
OF_TOP_1 = ("outcome_metrics", "trident_metrics")


@pytest.fixture(scope="module", params=[0, 1], ids=["many", "few"])
def hard(request, make_cell):
    """Return a cell full of ties, with groups that are small, answered alike, without event, or empty."""
    cell = make_cell(n=(300, 40)[request.param], seed=request.param, suites=("communion", "trident"))
    race = pl.col("race").replace({"White": "Black"})
    logits = {
        # Whole numbers tie.
        name: replace(each, logits=np.round(each.logits / 3), cosine=np.round(each.logits / 3))
        for name, each in cell.logits.items()
    }
    return replace(cell, records=cell.records.with_columns(race), logits=logits)


@pytest.fixture(scope="module")
def rows(hard, quick):
    """Return all rows of the cell."""
    frames = [FAMILIES[name].compute(hard, settings=quick) for name in OF_TOP_1]
    frame = pl.concat(frames)
    one_probe = frame.filter(metric="probe_rate", definition="logit", suite="trident", probe=PROBE)
    return pl.concat([frame, normalise_probe_rates(one_probe)])


def classes(cell):
    suite = cell.logits["trident"].suite
    return Groups("race", suite.class_labels, label_codes(cell.records["race"], suite.class_labels))


def is_trident(metric):
    return metric in FAMILIES["trident_metrics"].metrics or metric == "probe_rate_normalised"


def responses_and_groups(cell, metric):
    """Return what the declared metric reads: responses to the groups' classes and the event or probe."""
    groups = classes(cell)
    if is_trident(metric):
        logits = cell.logits["trident"]
        column = [c.id for c in logits.suite.candidates].index(PROBE)
        responses = logits.logits[:, [*range(len(groups.names)), column]]
    else:
        logits = cell.logits["communion"]
        hit = np.isin(logits.cosine.argmax(axis=1), logits.suite.columns("negative"))
        responses = np.concatenate([np.zeros((len(hit), len(groups.names))), 2.0 * hit[:, None] - 1], axis=1)
    # An unlabelled image counts in the harm rate, as a group of its own.
    everyone = metric == "harm_rate"
    names = (*groups.names, None) if everyone else groups.names
    codes = np.where(groups.codes < 0, len(groups.names), groups.codes) if everyone else groups.codes
    if everyone:
        responses = np.insert(responses, 0, 0.0, axis=1)
    return responses[codes >= 0], codes[codes >= 0], names


# The rows of `probe_rate_gap` call the declared function itself; those of equal opportunity have their own tests.
ELSEWHERE = ("probe_rate_gap", "true_positive_rate", "equal_opportunity_gap")


@pytest.mark.parametrize("metric", [n for name in OF_TOP_1 for n in FAMILIES[name].metrics if n not in ELSEWHERE])
def test_rows_hold_what_the_declared_function_gives(metric, rows, hard):
    responses, codes, names = responses_and_groups(hard, metric)
    expected = MEASURES[metric](responses.astype(float), codes, len(names))
    chosen = rows.filter(metric=metric)
    if metric in DEFAULTS:
        chosen = chosen.filter(definition=DEFAULTS[metric])
    if is_trident(metric):
        chosen = chosen.filter(suite="trident", probe=PROBE)
    elif metric != "harm_rate":
        chosen = chosen.filter(attribute="race")
    if METRICS[metric].shape == "scalar":
        assert chosen.height == 1
        assert chosen["value"][0] == pytest.approx(float(expected), rel=1e-12, nan_ok=True)
        return
    found = dict(zip(chosen["group"], chosen["value"]))
    for name, value in zip(names, expected):
        # The outcome family reports the groups that occur, the Trident family every class.
        assert found.get(name, float("nan")) == pytest.approx(value, rel=1e-12, nan_ok=True), name


def test_the_cells_are_hard(hard):
    responses, codes, names = responses_and_groups(hard, "accuracy")
    top = np.sort(responses, axis=1)
    assert (top[:, -1] == top[:, -2]).mean() > 0.1
    assert (np.bincount(codes, minlength=len(names)) == 0).any()


def test_no_number_is_shown_of_a_group_that_is_small_in_some_rows_nor_what_would_tell_it():
    sizes = {"team 1": 3, "team 2": 6, "team 3": 40}
    rows = [
        {"metric": "outcome_proportion", "definition": "top1", "model": "m", "dataset": "d", "condition": condition,
         "statistic": "estimate", "attribute": "team", "group": team, "value": 0.5, "ci_low": 0.1, "n": n + extra}
        for condition, extra in (("before", 10), ("after", 0))
        for team, n in sizes.items()
    ]  # fmt: skip
    frame = metric_frame(rows)
    shown = without_small_groups(frame, ["team"], least=5)
    assert shown.height == frame.height and shown.schema == frame.schema
    numbers = shown.select("condition", "group", "n", "ci_low").rows()
    assert numbers[:3] == frame.select("condition", "group", "n", "ci_low").rows()[:3]
    assert numbers[3:] == [
        ("after", "team 1", None, None),
        ("after", "team 2", None, None),
        ("after", "team 3", 40, 0.1),
    ]
    assert shown["value"].is_nan().to_list() == [False] * 3 + [True, True, False]
    assert shown["reason"][3] == "not shown: fewer than 5 images, or a group that would tell of them"
    assert without_small_groups(frame, ["race"], least=5).equals(frame)
