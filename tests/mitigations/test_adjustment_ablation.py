"""The ablation against fits of their own for every tried value."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from probed_cells import make_cell

from plumbline.mitigations import adjustment_rows, fit_cell
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.rows import ABLATION_SCHEMA, LEARNING_RATES, PER_CLASS, ablation
from plumbline.reasons import WORDS


@pytest.mark.parametrize(
    "settings",
    [
        LogitAdjustmentSettings(per_class=8, epochs=15),
        LogitAdjustmentSettings(per_class=8, epochs=15, mode="additive", selection="train_accuracy"),
        LogitAdjustmentSettings(per_class=6, epochs=15, selection="released", candidates="composite"),
    ],
)
def test_every_value_gives_what_a_fit_of_its_own_gives(settings):
    cell = make_cell(400)
    found = ablation(cell, settings, seed=5, per_class=(3, 8), learning_rates=(0.003, 0.05))
    assert dict(found.schema) == ABLATION_SCHEMA and found.height == 4 * 15
    suite = "trident" if settings.candidates == "single" else "trident_composite"
    tried = [("per_class", n, 0.01) for n in (3, 8)]
    tried += [("learning_rate", settings.per_class, rate) for rate in (0.003, 0.05)]
    for varied, n, rate in tried:
        fit = fit_cell(cell, settings.model_copy(update={"per_class": n, "learning_rate": rate}), seed=5)
        gains = adjustment_rows(cell, {"own": fit}).filter(
            metric="macro_accuracy_gain", definition="test_rows", suite=suite
        )
        own = found.filter(varied=varied, per_class=n, learning_rate=rate)
        for statistic, column in (("mean", "value"), ("sd", "sd")):
            expected = gains.filter(statistic=statistic)
            assert own["probe"].to_list() == expected["probe"].to_list()
            np.testing.assert_allclose(own[column], expected["value"], atol=1e-12)
        mean = gains.filter(statistic="mean")
        np.testing.assert_allclose(own["ci_low"], mean["ci_low"].fill_null(np.nan), atol=1e-12)
        np.testing.assert_allclose(own["ci_high"], mean["ci_high"].fill_null(np.nan), atol=1e-12)
        assert own["n"].to_list() == mean["n"].to_list()
        assert set(own["n_train"]) == {fit.train_rows.shape[1]}
    leaking = found["reason"].fill_null("").str.starts_with(WORDS["leaking"])
    assert leaking.all() if settings.selection == "released" else not leaking.any()


def test_the_defaults_are_the_published_numbers_of_images_and_small_classes_are_named():
    found = ablation(make_cell(300), LogitAdjustmentSettings(epochs=3), seed=1)
    assert PER_CLASS == (10, 20, 30, 40, 100, 200)
    by_n = found.filter(varied="per_class")
    assert by_n["per_class"].unique(maintain_order=True).to_list() == list(PER_CLASS)
    by_rate = found.filter(varied="learning_rate")
    assert by_rate["learning_rate"].unique(maintain_order=True).to_list() == list(LEARNING_RATES)
    reasons = by_n.group_by("per_class").agg(pl.col("reason").first()).sort("per_class")["reason"]
    assert reasons[0] is None and set(by_rate["reason"]) <= {reasons[1]}
    assert reasons[5] == "7 of 7 classes have fewer than 2N images and gave half"
    training = by_n.group_by("per_class").agg(pl.col("n_train").first()).sort("per_class")["n_train"].to_list()
    assert training[0] == 70 and training[4] == training[5] < 150


def test_one_trial_has_no_spread_and_cells_without_labels_no_rows():
    cell = make_cell(200)
    settings = LogitAdjustmentSettings(per_class=4, trials=1)
    once = ablation(cell, settings, seed=1, per_class=(4,), learning_rates=())
    assert once["sd"].is_nan().all() and once.height == 15 and once["value"].is_finite().all()
    for nothing in (replace(cell, logits={}), replace(cell, records=cell.records.drop("race"))):
        rows = ablation(nothing, settings, seed=1)
        assert rows.height == 0 and dict(rows.schema) == ABLATION_SCHEMA
