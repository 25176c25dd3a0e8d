"""The change of a mean or quantile between two conditions of the same clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from plumbline.errors import MetricError
from plumbline.reasons import joined, reason
from plumbline.statistics.bootstrap import bit_blocks, weight_blocks
from plumbline.statistics.cluster_bootstrap import (
    ClusterSeries,
    WeightedQuantile,
    checked_values,
    of_clusters,
    undefined,
)
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import percentile
from plumbline.statistics.permutation import p_value

_SIDES: tuple[Literal["less", "greater"], ...] = ("less", "greater")


def paired_cluster_changes(
    before: ArrayLike,
    after: ArrayLike,
    clusters: ArrayLike,
    *,
    quantile: float | None,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> Estimate:
    """Return the change of a mean or quantile between two conditions of the same clusters.

    Parameters
    ----------
    before, after : (n,) float
        Pairs, such as one per set and seed.
    clusters : (n,) int
    quantile : float or None
        None: mean(after) - mean(before), with a bootstrap-t interval. Else quantile(after) - quantile(before), both
        linear and each over all pairs (not a quantile of the pairs' changes), with a percentile interval.
    permutations : int
        Of the test: each swaps before and after in a random half of the clusters (all values of a cluster together),
        which is exact under "the condition changes nothing".

    Returns
    -------
    Estimate
        Positive: higher after; n: clusters. p (two-sided) is the maximum of the permutation p and the p from inverting
        the interval: for a quantile the test alone may reject because something else has changed. Where it does not
        reject, the interval reaches 0.

    Raises
    ------
    MetricError
        As `plumbline.statistics.cluster_bootstrap.cluster_summaries`; or if there are no permutations.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (before, after)]
    if sides[0].shape != sides[1].shape or sides[0].ndim != 1 or permutations < 1:
        raise MetricError(
            "a paired change needs pairs, and a permutation",
            found=f"{sides[0].shape}, {sides[1].shape}, {permutations} permutations",
            expected="(n,), (n,), at least 1",
        )
    pairs, codes = checked_values(np.stack(sides, axis=1), clusters, resamples=resamples)
    if not codes.size:
        return undefined(p=np.nan)
    count = int(codes.max()) + 1
    weights = weight_blocks(count, resamples=resamples, rng=rng)
    bits = bit_blocks(count, draws=permutations, rng=rng)
    if quantile is None:
        changes = ClusterSeries.from_values((pairs[:, 1] - pairs[:, 0],), (codes,), count)
        drawn = [changes.resampled_errors(block) for block in weights]
        swapped = np.concatenate([(2 * block - 1) @ changes.sums[:, 0] for block in bits]) / len(pairs)
        estimate = changes.mean_estimates(drawn, confidence=confidence, null=0.0)[0]
        reaches_zero = estimate.p
    else:
        first, second = (
            WeightedQuantile.from_values(side, codes, n_units=count, quantile=quantile) for side in pairs.T
        )
        replicates = np.concatenate([second.at(block) - first.at(block) for block in weights])
        # Each side of a cluster is its own unit: a bit chooses which of the two counts as "before".
        pooled = WeightedQuantile.from_values(
            pairs.T.ravel(), np.concatenate([codes, codes + count]), n_units=2 * count, quantile=quantile
        )
        swapped = np.concatenate([pooled.at(np.hstack([b, 1 - b])) - pooled.at(np.hstack([1 - b, b])) for b in bits])
        value = float(np.quantile(pairs[:, 1], quantile) - np.quantile(pairs[:, 0], quantile))
        estimate = of_clusters(percentile(value, replicates, confidence=confidence), count, quantile=quantile)
        reaches_zero = min(1.0, 2 * min(p_value(0.0, replicates, alternative=side) for side in _SIDES))
    p = float(np.nanmax([p_value(abs(estimate.value), np.abs(swapped)), reaches_zero]))
    low, high = estimate.ci_low, estimate.ci_high
    if p > 1 - confidence and (low > 0 or high < 0):
        reaches = joined(estimate.reason, reason("reaches_no_change"))
        return replace(estimate, ci_low=min(low, 0.0), ci_high=max(high, 0.0), p=p, reason=reaches)
    return replace(estimate, p=p)
