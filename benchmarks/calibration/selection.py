"""The strongest of many: do the intervals of findings that were picked hold the truth?

The cases of a model with 56 effects and a standard error of 0.08: most of them null, or all small. Told is what a
report tells, the largest of each topic, and it is told with the interval that the report prints.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.statistics.multiplicity import fcr_confidence, q_values, widened_intervals

MODELS, EFFECTS, ERROR = 3, 56, 0.08
TOPICS = 7
"""Of 8 effects each: of a topic the strongest is told, over all models."""
Z = 1.959963984540054


def drawn(seed: int, *, nonzero: float, spread: float) -> dict[str, Drawn]:
    """Return how many intervals of what is told miss, and how many claims of evidence are wrong."""
    rng = np.random.default_rng(seed)
    shape = (MODELS, TOPICS, EFFECTS // TOPICS)
    truth = rng.normal(0, spread, shape) * (rng.random(shape) < nonzero)
    value = truth + rng.normal(0, ERROR, shape)
    p = _two_sided(value / ERROR)
    q = q_values(p.ravel()).reshape(shape)
    by_topic = np.swapaxes(np.abs(value), 0, 1).reshape(TOPICS, -1).argmax(axis=1)
    told = np.zeros((TOPICS, MODELS * EFFECTS // TOPICS), dtype=bool)
    told[np.arange(TOPICS), by_topic] = True
    chosen = np.swapaxes(told.reshape(TOPICS, MODELS, -1), 0, 1)
    low, high = widened_intervals(
        value[chosen], value[chosen] - Z * ERROR, value[chosen] + Z * ERROR,
        bounds=np.tile([-np.inf, np.inf], (TOPICS, 1)), wanted=fcr_confidence(TOPICS, value.size),
    )  # fmt: skip
    missed = (truth[chosen] < low) | (truth[chosen] > high)
    claimed = chosen & (q < 1 - 0.95)
    wrong = (truth[claimed] == 0).mean() if claimed.any() else 0.0
    return {"intervals told that miss": Drawn(wrong=float(missed.mean())), "wrong claims": Drawn(wrong=float(wrong))}


def _two_sided(z: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return 2 * ndtr(-np.abs(z))


BLOCK = Block(
    title=f"The strongest of many: {MODELS} models of {EFFECTS} effects, one of each of {TOPICS} topics told",
    cells=(
        Cell("30% nonzero, sd 0.2", partial(drawn, nonzero=0.3, spread=0.2)),
        Cell("30% nonzero, sd 0.1", partial(drawn, nonzero=0.3, spread=0.1)),
        Cell("all nonzero, sd 0.05", partial(drawn, nonzero=1.0, spread=0.05)),
        Cell("all null", partial(drawn, nonzero=0.0, spread=0.0)),
    ),
    few=("30% nonzero, sd 0.1",),
    level=0.05,
)
