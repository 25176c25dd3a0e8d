"""The gap between the means of several groups, adjusted for selecting the extreme groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import joined, reason
from plumbline.statistics.cluster_bootstrap import ClusterSeries, group_series, of_clusters, undefined
from plumbline.statistics.cluster_permutation import ClusterPermutation, relabelling_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import shares
from plumbline.statistics.maxima import Scale, Spread, beyond_chance, bias_reason, deviation_ci, max_min_ci
from plumbline.statistics.permutation import p_value
from plumbline.statistics.power import Detectable, detectable_gap

_PARITY = {"difference": 0.0, "ratio": 1.0, "deviation": 0.0}


def group_gap(
    values: ArrayLike,
    groups: ArrayLike,
    clusters: ArrayLike,
    *,
    n_groups: int,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
    kind: Literal["difference", "ratio", "deviation"] = "difference",
) -> Estimate:
    """Return a gap between group means (difference, ratio or standard deviation, see `kind`) with interval and p.

    The observed gap is biased upwards: chance alone separates the extreme groups, more so with many groups and few
    clusters. `reason` reports a bias of more than a quarter of the interval. The interval allows for the selection, see
    `plumbline.statistics.maxima`; a ratio's is that of the difference of logarithms. It reaches parity exactly where
    the test does not reject.

    Parameters
    ----------
    values, groups, clusters : (n,)
        As in `group_means`.
    permutations : int
        Group labels are permuted within clusters, and over whole clusters of one group
        (`plumbline.statistics.cluster_permutation`). All values of one group in one cluster move together: they are the
        seeds of one image.
    kind : {"difference", "ratio", "deviation"}
        A ratio is nan where a group's mean is not above 0. The standard deviation (ddof 0) is over the groups
        with values.

    Returns
    -------
    Estimate
        nan with fewer than two groups; n: all clusters.

    Raises
    ------
    MetricError
        As `group_means`; or if there are no permutations.
    """
    if permutations < 1:
        raise MetricError("a gap is tested by at least one permutation", found=permutations)
    series = group_series(values, groups, clusters, n_groups=n_groups, resamples=resamples)
    # A group that is not there has no mean, in the data as in every draw.
    present, n = series.n > 0, len(series.sizes)
    means = series.means[present]
    value = float(_gaps(means[None], kind)[0]) if len(means) > 1 else np.nan
    if np.isnan(value):
        why = reason("mean_not_positive" if len(means) > 1 else "under_two_groups")
        return undefined(why, n=n, p=np.nan)
    weights = series.weights(resamples, rng)
    replicates = np.concatenate([series.resampled_means(block) for block in weights])[:, present]
    gap, bias = _estimate(means, replicates, kind, clusters=int(series.n[present].min()), confidence=confidence)
    permutation, permuted = _permuted_means(series, permutations, rng)
    permuted, parity = permuted[:, present], _PARITY[kind]
    chance = _gaps(permuted, kind)
    p, note = max(p_value(value, chance), permutation.least_gap_p), None
    few = relabelling_reason(permutation.least_gap_p, confidence)
    if p > 1 - confidence and not np.isnan(gap.ci_low):
        gap, note = replace(gap, ci_low=parity), reason("reaches_parity")
    elif gap.ci_low <= parity:
        scale: Scale = "relative" if kind == "ratio" else "difference"
        least = parity + beyond_chance(value - parity, chance - parity, scale=scale, confidence=confidence)
        gap = replace(gap, ci_low=max(parity, least))
    reasons = joined(few, gap.reason, bias_reason(gap, bias), note)
    apart, answers = int(permuted.std(axis=0).argmax()), _yes_or_no(values, groups)
    detectable = Detectable()
    if answers is None or min(answers.count(0.0), answers.count(1.0)) >= _FEWEST_ANSWERS:
        detectable = detectable_gap(
            permuted,
            lambda draws: _gaps(draws, kind),
            apart=apart,
            units=int(series.n[present][apart]),
            answers=None if answers is None else len(answers) // len(means),
            parity=parity,
            least_p=permutation.least_gap_p,
            mixing=permutation.mixing(n_groups)[np.ix_(present, present)],
        )
    return of_clusters(replace(gap, value=value, p=p, reason=reasons, detectable=detectable), n)


_FEWEST_ANSWERS = 5
"""Of yes, and of no: with fewer, nothing tells which share of yes in one group would be found."""


def _yes_or_no(values: ArrayLike, groups: ArrayLike) -> list[float] | None:
    """Return the answers of all groups, where every one is yes or no; else None."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known) & (np.asarray(groups) >= 0)]
    return known.tolist() if np.isin(known, (0.0, 1.0)).all() else None


def _estimate(
    means: NDArray[np.float64], replicates: NDArray[np.float64], kind: str, *, clusters: int, confidence: float
) -> Spread:
    if kind == "deviation":
        return deviation_ci(means, replicates, clusters=clusters, confidence=confidence)
    if kind == "difference":
        return max_min_ci(means, replicates, clusters=clusters, confidence=confidence)
    gap, bias = max_min_ci(means, replicates, clusters=clusters, confidence=confidence, scale="relative")
    return Spread(replace(gap, ci_low=1 + gap.ci_low, ci_high=1 + gap.ci_high), bias)


def _gaps(means: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Return the (b,) gaps of (b, g) means; nan where a group has none."""
    if kind == "deviation":
        return means.std(axis=1)
    low, high = means.min(axis=1), means.max(axis=1)
    return high - low if kind == "difference" else shares(high, low)


def _permuted_means(
    series: ClusterSeries, permutations: int, rng: np.random.Generator
) -> tuple[ClusterPermutation, NDArray[np.float64]]:
    """Return how labels are permuted and the (r, g) means then; r as in `ClusterPermutation.draws`.

    Whole blocks take their values with them, and groups change their sizes. Where one group has many values of each
    cluster and another few, few values would be compared with many: blocks are thinned out or repeated then.
    """
    codes = np.repeat(np.arange(len(series.values)), [len(values) for values in series.values])
    of_values = ClusterPermutation.of(codes, np.concatenate(series.clusters))
    n_groups = series.sizes.shape[1]
    if of_values.sizes_go_with_groups:
        values = np.concatenate(series.values)[:, None]
        thinned = of_values.sums(values, n_groups=n_groups, permutations=permutations, rng=rng)
        return of_values, shares(thinned[..., 0], series.sizes.sum(axis=0))
    cluster, group = np.nonzero(series.sizes)
    sums, sizes = series.sums[cluster, group], series.sizes[cluster, group]
    permutation, blocks = ClusterPermutation.of(group, cluster), []
    for drawn in permutation.draws(permutations, rng):
        rows = len(drawn.labels)
        cell = (drawn.labels + n_groups * np.arange(rows)[:, None]).ravel()
        totals, counts = (
            np.bincount(cell, weights=np.tile(column, rows), minlength=rows * n_groups).reshape(rows, -1)
            for column in (sums, sizes)
        )
        blocks.append(shares(totals, counts))
    return permutation, np.concatenate(blocks)
