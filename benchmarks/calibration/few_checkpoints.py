"""The rank correlation of few checkpoints across two templates."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.metrics.robustness.rows import rank_agreement


def drawn(seed: int, *, checkpoints: int, correlation: float) -> dict[str, Drawn]:
    """Draw the values of checkpoints under two templates, of a joint normal distribution."""
    first, own = np.random.default_rng([seed, checkpoints]).normal(size=(2, checkpoints))
    second = correlation * first + np.sqrt(1 - correlation**2) * own
    found = rank_agreement(first, second)
    # Spearman's correlation of a joint normal distribution (Kruskal 1958).
    truth = 6 / np.pi * np.arcsin(correlation / 2)
    p = np.nan if found.p is None else found.p
    return {"rank correlation": Drawn(found.value, truth, found.ci_low, found.ci_high, p, null=correlation == 0)}


BLOCK = Block(
    title="Few checkpoints: their rank correlation across templates",
    cells=tuple(
        Cell(f"{checkpoints} checkpoints, correlation {correlation:g}",
             partial(drawn, checkpoints=checkpoints, correlation=correlation))
        for checkpoints in (4, 6, 10, 12, 20, 40)
        for correlation in (0.0, 0.5, 0.8, 0.95)
    ),
    worlds=1000,
    few=("12 checkpoints, correlation 0", "20 checkpoints, correlation 0.5"),
)  # fmt: skip
