"""A cell whose Trident probes win too often, with missing labels and rows that a filter drops."""

import numpy as np
import polars as pl

from plumbline.catalog.suites import load_suite
from plumbline.metrics import Cell, SuiteLogits

SUITE = load_suite("trident", classes="fairface")
COMPOSITE = load_suite("trident_composite", classes="fairface")


def make_cell(n=500):
    """Draw n faces of seven races, and logits in which the later probes win the more often."""
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
    pairs = rng.normal(20, 1, (n, len(COMPOSITE.candidates))).astype(np.float32)
    pairs[np.arange(n), 2 * race + (records["auto_gender"] == "woman").to_numpy()] += 1.0
    pairs[:, 14:] += np.linspace(0, 2.5, 15, dtype=np.float32)
    logits = {"trident": SuiteLogits(SUITE, dot), "trident_composite": SuiteLogits(COMPOSITE, pairs)}
    keep = {"trident": np.arange(n) % 10 != 3, "trident_composite": np.arange(n) % 10 != 4}
    return Cell(model="encoder", dataset="faces", records=records, logits=logits, keep=keep)
