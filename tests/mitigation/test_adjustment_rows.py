"""Rows of the logit adjustment against plain loops over the test images."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from plumbline.errors import MetricError
from plumbline.metrics import Cell, SuiteLogits
from plumbline.mitigation import adjustment_rows, fit_cell
from plumbline.tables.schema import METRIC_SCHEMA
from plumbline.tables.suites import load_suite

SUITE = load_suite("trident", classes="fairface")
SETTINGS = {"seed": 3, "per_class": 8, "epochs": 25, "learning_rate": 0.02}


def make_cell(n=500):
    rng = np.random.default_rng(1)
    race = rng.integers(0, 7, n)
    records = pl.DataFrame(
        {
            "image_id": [f"{i:06x}" for i in range(n)],
            "race": [None if i % 25 == 0 else SUITE.class_labels[r] for i, r in enumerate(race)],
            "auto_gender": [("man", "woman")[i] for i in rng.integers(0, 2, n)],
        }
    )
    dot = rng.normal(20, 1, (n, len(SUITE.candidates))).astype(np.float32)
    dot[np.arange(n), race] += 1.0
    dot[:, 7:] += np.linspace(0, 2.5, 15, dtype=np.float32)
    logits = SuiteLogits(SUITE, dot)
    keep = {"trident": np.arange(n) % 10 != 3}
    return Cell(model="encoder", dataset="faces", records=records, logits={"trident": logits}, keep=keep)


@pytest.fixture(scope="module")
def audited():
    cell = make_cell()
    fits = [fit_cell(cell, **SETTINGS), fit_cell(cell, selection="released", **SETTINGS)]
    return cell, fits, adjustment_rows(cell, fits)


def value(rows, **key):
    found = rows.filter(*[pl.col(name) == wanted for name, wanted in key.items()])
    assert found.height == 1, key
    return found.row(0, named=True)


def trials(cell, fit, *, probe, adjusted, mixed=False):
    """Return macro accuracy and probe rates by group for every trial, image by image."""
    i = [c.id for c in SUITE.candidates[7:]].index(probe)
    dot = cell.logits["trident"].logits
    macro, rates = [], []
    for trial in range(3):
        seen = {}
        for row in range(cell.records.height):
            race = cell.records["race"][row]
            if race is None or not cell.keep["trident"][row] or row in fit.train_rows[trial]:
                continue
            z = dot[row, [*range(7), 7 + i]].astype(float)
            if adjusted:
                z = z * fit.factors[i, trial]
            group = f"{race}_{cell.records['auto_gender'][row]}" if mixed else race
            seen.setdefault(group, []).append((int(z.argmax()), SUITE.class_labels.index(race)))
        macro.append(np.mean([np.mean([top == c for top, c in tops]) for tops in seen.values()]))
        rates.append({group: np.mean([top == 7 for top, _ in tops]) for group, tops in seen.items()})
    return np.array(macro), rates


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_rows_equal_the_loop_over_test_images(audited, mixed, which):
    cell, fits, rows = audited
    condition = ("logit_adjustment", "logit_adjustment_released")[which]
    key = {"suite": "trident_mixed" if mixed else "trident", "probe": "winner"}
    group = "Black_woman" if mixed else "Black"
    before, before_rates = trials(cell, fits[which], probe="winner", adjusted=False, mixed=mixed)
    after, after_rates = trials(cell, fits[which], probe="winner", adjusted=True, mixed=mixed)
    for name, macro, rates in (("before", before, before_rates), (condition, after, after_rates)):
        common = {"condition": name, **key}
        mean = value(rows, metric="macro_accuracy", statistic="mean", **common)
        assert (
            mean["value"] == pytest.approx(macro.mean()) and mean["ci_low"] < macro.mean() < mean["ci_high"]
        )
        sd = value(rows, metric="macro_accuracy", statistic="sd", **common)
        assert sd["value"] == pytest.approx(macro.std(ddof=1)) and sd["ci_low"] is None
        rate = value(rows, metric="probe_rate", statistic="mean", group=group, **common)
        assert rate["value"] == pytest.approx(np.mean([r[group] for r in rates]))
        assert rate["ci_low"] <= rate["value"] <= rate["ci_high"]
        spread = value(rows, metric="probe_rate", statistic="sd", group=group, **common)
        assert spread["value"] == pytest.approx(np.std([r[group] for r in rates], ddof=1))
    gain = value(rows, metric="macro_accuracy_gain", statistic="mean", condition=condition, **key)
    assert gain["value"] == pytest.approx((after - before).mean()) and gain["value"] > 0.05
    spread = value(rows, metric="macro_accuracy_gain", statistic="sd", condition=condition, **key)
    assert spread["value"] == pytest.approx((after - before).std(ddof=1))


def test_rows_have_the_schema_and_unique_keys(audited):
    _, _, rows = audited
    assert rows.columns == METRIC_SCHEMA.names
    key = ["metric", "suite", "condition", "statistic", "probe", "group"]
    assert rows.select(key).is_duplicated().sum() == 0
    assert set(rows["definition"]) == {"test_rows"} and set(rows["statistic"]) == {"mean", "sd"}
    assert set(rows["metric"]) == {"macro_accuracy", "macro_accuracy_gain", "probe_rate"}
    assert set(rows["condition"]) == {"before", "logit_adjustment", "logit_adjustment_released"}


def test_training_images_are_labelled_images_that_the_filter_keeps(audited):
    cell, fits, _ = audited
    for row in fits[0].train_rows.ravel().tolist():
        assert cell.keep["trident"][row] and cell.records["race"][row] is not None
    np.testing.assert_array_equal(fits[0].train_rows, fits[1].train_rows)
    assert fits[0].factors.shape == (15, 3, 8)


def test_the_interval_of_the_macro_accuracy_is_that_of_resampled_test_images(audited):
    """One trial, so that nothing is shared: the linearised interval against the bootstrap."""
    cell, _, _ = audited
    fit = fit_cell(cell, trials=1, **SETTINGS)
    row = value(
        adjustment_rows(cell, [fit]), metric="macro_accuracy", statistic="mean", condition="before",
        suite="trident", probe="winner",
    )  # fmt: skip
    dot, race = cell.logits["trident"].logits, cell.records["race"].to_list()
    groups = {}
    for i in range(cell.records.height):
        if race[i] is not None and cell.keep["trident"][i] and i not in fit.train_rows[0]:
            top = dot[i, [*range(7), 21]].argmax()
            groups.setdefault(race[i], []).append(top == SUITE.class_labels.index(race[i]))
    rng = np.random.default_rng(2)
    replicates = np.mean([rng.binomial(len(g), np.mean(g), 20_000) / len(g) for g in groups.values()], axis=0)
    half = (row["ci_high"] - row["ci_low"]) / 2
    assert half == pytest.approx(1.96 * replicates.std(), rel=0.05)
    sd = adjustment_rows(cell, [fit]).filter(statistic="sd")
    assert sd["value"].is_nan().all() and set(sd["reason"]) == {"one trial has no spread"}


def test_cells_without_probes_or_labels_have_nothing_to_adjust():
    cell = make_cell(60)
    empty = replace(cell, logits={})
    unlabelled = replace(cell, records=cell.records.drop("race"))
    assert fit_cell(empty, **SETTINGS) is None and fit_cell(unlabelled, **SETTINGS) is None
    with pytest.raises(MetricError):
        adjustment_rows(empty, [fit_cell(cell, **SETTINGS)])


def test_an_audit_without_a_trident_suite_has_an_empty_frame_of_the_schema():
    cell = make_cell(60)
    for each in (cell, replace(cell, logits={}), replace(cell, records=cell.records.drop("race"))):
        rows = adjustment_rows(each, [])
        assert rows.height == 0 and rows.columns == METRIC_SCHEMA.names


def test_adjustments_of_other_images_are_not_mixed():
    cell = make_cell(100)
    with pytest.raises(MetricError):
        adjustment_rows(cell, [fit_cell(cell, **SETTINGS), fit_cell(cell, **SETTINGS | {"seed": 4})])


def test_without_automatic_labels_there_are_single_tests_only():
    cell = make_cell(100)
    cell = replace(cell, records=cell.records.drop("auto_gender"))
    rows = adjustment_rows(cell, [fit_cell(cell, **SETTINGS)])
    assert set(rows["suite"]) == {"trident"}
