"""Rows of the logit adjustment against plain loops over the test images."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from probed_cells import COMPOSITE, SUITE, make_cell

from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.catalog.suites import load_suite
from plumbline.errors import MetricError
from plumbline.metrics import SuiteLogits
from plumbline.mitigations import adjustment_rows, apply_logit_adjustment, fit_cell
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.reasons import WORDS

LEAKING = WORDS["leaking"]
SETTINGS = LogitAdjustmentSettings(per_class=8, epochs=25, learning_rate=0.02)


def variant(**changes):
    return SETTINGS.model_copy(update=changes)


VARIANTS = {
    "plain": SETTINGS,
    "leaking": variant(selection="released"),
    "additive": variant(mode="additive", learning_rate=0.1),
    "fewer": variant(per_class=4),
    "fewer-leaking": variant(per_class=4, selection="released"),
    "composite": variant(candidates="composite", per_class=6),
}


@pytest.fixture(scope="module")
def audited():
    cell = make_cell()
    fits = {name: fit_cell(cell, settings, seed=3) for name, settings in VARIANTS.items()}
    return cell, fits, adjustment_rows(cell, fits)


def value(rows, **key):
    found = rows.filter(*[pl.col(name) == wanted for name, wanted in key.items()])
    assert found.height == 1, key
    return found.row(0, named=True)


def trials(cell, fit, *, probe, adjusted, view="trident"):
    """Return macro accuracy and probe rates by group for every trial, image by image."""
    composite = view == "trident_composite"
    name, classes = ("trident_composite", 14) if composite else ("trident", 7)
    suite, kept, dot = cell.logits[name].suite, cell.keep[name], cell.logits[name].logits
    i = [c.id for c in suite.candidates[classes:]].index(probe)
    macro, rates = [], []
    for trial in range(3):
        seen = {}
        for row in range(cell.records.height):
            race, gender = cell.records["race"][row], cell.records["auto_gender"][row]
            if race is None or not kept[row] or row in fit.train_rows[trial]:
                continue
            z = dot[row, [*range(classes), classes + i]].astype(float)
            if adjusted:
                factors = fit.factors[i, trial]
                z = z + factors if fit.settings.mode == "additive" else z * factors
            label = f"{race}_{gender}" if composite else race
            group = race if view == "trident" else f"{race}_{gender}"
            seen.setdefault(group, []).append((int(z.argmax()), suite.class_labels.index(label)))
        macro.append(np.mean([np.mean([top == c for top, c in tops]) for tops in seen.values()]))
        rates.append({group: np.mean([top == classes for top, _ in tops]) for group, tops in seen.items()})
    return np.array(macro), rates


@pytest.mark.parametrize(
    ("condition", "view", "definition"),
    [
        ("plain", "trident", "test_rows"),
        ("plain", "trident_mixed", "test_rows"),
        ("leaking", "trident", "test_rows"),
        ("leaking", "trident_mixed", "test_rows"),
        ("additive", "trident", "test_rows"),
        ("fewer", "trident_mixed", "test_rows_of_fewer"),
        ("fewer-leaking", "trident", "test_rows_of_fewer"),
        ("composite", "trident_composite", "test_rows"),
    ],
)
def test_rows_equal_the_loop_over_test_images(audited, condition, view, definition):
    cell, fits, rows = audited
    key = {"suite": view, "probe": "winner"}
    group = "Black" if view == "trident" else "Black_woman"
    before, before_rates = trials(cell, fits[condition], probe="winner", adjusted=False, view=view)
    after, after_rates = trials(cell, fits[condition], probe="winner", adjusted=True, view=view)
    for name, macro, rates in (("before", before, before_rates), (condition, after, after_rates)):
        common = {"condition": name, "definition": definition, **key}
        mean = value(rows, metric="macro_accuracy", statistic="mean", **common)
        assert mean["value"] == pytest.approx(macro.mean())
        assert mean["ci_low"] < macro.mean() < mean["ci_high"]
        sd = value(rows, metric="macro_accuracy", statistic="sd", **common)
        assert sd["value"] == pytest.approx(macro.std(ddof=1)) and sd["ci_low"] is None
        rate = value(rows, metric="probe_rate", statistic="mean", group=group, **common)
        assert rate["value"] == pytest.approx(np.mean([r[group] for r in rates]))
        assert rate["ci_low"] <= rate["value"] <= rate["ci_high"]
        spread = value(rows, metric="probe_rate", statistic="sd", group=group, **common)
        assert spread["value"] == pytest.approx(np.std([r[group] for r in rates], ddof=1))
    common = {"metric": "macro_accuracy_gain", "definition": "test_rows", "condition": condition, **key}
    gain = value(rows, statistic="mean", **common)
    assert gain["value"] == pytest.approx((after - before).mean()) and gain["value"] > 0.05
    spread = value(rows, statistic="sd", **common)
    assert spread["value"] == pytest.approx((after - before).std(ddof=1))
    if fits[condition].settings.leaking:  # the released code's mean over C + 1 of which one is the probe
        released = value(rows, statistic="mean", **common | {"definition": "released"})
        classes = len(cell.logits["trident"].suite.class_labels)
        assert released["value"] == pytest.approx((after - before).mean() * classes / (classes + 1))
    else:
        assert rows.filter(condition=condition, definition="released").is_empty()


def test_rows_have_the_schema_and_unique_keys(audited):
    _, _, rows = audited
    assert rows.columns == list(METRIC_SCHEMA)
    key = ["metric", "definition", "suite", "condition", "statistic", "probe", "group"]
    assert rows.select(key).is_duplicated().sum() == 0
    assert set(rows["statistic"]) == {"mean", "sd"}
    assert set(rows["metric"]) == {"macro_accuracy", "macro_accuracy_gain", "probe_rate"}
    assert set(rows["condition"]) == {"before", *VARIANTS}


def test_one_before_stands_beside_all_that_share_its_test_images(audited):
    _, _, rows = audited
    paired = rows.filter(pl.col("metric") != "macro_accuracy_gain").group_by("suite", "definition")
    found = {(s, d): set(of) for s, d, of in paired.agg(pl.col("condition").unique()).iter_rows()}
    shared, own = {"before", "plain", "leaking", "additive"}, {"before", "fewer", "fewer-leaking"}
    assert found == {
        ("trident", "test_rows"): shared,
        ("trident_mixed", "test_rows"): shared,
        ("trident", "test_rows_of_fewer"): own,
        ("trident_mixed", "test_rows_of_fewer"): own,
        ("trident_composite", "test_rows"): {"before", "composite"},
    }


def test_rows_whose_factors_leak_say_so(audited):
    _, fits, rows = audited
    said = rows["reason"].fill_null("").str.contains(LEAKING, literal=True)
    assert set(rows.filter(said)["condition"]) == {"leaking", "fewer-leaking"}
    assert said.sum() == rows["condition"].is_in(["leaking", "fewer-leaking"]).sum() > 0
    small = rows.filter(said & rows["reason"].str.contains("small group"))
    assert small.height and small["reason"][0].startswith(f"{LEAKING}; small group")
    assert [name for name, fit in fits.items() if fit.settings.leaking] == ["leaking", "fewer-leaking"]


def test_training_images_are_labelled_images_that_the_filter_keeps(audited):
    cell, fits, _ = audited
    for name, suite in (("plain", "trident"), ("composite", "trident_composite")):
        for row in fits[name].train_rows.ravel().tolist():
            assert cell.keep[suite][row] and cell.records["race"][row] is not None
    for name in ("leaking", "additive"):
        np.testing.assert_array_equal(fits["plain"].train_rows, fits[name].train_rows)
    assert fits["plain"].factors.shape == (15, 3, 8)


def test_composite_candidates_have_a_factor_each_and_images_of_every_group(audited):
    cell, fits, _ = audited
    fit = fits["composite"]
    assert fit.factors.shape == (15, 3, 15) and fit.n_classes == 14 and fit.settings.candidates == "composite"
    for train in fit.train_rows:
        labels = [f"{cell.records['race'][r]}_{cell.records['auto_gender'][r]}" for r in train.tolist()]
        assert {label: labels.count(label) for label in labels} == dict.fromkeys(COMPOSITE.class_labels, 6)
    assert len({tuple(pair) for pair in fit.factors[14, 0, :14].reshape(7, 2).tolist()}) == 7
    assert (fit.factors[14, 0, :14:2] != fit.factors[14, 0, 1:14:2]).all()


def test_the_interval_of_the_macro_accuracy_is_that_of_resampled_test_images(audited):
    """One trial, so that nothing is shared: the linearised interval against the bootstrap."""
    cell, _, _ = audited
    fit = fit_cell(cell, variant(trials=1), seed=3)
    row = value(
        adjustment_rows(cell, {"once": fit}), metric="macro_accuracy", statistic="mean", condition="before",
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
    sd = adjustment_rows(cell, {"once": fit}).filter(statistic="sd")
    assert sd["value"].is_nan().all() and set(sd["reason"]) == {"one trial has no spread"}


def test_cells_without_probes_or_labels_have_nothing_to_adjust():
    cell = make_cell(60)
    empty = replace(cell, logits={})
    unlabelled = replace(cell, records=cell.records.drop("race"))
    alone = replace(cell, records=cell.records.with_columns(
        race=pl.when(pl.int_range(pl.len()).is_in([1, 2])).then("race")
    ))  # fmt: skip
    assert len(set(alone.records["race"].drop_nulls())) == 2, "two classes with one image each"
    for settings in (SETTINGS, VARIANTS["composite"]):
        for each in (empty, unlabelled, alone):
            assert fit_cell(each, settings, seed=3) is None
    for name, settings in (("plain", SETTINGS), ("composite", VARIANTS["composite"])):
        with pytest.raises(MetricError, match="nothing to adjust"):
            adjustment_rows(empty, {name: fit_cell(cell, settings, seed=3)})


def test_composite_candidates_need_automatic_labels_of_something_that_is_not_gender():
    cell = make_cell(100)
    unguessed = replace(cell, records=cell.records.drop("auto_gender"))
    assert fit_cell(unguessed, VARIANTS["composite"], seed=3) is None
    suites = {name: load_suite(name, classes="celeba") for name in ("trident", "trident_composite")}
    logits = {
        name: SuiteLogits(suite, cell.logits["trident"].logits[:, : len(suite.candidates)])
        for name, suite in suites.items()
    }
    genders = replace(cell, records=cell.records.with_columns(gender="auto_gender"), logits=logits)
    fit = fit_cell(genders, SETTINGS, seed=3)
    assert fit_cell(genders, VARIANTS["composite"], seed=3) is None
    assert set(adjustment_rows(genders, {"plain": fit})["suite"]) == {"trident"}, "gender is not crossed with itself"


def test_an_audit_without_a_trident_suite_has_an_empty_frame_of_the_schema():
    cell = make_cell(60)
    for each in (cell, replace(cell, logits={}), replace(cell, records=cell.records.drop("race"))):
        rows = adjustment_rows(each, {})
        assert rows.height == 0 and rows.columns == list(METRIC_SCHEMA)


def test_an_adjustment_of_other_candidates_is_refused():
    cell = make_cell(100)
    fit = fit_cell(cell, SETTINGS, seed=3)
    with pytest.raises(MetricError, match="do not fit"):
        adjustment_rows(cell, {"foreign": replace(fit, factors=fit.factors[:, :, :7])})


def test_without_automatic_labels_there_are_single_tests_only():
    cell = make_cell(100)
    cell = replace(cell, records=cell.records.drop("auto_gender"))
    rows = adjustment_rows(cell, {"plain": fit_cell(cell, SETTINGS, seed=3)})
    assert set(rows["suite"]) == {"trident"}


def test_the_additive_variant_adds(audited):
    cell, fits, _ = audited
    fit, dot = fits["additive"], cell.logits["trident"].logits.astype(float)
    responses = np.stack([dot[:, [*range(7), 7 + i]] for i in range(15)])
    adjusted = apply_logit_adjustment(fit, responses)
    np.testing.assert_allclose(adjusted[4, 1], responses[4] + fit.factors[4, 1])
    assert (fit.factors[14, :, 7] < -0.5).all(), "the probe that wins most loses most"
