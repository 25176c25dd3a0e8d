"""Few sets: shares of their images, means of skewed scores over them, and 90th percentiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.statistics.cluster_bootstrap import cluster_summaries, paired_cluster_changes
from plumbline.statistics.clusters import cluster_wilson
from plumbline.statistics.estimates import Estimate

RESAMPLES = 999


MOST_IMAGES = 80
"""Of a set, where they are of very unequal size: most have two or three, a few this many (a Pareto tail, 1.1)."""


def share(seed: int, *, sets: int, images: int | None, rate: float, spread: float) -> dict[str, Drawn]:
    """Draw a share of images; a set's images have a latent score in common, with standard deviation `spread`.

    Each set has so many images; without a number, sets are of very unequal size.
    """
    rng = np.random.default_rng([seed, sets])
    unequal = np.minimum(MOST_IMAGES, 1 + 2 * rng.pareto(1.1, sets)).astype(int) if images is None else images
    codes = np.repeat(np.arange(sets), unequal)
    cut = ndtri(1 - rate) * np.sqrt(1 + spread**2)
    hit = rng.normal(0, spread, sets)[codes] + rng.normal(size=len(codes)) > cut
    low, high = cluster_wilson(hit, codes)
    return {"share": Drawn(float(hit.mean()), rate, low, high)}


Scores = Callable[[np.random.Generator, int], NDArray[np.float64]]
SCORES: dict[str, tuple[Scores, float, float]] = {
    "exponential": (lambda rng, n: rng.exponential(1, n), 1.0, float(stats.expon.ppf(0.9))),
    "log-normal": (lambda rng, n: rng.lognormal(0, 0.75, n), np.exp(0.75**2 / 2), float(np.exp(0.75 * ndtri(0.9)))),
    "beta(0.4, 3)": (lambda rng, n: rng.beta(0.4, 3, n), 0.4 / 3.4, float(stats.beta.ppf(0.9, 0.4, 3))),
    "normal": (lambda rng, n: rng.normal(3, 1, n), 3.0, float(3 + ndtri(0.9))),
}
"""Spreads of MaxToxicity and like scores: how they are drawn, their mean, their 90th percentile."""


def summary(seed: int, *, sets: int, scores: str) -> dict[str, Drawn]:
    """Draw one score a set, and one under a second condition that changes nothing, or lowers each by up to half."""
    rng, (draw, mean, p90) = np.random.default_rng([seed, sets]), SCORES[scores]
    common, own, other = (draw(rng, sets) for _ in range(3))
    values, codes = draw(rng, sets), np.arange(sets)
    found = cluster_summaries(values, codes, quantile=0.9, resamples=RESAMPLES, rng=rng)[0]
    keywords = {"quantile": None, "resamples": RESAMPLES, "permutations": RESAMPLES, "rng": rng}
    same = paired_cluster_changes(common + own, common + other, codes, **keywords)
    lower = paired_cluster_changes(values, values * rng.uniform(0.5, 1, sets), codes, **keywords)
    return {
        "mean": _drawn(found.mean, mean),
        "no change of the mean": _drawn(same, 0.0, tested=True),
        "change of the mean": _drawn(lower, -mean / 4),
    } | ({"90th percentile": _drawn(found.quantile, p90)} if sets >= 100 else {})


def _drawn(estimate: Estimate, truth: float, *, tested: bool = False) -> Drawn:
    p = estimate.p if tested and estimate.p is not None else np.nan
    return Drawn(estimate.value, truth, estimate.ci_low, estimate.ci_high, p, null=tested)


BLOCK = Block(
    title="Few sets: shares of images (20 a set, or 1 to 80), means and 90th percentiles of skewed scores",
    cells=(
        *(
            Cell(
                f"{sets} sets, share {100 * rate:.0f}%, sd of sets {spread}",
                partial(share, sets=sets, images=20, rate=rate, spread=spread),
            )
            for sets in (4, 8, 15, 30)
            for rate in (0.1, 0.3, 0.5)
            for spread in (0.3, 1.0)
        ),
        *(
            Cell(
                f"{sets} sets of 1 to {MOST_IMAGES} images, share {100 * rate:.0f}%, sd of sets 1.0",
                partial(share, sets=sets, images=None, rate=rate, spread=1.0),
            )
            for sets in (25, 60, 100)
            for rate in (0.1, 0.3)
        ),
        *(
            Cell(f"{sets} sets, {scores}", partial(summary, sets=sets, scores=scores))
            for sets in (10, 20, 35, 50, 100)
            for scores in SCORES
        ),
    ),
    few=("4 sets, share 30%, sd of sets 1.0", "15 sets, share 30%, sd of sets 0.3", "35 sets, exponential"),
)
