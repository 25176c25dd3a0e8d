"""The control: in its captions no event depends on a group. Is what the default audit finds of it true of it?"""

from io import BytesIO

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from plumbline.catalog.suites import load_suite
from plumbline.checkpoints.device import Placement
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.metrics import Cell, MetricSettings, SuiteLogits
from plumbline.metrics.registry import FAMILIES
from plumbline.world import faces
from plumbline.world.training import CHECKPOINTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

ASIAN = {"East Asian": "Asian", "Southeast Asian": "Asian"}
RACES = {"fairface": ASIAN, "utkface": ASIAN | {"Middle Eastern": "Others", "Latino_Hispanic": "Others"}}
CONTROL = {
    "utkface": (
        ("equal_opportunity_gap", "mean_over_classes", {"attribute": "race"}, 0.23),
        ("equal_opportunity_gap", "mean_over_classes", {"attribute": "gender_race"}, 0.37),
        ("equal_opportunity_gap", "mean_over_classes", {"attribute": "gender"}, 0.09),
        ("probe_rate_gap", "by_valence", {"attribute": "age_group", "event": "neutral"}, 0.16),
        ("probe_rate_gap", "by_valence", {"attribute": "age_group", "event": "positive"}, 0.14),
    ),
    "fairface": (
        ("sc_weat_effect", "two_sided", {"group": "man", "event": "agency_negative"}, -0.76),
        ("sc_weat_effect", "two_sided", {"group": "Black", "event": "belief_negative"}, 0.50),
        ("skew_at_k", "ranked", {"group": "man", "event": "agency_negative"}, -0.37),
        ("skew_at_k", "ranked", {"group": "White", "event": "communion_positive"}, -0.37),
        ("max_skew_at_k", "equal", {"attribute": "gender", "event": "competence"}, 0.27),
        ("max_skew_at_k", "equal", {"attribute": "race", "event": "competence"}, 0.58),
        ("markedness_gap", "mean_over_templates", {"attribute": "race"}, 47),
        ("markedness_gap", "mean_over_templates", {"attribute": "gender"}, 21),
    ),
}
"""By dataset: metric, definition, which row, and its value on 4,000 to 15,000 other faces."""


def control_rows(dataset: str) -> pl.DataFrame:
    """Return the rows of the control on faces that no audit sees."""
    rng = np.random.default_rng(44_002)
    attributes = faces.sample_attributes(3000 if dataset == "utkface" else 6000, rng)
    suites = [load_suite("trident", classes="utkface")]
    families = ("trident_metrics",)
    if dataset == "fairface":  # whom the social perception study keeps
        adult = pl.col("age_group").is_in(["young_adult", "middle_aged", "elderly"])
        attributes = attributes.filter(adult, pl.col("race").is_in(["White", "Black", *ASIAN]))
        suites, families = (
            [load_suite("perception"), load_suite("markedness")],
            ("association_metrics", "ranking_metrics"),
        )
    folder = CHECKPOINTS / "small-control-3k"
    checkpoint = checkpoint_files(folder.name, f"local-dir:{folder}", project=folder, fetched=folder)
    encoder, files = load_encoder(checkpoint, Placement()), [faces.as_jpeg(i) for i in faces.draw(attributes, rng)]
    pixels = torch.stack([encoder.prepare(Image.open(BytesIO(data))) for data in files])
    images = np.concatenate([encoder.embed_images(part) for part in pixels.split(256)])
    logits = {}
    for suite in suites:
        texts = encoder.embed_texts(suite.texts)
        dot = images @ texts.T
        lengths = np.linalg.norm(images, axis=1)[:, None] * np.linalg.norm(texts, axis=1)
        logits[suite.id] = SuiteLogits(suite, dot, dot / lengths)
    ids = pl.Series("image_id", [f"{i:08x}" for i in range(attributes.height)])
    records = attributes.select("gender", "age_group", pl.col("race").replace(RACES[dataset]), ids)
    cell = Cell("small-control-3k", dataset, records, logits=logits, keep={})
    settings = MetricSettings(seed=1, resamples=500, permutations=10_000)
    return pl.concat([FAMILIES[name].compute(cell, settings=settings) for name in families])


@pytest.mark.parametrize("dataset", list(CONTROL))
def test_what_the_default_audit_finds_of_the_control_is_true_of_it(dataset):
    rows = control_rows(dataset)
    for metric, definition, which, value in CONTROL[dataset]:
        found = rows.filter(statistic="estimate", metric=metric, definition=definition, **which).row(0, named=True)
        assert found["p"] < 1e-3, (metric, which)
        slack = (found["ci_high"] - found["ci_low"]) / 2
        assert found["ci_low"] - slack < value < found["ci_high"] + slack, (metric, which, found["value"])
