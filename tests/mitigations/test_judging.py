"""Mitigations are judged on held-out images: nothing changed moves nothing, and each number is that of its own rows."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.errors import MetricError
from plumbline.metrics import Cell, MetricSettings, SuiteLogits
from plumbline.metrics.outcomes import outcome_rows
from plumbline.metrics.trident.rows import trident_rows
from plumbline.mitigations.judging import Judgement, MitigatedTexts, judge_mitigations
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import JUDGED_TRIAL, Adjustments, fit_adjustments
from plumbline.mitigations.training_rows import label_captions

SETTINGS = MetricSettings(seed=5, resamples=100, permutations=100, min_group=5)
N, SCALE = 280, 50.0
SUITES = [load_suite("crime"), load_suite("trident", classes="fairface")]
TRAIN = np.arange(N) % 4 == 0
KEY = ["suite", "event", "attribute", "group", "probe", "metric", "definition", "statistic"]


@pytest.fixture(scope="module")
def embedded():
    """Return a cell of embeddings, its texts with the captions of all images, and their features."""
    rng = np.random.default_rng(2)
    races = SUITES[1].class_labels
    records = pl.DataFrame(
        {
            "image_id": [f"{i:06x}" for i in range(N)],
            "race": [races[i] for i in rng.integers(0, 7, N)],
            "gender": [("man", "woman")[i] for i in rng.integers(0, 2, N)],
            "split": np.where(TRAIN, "train", "test"),
        }
    )
    texts = list(dict.fromkeys([text for suite in SUITES for text in suite.texts] + [*label_captions(records)]))
    images, features = (rng.normal(size=(k, 12)).astype(np.float32) for k in (N, len(texts)))
    norms = np.linalg.norm(images, axis=1), np.linalg.norm(features, axis=1)
    products, logits = images @ features.T, {}
    for suite in SUITES:
        chosen = [texts.index(text) for text in suite.texts]
        logits[suite.id] = SuiteLogits.of_products(
            suite, products, columns=chosen, image_norms=norms[0], text_norms=norms[1], logit_scale=SCALE, scaled=False
        )
    cell = Cell(model="encoder", dataset="faces", records=records, logits=logits, keep={"crime": np.arange(N) % 5 > 0})
    return cell, texts, features, images


def judge(cell, images=None, *, adjustments=None, mitigated=()):
    return judge_mitigations(
        cell, adjustments or Adjustments(), mitigated, images=images, logit_scale=SCALE, settings=SETTINGS
    )


def values(frame):
    """Return key -> value, of rows without a condition."""
    return {tuple(row[:-1]): row[-1] for row in frame.select(*KEY, "value").iter_rows()}


def test_nothing_to_judge_gives_empty_tables(embedded):
    found = judge(embedded[0])
    assert found.rows.is_empty() and found.effects.is_empty()
    assert [frame.schema for frame in found] == [frame.schema for frame in Judgement()]


def test_texts_that_nothing_changed_give_the_cell_on_the_judged_images(embedded):
    cell, texts, features, images = embedded
    found = judge(cell, images, mitigated=[MitigatedTexts("bias_prompts", texts, features, {"same": features})])
    before, after = (found.rows.filter(condition=name) for name in ("before_test_rows", "same"))
    narrowed = replace(cell, keep={name: cell.rows(name) & ~TRAIN for name in cell.logits})
    expected = values(pl.concat([f(narrowed, settings=SETTINGS) for f in (outcome_rows, trident_rows)]))
    assert expected.items() <= values(before).items()
    assert values(before).keys() == values(after).keys()
    assert set(found.effects["method"]) == {"bias_prompts"} and set(found.effects["condition"]) == {"same"}
    assert found.effects["n"].max() == (~TRAIN).sum()
    assert found.effects["value"].drop_nans().abs().max() == 0
    assert {"retrieval_recall", "harm_rate", "probe_rate"} <= set(found.effects["metric"])


@pytest.mark.parametrize("own", [True, False])
def test_retrieval_by_sentences_of_labels_says_so(embedded, own):
    cell, texts, features, images = embedded
    if own:
        captions = pl.Series("caption", label_captions(cell.records))
        cell = replace(cell, records=cell.records.with_columns(captions))
    effects = judge(cell, images, mitigated=[MitigatedTexts("saner", texts, features, {"same": features})]).effects
    of_labels = pl.col("reason").str.contains("sentences made of the labels", literal=True).fill_null(value=False)
    told = set(effects.filter(of_labels)["metric"])
    assert told == (set() if own else {"retrieval_recall", "retrieval_r_precision"})


def test_metrics_before_are_given_again_only_where_fewer_images_are_judged(embedded):
    cell, texts, features, images = embedded
    kept = replace(cell, keep={name: cell.rows(name) & ~TRAIN for name in ("crime", "trident")})
    found = judge(kept, images, mitigated=[MitigatedTexts("saner", texts, features, {"same": features})])
    assert set(found.rows["condition"]) == {"same"}


def test_each_mitigation_of_each_method_is_judged_by_its_own_features(embedded):
    cell, texts, features, images = embedded
    turned = features.copy()
    turned[texts.index(SUITES[0].texts[0])] *= -1
    mitigated = [
        MitigatedTexts("saner", texts, features, {"same": features, "turned": turned}),
        MitigatedTexts("bias_prompts", texts, features, {"again": turned}),
    ]
    effects = judge(cell, images, mitigated=mitigated).effects
    assert effects.select("condition", "method").unique(maintain_order=True).rows() == [
        ("same", "saner"), ("turned", "saner"), ("again", "bias_prompts")
    ]  # fmt: skip
    moved = {name: own["value"].drop_nans().abs().max() for (name,), own in effects.group_by("condition")}
    assert moved["same"] == 0 < moved["turned"] == moved["again"]


def test_texts_cannot_be_judged_without_images(embedded):
    cell, texts, features, _ = embedded
    with pytest.raises(MetricError, match="image embeddings"):
        judge(cell, mitigated=[MitigatedTexts("saner", texts, features, {"same": features})])


def test_adjustments_are_judged_on_the_test_images_of_all_their_fits(embedded):
    cell = embedded[0]
    settings = LogitAdjustmentSettings(per_class=3, epochs=3)
    adjustments = fit_adjustments(cell, {"ala": settings}, seed=1)
    fits = adjustments.fits["ala"]
    assert set(fits) == {"trident", "crime"}
    found = judge(cell, adjustments=adjustments)
    tested = np.logical_and.reduce([fit.test_rows(N)[JUDGED_TRIAL] for fit in fits.values()])
    harm = found.effects.filter(suite="crime", event="crime", metric="harm_rate").row(0, named=True)
    assert harm["n"] == (tested & cell.rows("crime")).sum() < cell.rows("crime").sum()
    rate = found.rows.filter(condition="ala", suite="crime", event="crime", metric="harm_rate").row(0, named=True)
    assert rate["value"] == pytest.approx(harm["value_after"], abs=1e-12) and rate["n"] == harm["n"]
    assert {"macro_accuracy_gain", "outcome_proportion"} <= set(found.rows["metric"])
    assert "zero_shot_accuracy" in set(found.effects["metric"])


def test_an_adjustment_that_cannot_be_fitted_is_left_out_with_the_reason(embedded):
    bare = replace(embedded[0], records=embedded[0].records.drop("race"))
    settings = {"ala": LogitAdjustmentSettings(per_class=3)}
    found = fit_adjustments(bare, settings, seed=1)
    assert found.fits == {"ala": {}} and "no labels of race" in found.absent["ala"]["crime"]
    assert judge(bare, adjustments=found).rows.is_empty()
