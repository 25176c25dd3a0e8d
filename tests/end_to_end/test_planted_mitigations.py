"""On the planted world every method lowers what was planted for its axis, on faces that it never saw."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from assets.cells import StoredCell
from plumbline.config.file import read_audit
from plumbline.encoders.embedding import read_embedded
from plumbline.metrics import MetricSettings
from plumbline.metrics.cell import SuiteLogits
from plumbline.metrics.paired.mitigations import bias_transfer, mitigated_cell, mitigation_effects
from plumbline.mitigations.bias_prompts import BiasPromptsSettings
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import adjusted_outcomes, outcome_adjustment
from plumbline.mitigations.registry import apply_text_mitigation
from plumbline.mitigations.text_mitigations import FitContext
from plumbline.mitigations.training_rows import is_training_row, training_rows
from resources.checkout import PROJECT
from resources.encoders import EncoderPool

pytestmark = pytest.mark.slow

MODEL = "small-bazaar-3k"
SEED = 20260801
SETTINGS = MetricSettings(seed=SEED, resamples=1000, permutations=1000)
SHIPPED = read_audit(PROJECT / "audit.yaml").mitigations
FITTED = {
    "projection": BiasPromptsSettings(attributes=("race",)),
    "array": SHIPPED["prompt_array"],
    "neutral": SHIPPED["saner"],
}


@pytest.fixture(scope="module")
def world(audited, one_thread):
    """Return the planted FairFace through one checkpoint: cell, images, encoder."""
    workspace = audited[0].workspace
    stored = StoredCell.find(workspace, "fairface", MODEL)
    made = workspace.lake.require("image_embeddings", partition=stored.partition)
    images = read_embedded([(s["key"], s["sha256"]) for s in made.details["shards"]], workspace.shards)
    return stored.read(), images, EncoderPool(workspace).get(MODEL)


@pytest.fixture(scope="module")
def transfer(world):
    """Return what every method changes, on the validation faces."""
    cell, images, encoder = world
    rows = ~is_training_row(cell.records)
    texts = tuple(dict.fromkeys(text for each in cell.logits.values() for text in each.suite.texts))
    features = encoder.embed_texts(texts)
    work = FitContext(
        encoder=encoder,
        embed=encoder.embed_texts,
        rows=lambda attribute, _, labelled=True: training_rows(
            cell.records, images, attribute=attribute, labelled=labelled
        ),
        seed=SEED,
    )
    frames = []
    for name, settings in FITTED.items():
        fitted = settings.fit(work)
        after = mitigated_cell(
            cell,
            texts,
            apply_text_mitigation(fitted, encoder, texts, features),
            images,
            logit_scale=encoder.logit_scale,
            scaled=False,
            keep=rows,
        )
        frames.append(_effects(cell, after, name, rows))
    return bias_transfer([*frames, _adjusted(cell)])


def _effects(cell, after, name, rows):
    return mitigation_effects(cell, after, condition=name, method="any", rows=rows, settings=SETTINGS)


def _adjusted(cell):
    found = outcome_adjustment(cell, "crime", LogitAdjustmentSettings(), seed=SEED)
    rows = np.ones(cell.records.height, bool)
    rows[found.train_rows] = False
    after = replace(
        cell, logits={"crime": SuiteLogits(cell.logits["crime"].suite, adjusted_outcomes(cell, "crime", found))}
    )
    return _effects(cell, after, "adjustment", rows)


@pytest.mark.parametrize(
    ("condition", "metric", "event", "attribute", "least"),
    [
        # Planted: .45 of Black and .10 of White faces are captioned with crime. Little is left of the ratio.
        ("projection", "max_skew", "crime", "race", 0.6),
        ("array", "max_skew", "crime", "race", 0.25),
        # Planted: women are captioned with negative agency half as often again as men. Lower with every seed tried.
        ("neutral", "parity_difference", "negative_agency", "gender", 0.03),
        # One factor for everyone lowers every rate, so the gap between the races with it.
        ("adjustment", "parity_difference", "crime", "race", 0.04),
        ("adjustment", "harm_rate", "crime", None, 0.05),
    ],
)
def test_what_was_planted_for_the_axis_falls(transfer, condition, metric, event, attribute, least):
    row = transfer.filter(
        pl.col("condition") == condition,
        pl.col("metric") == metric,
        pl.col("event") == event,
        pl.col("attribute").eq_missing(attribute),
        pl.col("definition").is_in(["mean_over_pairs", "max_minus_min", "top1"]),
    ).row(0, named=True)
    assert row["verdict"] == "improved", row
    assert row["value_before"] - row["value_after"] > least and row["ci_high"] < 0


def test_a_lower_ratio_that_is_paid_for_with_harm_is_not_hidden(transfer):
    """The projection takes race out of the demographic candidates too, so crime words win far more often."""
    harm = transfer.filter(condition="projection", metric="harm_rate", event="crime").row(0, named=True)
    assert harm["verdict"] == "worsened" and harm["value_after"] > 2 * harm["value_before"]
    cost = transfer.filter(condition="projection", metric="zero_shot_accuracy", definition="macro")
    assert cost["verdict"].to_list() == ["worsened"]
