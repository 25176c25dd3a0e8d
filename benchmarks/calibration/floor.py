"""p below the smallest that draws can give, from a fitted tail, against exact p.

Of the worlds of a cell p is exactly uniform up to 20 times a threshold far below 1 / (1 + draws), so that of exact ones
5% lie below the threshold: more of the reported ones would be false evidence. The level of this block is that share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.statistics.partitions import subset_sums, variance_slope
from plumbline.statistics.permutation import upper_p_values

DRAWS = 10_000
THRESHOLD = 1e-5
"""p that the strongest of 5,000 tests needs for a q of 5%; 10,000 draws themselves give no less than 1e-4."""
TIMES = 20
IMAGES, SIZE = 20, 7
"""Of enumerated partitions: 77,520."""


@cache
def partitions() -> NDArray[np.float64]:
    """Return the studentised difference of means of skewed values, squared, of every partition, the largest first."""
    values = np.random.default_rng(3).gamma(4, size=(IMAGES, 1))
    z = (values - values.mean()) / values.std()
    sums, squares = (subset_sums(each, SIZE)[:, 0] for each in (z, z**2 - 1))
    studentised = sums / np.sqrt(1 + variance_slope(SIZE, IMAGES) * squares)
    return np.sort(studentised * np.abs(studentised))[::-1]


def enumerated(seed: int) -> dict[str, Drawn]:
    """Take one of the most extreme partitions for the data, and draw of all of them."""
    rng = np.random.default_rng(seed)
    every = partitions()
    threshold = 5 / len(every)
    observed = every[rng.integers(0, round(TIMES * threshold * len(every)))]
    return _reported(observed, rng.choice(every, DRAWS), threshold)


def known(seed: int, *, law: Callable[[], stats.rv_continuous], largest_of: int = 1) -> dict[str, Drawn]:
    """Take an extreme value of a known law for the data, and draw from the law."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0, TIMES * THRESHOLD)
    drawn = law().rvs(size=(DRAWS, largest_of), random_state=rng).max(axis=1)
    return _reported(law().isf(-np.expm1(np.log1p(-p) / largest_of)), drawn, THRESHOLD)


def _reported(observed: float, drawn: NDArray[np.float64], threshold: float) -> dict[str, Drawn]:
    p = upper_p_values([observed], drawn[None])[0]
    # The runner counts p at or below 5%.
    return {"p below the threshold": Drawn(p=0.0 if p <= threshold else 1.0, null=True)}


def _normal() -> stats.rv_continuous:
    return stats.norm()


def _square() -> stats.rv_continuous:
    return stats.chi2(1)


def _squares() -> stats.rv_continuous:
    return stats.chi2(6)


def _skewed() -> stats.rv_continuous:
    return stats.lognorm(0.3)


BLOCK = Block(
    title=f"p by the fitted tail: {DRAWS:,} draws, threshold {THRESHOLD:g}",
    cells=(
        Cell(f"studentised difference, all partitions of {IMAGES} images", enumerated),
        Cell("normal", partial(known, law=_normal)),
        Cell("squared normal, as of partitions", partial(known, law=_square)),
        Cell("largest of 7 normal", partial(known, law=_normal, largest_of=7)),
        Cell("chi-squared of 6 degrees", partial(known, law=_squares)),
        Cell("skewed: log-normal of 0.3", partial(known, law=_skewed)),
    ),
    worlds=2000,
    few=("normal",),
)
