"""The gap between the means of several groups, adjusted for selecting the extreme groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import Reason, Reasons, joined, reason
from plumbline.statistics.cluster_bootstrap import ClusterSeries, group_series, of_clusters, undefined
from plumbline.statistics.cluster_permutation import ClusterPermutation, relabelling_reason
from plumbline.statistics.counts import shares
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import MAX_UNDEFINED_SHARE
from plumbline.statistics.permutation import p_value

_ZERO = 1e-12
_NOTABLE = 0.1
"""`reason` reports a bias of at least this share of the value."""
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
    clusters. If the gap expected under no difference (estimated from centred resamples) is at least 10% of the value,
    `reason` reports it. The interval allows for the selection, see `max_min_ci`; a ratio's is that of
    the difference of logarithms. It reaches parity where the test does not reject, as in
    `plumbline.statistics.counts.estimate_table`.

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
    gap = _estimate(means, replicates, kind, clusters=int(series.n[present].min()), confidence=confidence)
    permutation = ClusterPermutation.of(*np.nonzero(series.sizes)[::-1])
    permuted = _permuted_means(series, permutation, permutations, rng)[:, present]
    p = max(p_value(value, _gaps(permuted, kind)), permutation.least_gap_p)
    few = relabelling_reason(permutation.least_gap_p, confidence)
    reasons = joined(few, gap.reason, _bias(value, means, replicates, kind))
    if p > 1 - confidence and not np.isnan(gap.ci_low):
        gap, reasons = replace(gap, ci_low=_PARITY[kind]), joined(reasons, reason("reaches_parity"))
    return of_clusters(replace(gap, value=value, p=p, reason=reasons), n)


def _estimate(
    means: NDArray[np.float64], replicates: NDArray[np.float64], kind: str, *, clusters: int, confidence: float
) -> Estimate:
    if kind == "deviation":
        return deviation_ci(means, replicates, clusters=clusters, confidence=confidence)
    if kind == "difference":
        return max_min_ci(means, replicates, clusters=clusters, confidence=confidence)
    logarithms = np.log(replicates, out=np.full(replicates.shape, np.nan), where=replicates > 0)
    gap = max_min_ci(np.log(means), logarithms, clusters=clusters, confidence=confidence)
    return replace(gap, ci_low=float(np.exp(gap.ci_low)), ci_high=float(np.exp(gap.ci_high)))


def _bias(value: float, means: NDArray[np.float64], replicates: NDArray[np.float64], kind: str) -> Reason | None:
    """Return the bias of the gap of several groups, which is the mean gap of centred resamples, if notable."""
    gaps = _gaps(replicates / means if kind == "ratio" else replicates - means, kind)
    if len(means) < 3 or not np.isfinite(gaps).any():
        return None
    mean, parity = float(gaps[np.isfinite(gaps)].mean()), _PARITY[kind]
    return reason("biased_upwards", bias=mean) if mean - parity >= _NOTABLE * (value - parity) > 0 else None


def _gaps(means: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Return the (b,) gaps of (b, g) means; nan where a group has none."""
    if kind == "deviation":
        return means.std(axis=1)
    low, high = means.min(axis=1), means.max(axis=1)
    return high - low if kind == "difference" else shares(high, low)


def _permuted_means(
    series: ClusterSeries, permutation: ClusterPermutation, permutations: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return (r, g) means after permuting labels; r as in `ClusterPermutation.draws`."""
    cluster, group = np.nonzero(series.sizes)
    sums, sizes = series.sums[cluster, group], series.sizes[cluster, group]
    n_groups = series.sizes.shape[1]
    blocks = []
    for drawn in permutation.draws(permutations, rng):
        rows = len(drawn.labels)
        cell = (drawn.labels + n_groups * np.arange(rows)[:, None]).ravel()
        totals, counts = (
            np.bincount(cell, weights=np.tile(column, rows), minlength=rows * n_groups).reshape(rows, -1)
            for column in (sums, sizes)
        )
        blocks.append(shares(totals, counts))
    return np.concatenate(blocks)


def max_min_ci(
    means: NDArray[np.float64], replicates: NDArray[np.float64], *, clusters: int, confidence: float
) -> Estimate:
    """Return the max-min gap of several groups' means with a confidence interval for that of the true means.

    The observed gap exceeds the true one on average, and a resampled gap exceeds the observed one, so that no bootstrap
    interval of the gap itself has nominal coverage with many groups. Here the gap is bounded from every pair of groups:

    - below by the largest lower end of simultaneous intervals of all pairs, d - c·se, where c is the quantile of the
      largest |t| among all pairs in the bootstrap of centred means (Tukey's studentised range for unequal errors; Efron
      & Tibshirani 1993, 16.4 for centring). If all groups are equal, the lower end exceeds 0 with probability at most
      1 - confidence; otherwise it exceeds the true gap with probability about (1 - confidence)/2.
    - above by the largest d + t·se. The two groups that truly lie furthest apart are fixed; their own upper end
      falls below the true gap with probability (1 - confidence)/2, and the largest end is no smaller.

    Parameters
    ----------
    means : (g,) float
        Of at least two groups.
    replicates : (r, g) float
        Their bootstrap replicates, drawn together; nan where a draw lacks a group.
    clusters : int
        In the group with the fewest, for the degrees of freedom.

    Returns
    -------
    Estimate
        The interval holds the observed gap; undefined with one cluster, or where no difference varies.
    """
    gap = Estimate(float(np.ptp(means)), np.nan, np.nan)
    errors, reasons = _errors(means, replicates, clusters)
    if errors is None:
        return replace(gap, reason=reasons)
    largest_t, ends = np.zeros(len(errors)), []
    for group in range(len(means) - 1):
        apart = means[group + 1 :] - means[group]
        noise = errors[:, group + 1 :] - errors[:, [group]]
        error = noise.std(axis=0, ddof=1) * np.sqrt(clusters / (clusters - 1))
        # A difference with no estimated error, such as between two groups that never refuse, gives no bound.
        seen = error > _ZERO * max(1.0, float(np.abs(means).max()))
        if seen.any():
            largest_t = np.maximum(largest_t, (np.abs(noise[:, seen]) / error[seen]).max(axis=1))
            ends.append(np.stack([np.abs(apart[seen]), error[seen]]))
    if not ends:
        return replace(gap, reason=(reason("constant_resamples"),))
    apart, error = np.concatenate(ends, axis=1)
    single, simultaneous = _factors(largest_t, clusters, confidence)
    low = max(0.0, float((apart - simultaneous * error).max()))
    high = max(gap.value, float((apart + single * error).max()))
    return replace(gap, ci_low=low, ci_high=high, reason=reasons)


def deviation_ci(
    means: NDArray[np.float64], replicates: NDArray[np.float64], *, clusters: int, confidence: float
) -> Estimate:
    """Return the standard deviation (ddof 0) of several groups' means with a confidence interval; see `max_min_ci`.

    By the triangle inequality, errors of the means change their standard deviation by at most the standard deviation of
    the errors. The lower end subtracts a quantile of that, from centred resamples; the upper end adds t times the error
    in the direction of largest error variance.
    """
    deviation = Estimate(float(means.std()), np.nan, np.nan)
    errors, reasons = _errors(means, replicates, clusters)
    if errors is None:
        return replace(deviation, reason=reasons)
    away = (errors - errors.mean(axis=1, keepdims=True)) * np.sqrt(clusters / (clusters - 1))
    largest = float(np.linalg.eigvalsh(np.cov(away.T))[-1])
    if largest <= (_ZERO * max(1.0, float(np.abs(means).max()))) ** 2:
        return replace(deviation, reason=(reason("constant_resamples"),))
    single, simultaneous = _factors(away.std(axis=1), clusters, confidence)
    low = max(0.0, deviation.value - simultaneous)
    high = float(deviation.value + single * np.sqrt(largest / len(means)))
    return replace(deviation, ci_low=low, ci_high=high, reason=reasons)


def _errors(
    means: NDArray[np.float64], replicates: NDArray[np.float64], clusters: int
) -> tuple[NDArray[np.float64] | None, Reasons]:
    """Return the replicates less the means, without draws that lack a group, and reasons; None: no interval."""
    if clusters < 2:
        return None, (reason("no_interval_group_in_one_cluster"),)
    known = np.asarray(np.isfinite(replicates).all(axis=1))
    missing = int((~known).sum())
    counts = {"undefined": missing, "resamples": len(known)}
    if missing > MAX_UNDEFINED_SHARE * len(known) or known.sum() < 2:
        return None, (reason("no_interval_undefined", **counts) if missing else reason("no_interval_few_resamples"),)
    return replicates[known] - means, joined(reason("undefined_resamples", **counts) if missing else None)


def _factors(largest: NDArray[np.float64], clusters: int, confidence: float) -> tuple[float, float]:
    """Return the t quantile for one pair, and the bootstrap quantile for all times t over normal quantile."""
    from scipy import stats

    tail = (1 + confidence) / 2
    single = float(stats.t.ppf(tail, clusters - 1))
    return single, float(np.quantile(largest, confidence)) * single / float(stats.norm.ppf(tail))
