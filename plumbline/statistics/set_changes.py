"""The change of a mean or quantile between two conditions of the same sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.intervals import bca, bca_p_value, percentile
from plumbline.statistics.permutation import p_value
from plumbline.statistics.set_draws import WeightedQuantile, drawn_times, fair_coins
from plumbline.statistics.set_estimate import (
    NO_VALUES,
    SetEstimate,
    checked_values,
    estimated,
    set_acceleration,
    sums_and_sizes,
    undefined,
)


def paired_set_changes(
    before: ArrayLike,
    after: ArrayLike,
    sets: ArrayLike,
    *,
    share: float | None,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> SetEstimate:
    """Return the change of a mean or quantile between two conditions of the same sets.

    Parameters
    ----------
    before, after : (n,) float
        Pairs, such as one a set and seed.
    sets : (n,) int
    share : float or None
        None: mean(after) - mean(before), with a BCa interval. Else quantile(after) - quantile(before), both linear and
        each over all pairs (not a quantile of the pairs' changes), with a percentile interval.
    permutations : int
        Of the test: in each, before and after change places in a random half of the sets (all values of a set
        together), which is exact under "the condition changes nothing".

    Returns
    -------
    SetEstimate
        Positive: higher after. p, two-sided, is the larger of that test's and the level at which the interval just
        reaches 0: for a quantile the test alone may reject because something else than the quantile has changed.

    Raises
    ------
    MetricError
        As `plumbline.statistics.set_bootstrap.set_mean`; or if there are no permutations.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (before, after)]
    if sides[0].shape != sides[1].shape or sides[0].ndim != 1 or permutations < 1:
        raise MetricError(
            "a paired change needs pairs, and a permutation",
            found=f"{sides[0].shape}, {sides[1].shape}, {permutations} permutations",
            expected="(n,), (n,), at least 1",
        )
    pairs, own = checked_values(np.stack(sides, axis=1), sets, resamples=resamples)
    if not own.size:
        return undefined(NO_VALUES, p=np.nan)
    draws = {"resamples": resamples, "permutations": permutations, "rng": rng, "confidence": confidence}
    if share is None:
        return _mean_change(pairs[:, 1] - pairs[:, 0], own, **draws)  # type: ignore[arg-type]
    return _quantile_change(pairs, own, share=share, **draws)  # type: ignore[arg-type]


def _mean_change(
    changes: NDArray[np.float64],
    own: NDArray[np.int64],
    *,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float,
) -> SetEstimate:
    sums, sizes = sums_and_sizes(changes, own)
    draws = drawn_times(len(sizes), resamples=resamples, rng=rng)
    replicates = np.concatenate([(times @ sums) / (times @ sizes) for times in draws])
    signs = fair_coins(len(sizes), draws=permutations, rng=rng)
    flipped = np.concatenate([(2 * coins - 1) @ sums for coins in signs]) / len(changes)
    value, acceleration = float(changes.mean()), set_acceleration(sums, sizes)
    interval = bca(value, replicates, acceleration=acceleration, confidence=confidence)
    reached = bca_p_value(value, replicates, acceleration=acceleration)
    p = float(np.nanmax([p_value(abs(value), np.abs(flipped)), reached]))
    return estimated(value, interval, n=len(sizes), p=p)


def _quantile_change(
    pairs: NDArray[np.float64],
    own: NDArray[np.int64],
    *,
    share: float,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float,
) -> SetEstimate:
    count = int(own.max()) + 1
    before, after = (WeightedQuantile.of(side, own, n_units=count, share=share) for side in pairs.T)
    draws = drawn_times(count, resamples=resamples, rng=rng)
    replicates = np.concatenate([after.at(times) - before.at(times) for times in draws])
    # Each side of a set is a unit of its own: a coin says which of the two counts as "before".
    sides = np.concatenate([own, own + count])
    pooled = WeightedQuantile.of(pairs.T.ravel(), sides, n_units=2 * count, share=share)
    swapped = np.concatenate(
        [
            pooled.at(np.hstack([coins, 1 - coins])) - pooled.at(np.hstack([1 - coins, coins]))
            for coins in fair_coins(count, draws=permutations, rng=rng)
        ]
    )
    value = float(np.quantile(pairs[:, 1], share) - np.quantile(pairs[:, 0], share))
    p = max(p_value(abs(value), np.abs(swapped)), _percentile_p_value(replicates))
    return estimated(value, percentile(replicates, confidence=confidence), n=count, p=p, share=share)


def _percentile_p_value(replicates: NDArray[np.float64]) -> float:
    """Return the level at which the percentile interval just reaches 0."""
    beyond = min((replicates <= 1e-12).sum(), (replicates >= -1e-12).sum())
    return float(min(1.0, 2 * (1 + beyond) / (1 + len(replicates))))
