"""Small cells with random logits."""

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.metrics import Cell, MetricSettings, SuiteLogits

OUTCOME_SUITES = ("crime", "crime_pooled", "communion", "agency")


def random_cell(n=420, seed=0, suites=(*OUTCOME_SUITES, "trident", "trident_composite"), keep=None):
    """Draw a cell whose race changes how it answers, with some missing labels."""
    rng = np.random.default_rng(seed)
    races = load_suite("trident", classes="fairface").class_labels
    race = rng.integers(0, len(races), n)
    records = pl.DataFrame(
        {
            "image_id": [f"{i:06x}" for i in range(n)],
            "gender": [None if i % 29 == 0 else ("man", "woman")[i % 2] for i in range(n)],
            "race": [None if i % 31 == 0 else races[r] for i, r in enumerate(race)],
            "age_group": [None] * n,
            "auto_gender": [("man", "woman")[(i // 3) % 2] for i in range(n)],
            "auto_gender_margin": rng.random(n),
        },
        schema_overrides={"age_group": pl.String},
    )
    images = rng.normal(size=(n, 16)).astype(np.float32)
    images[:, 0] += race * 0.4
    logits = {}
    for name in suites:
        suite = load_suite(name, classes="fairface" if name.startswith("trident") else None)
        texts = rng.normal(size=(len(suite.candidates), 16)).astype(np.float32)
        logits[name] = SuiteLogits(
            suite=suite,
            logits=images @ texts.T,
            cosine=(images / np.linalg.norm(images, axis=1, keepdims=True))
            @ (texts / np.linalg.norm(texts, axis=1, keepdims=True)).T,
            logit_scale=100.0,
        )
    return Cell(model="encoder", dataset="faces", records=records, logits=logits, keep=keep or {})


@pytest.fixture(scope="session")
def make_cell():
    """Return the maker of cells."""
    return random_cell


@pytest.fixture(scope="session")
def cell():
    """Return one cell with every suite."""
    return random_cell()


@pytest.fixture(scope="session")
def quick():
    """Return settings with few draws."""
    return MetricSettings(seed=5, resamples=200, permutations=200, min_group=10)
