"""The effect of a factor: the difference of one disparity between two checkpoints on the same images."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.metrics import MetricSettings
from plumbline.metrics.paired.comparisons import factor_effects, factor_pairs
from plumbline.metrics.predictions import EventPredictions, Predictions
from plumbline.statistics.groups import Groups

NAMES = ("man", "woman")
RATES = {
    "equal skews, equal rates": ((0.3, 0.2), (0.3, 0.2)),
    "equal skews, unequal rates": ((0.3, 0.2), (0.15, 0.1)),
    "one at parity": ((0.3, 0.2), (0.25, 0.25)),
    "both at parity": ((0.1, 0.1), (0.3, 0.3)),
    "both clear": ((0.4, 0.2), (0.3, 0.2)),
}
"""Rate of the event for men and women, of the first and the second checkpoint."""
ALIKE = 0.5
"""Share of the images on which both checkpoints go by the same chance."""


def drawn(seed: int, *, images: int, rates: tuple[tuple[float, float], tuple[float, float]]) -> dict[str, Drawn]:
    """Return the effect on Max Skew and on the parity difference."""
    rng = np.random.default_rng([seed, images])
    codes = np.repeat([0, 1], images // 2)
    shared, alike = rng.random(images), rng.random(images) < ALIKE
    hits = [np.where(alike, shared, rng.random(images)) < np.array(each)[codes] for each in rates]
    table = factor_effects(
        [_answers(hits, codes)],
        factor_pairs({"first": {"size": "small"}, "second": {"size": "large"}}),
        settings=MetricSettings(seed=seed, resamples=400, permutations=399),
    )
    skews, gaps = ([function(*each) for each in rates] for function in (_skew, _gap))
    return {
        "max_skew": _row(table, "max_skew", "mean_over_pairs", skews[0] - skews[1]),
        "parity_difference": _row(table, "parity_difference", "max_minus_min", gaps[0] - gaps[1]),
    }


def _skew(one: float, other: float) -> float:
    return max(one, other) / min(one, other) - 1


def _gap(one: float, other: float) -> float:
    return abs(one - other)


def _answers(hits: list[NDArray[np.bool_]], codes: NDArray[np.int64]) -> Predictions:
    every = np.ones(len(codes), dtype=bool)
    events = {
        model: {("crime", "crime"): EventPredictions("crime", "0", "crime", True, hit, every)}
        for model, hit in zip(("first", "second"), hits)
    }
    return Predictions("faces", {"crime": [Groups("gender", NAMES, codes)]}, None, events)


def _row(table: pl.DataFrame, metric: str, definition: str, truth: float) -> Drawn:
    row = table.filter(metric=metric, definition=definition, event="crime").row(0, named=True)
    value, low, high, p = (np.nan if row[name] is None else row[name] for name in ("value", "ci_low", "ci_high", "p"))
    return Drawn(value, truth, low, high, p, null=abs(truth) < 1e-12)


BLOCK = Block(
    title="Paired effects: one disparity of two checkpoints on the same images",
    cells=tuple(
        Cell(f"{images:,} images, {name}", partial(drawn, images=images, rates=rates))
        for images in (400, 2000)
        for name, rates in RATES.items()
    ),
    worlds=500,
    few=("400 images, equal skews, equal rates",),
)
