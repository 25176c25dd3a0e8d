"""Bounds for the gap between groups: which two lie furthest apart was chosen by the data, and counts as chosen."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from plumbline.errors import MetricError
from plumbline.statistics.cluster_bootstrap import (
    GroupedValues,
    SetEstimate,
    estimated,
    grouped_values,
    resampled_means,
    undefined,
)
from plumbline.statistics.clusters import MAX_PERMUTED_LABELS, permute_labels
from plumbline.statistics.counts import shares
from plumbline.statistics.intervals import UNDEFINED_LIMIT, Interval
from plumbline.statistics.permutation import p_value
from plumbline.statistics.reasons import joined

NO_VARIATION = "no interval: the resamples do not vary"
ONE_SET_GROUP = "no interval: a group is in one set only"
_NONE = 1e-12


def max_min_ci(
    means: NDArray[np.float64], replicates: NDArray[np.float64], *, sets: int, confidence: float
) -> Interval:
    """Return bounds for the largest difference of several groups' true means.

    The largest difference of observed means is above that of the true ones, and that of resampled means above it again,
    so that no interval of replicates of the gap itself holds its level with many groups. Here the gap is bounded from
    what is known of every pair:

    - below by the largest lower end of simultaneous intervals of all pairs, d - c·se, where c is the quantile of the
      largest |t| among all pairs in the bootstrap of centred means (Tukey's studentised range for unequal errors; Efron
      & Tibshirani 1993, 16.4 for centring). Where all groups are alike it exceeds 0 with probability 1 - confidence at
      most, and where they are not it exceeds the gap with about half of it.
    - above by the largest d + t·se. The two groups that truly lie furthest apart are fixed; their own end exceeds the
      true gap with half the level, and the largest end is no smaller.

    Parameters
    ----------
    means : (g,) float
        Of at least two groups.
    replicates : (r, g) float
        Their bootstrap replicates, drawn together; nan where a draw lacks a group.
    sets : int
        In the group with the fewest, for the degrees of freedom.

    Returns
    -------
    Interval
        Holds the observed gap; from 0 up. Undefined with one set, or where no difference varies.
    """
    errors, reason = _errors(means, replicates, sets)
    if errors is None:
        return Interval(np.nan, np.nan, reason)
    largest_t, ends = np.zeros(len(errors)), []
    for group in range(len(means) - 1):
        apart = means[group + 1 :] - means[group]
        noise = errors[:, group + 1 :] - errors[:, [group]]
        error = noise.std(axis=0, ddof=1) * np.sqrt(sets / (sets - 1))
        # A difference of which no error can be seen, such as of two groups that never refuse, bounds nothing.
        seen = error > _NONE * max(1.0, float(np.abs(means).max()))
        if seen.any():
            largest_t = np.maximum(largest_t, (np.abs(noise[:, seen]) / error[seen]).max(axis=1))
            ends.append(np.stack([np.abs(apart[seen]), error[seen]]))
    if not ends:
        return Interval(np.nan, np.nan, NO_VARIATION)
    apart, error = np.concatenate(ends, axis=1)
    single, simultaneous = _factors(largest_t, sets, confidence)
    low = max(0.0, float((apart - simultaneous * error).max()))
    high = max(float(np.ptp(means)), float((apart + single * error).max()))
    return Interval(low, high, reason)


def deviation_ci(
    means: NDArray[np.float64], replicates: NDArray[np.float64], *, sets: int, confidence: float
) -> Interval:
    """Return bounds for the standard deviation (ddof 0) of several groups' true means; see `max_min_ci`.

    A standard deviation is a length, which errors cannot shorten or lengthen by more than their own: it is bounded
    below by the quantile of the standard deviation of the errors, and above by the error in the direction in which the
    groups err most.
    """
    errors, reason = _errors(means, replicates, sets)
    if errors is None:
        return Interval(np.nan, np.nan, reason)
    away = (errors - errors.mean(axis=1, keepdims=True)) * np.sqrt(sets / (sets - 1))
    worst = float(np.linalg.eigvalsh(np.cov(away.T))[-1])
    if worst <= (_NONE * max(1.0, float(np.abs(means).max()))) ** 2:
        return Interval(np.nan, np.nan, NO_VARIATION)
    single, simultaneous = _factors(away.std(axis=1), sets, confidence)
    value = float(means.std())
    return Interval(max(0.0, value - simultaneous), value + single * np.sqrt(worst / len(means)), reason)


def _errors(
    means: NDArray[np.float64], replicates: NDArray[np.float64], sets: int
) -> tuple[NDArray[np.float64] | None, str | None]:
    """Return the replicates less the means, without draws that lack a group, and what is to be said of them."""
    if sets < 2:
        return None, ONE_SET_GROUP
    known = np.asarray(np.isfinite(replicates).all(axis=1))
    missing = int((~known).sum())
    reason = f"undefined in {missing} of {len(known)} resamples" if missing else None
    if missing > UNDEFINED_LIMIT * len(known) or known.sum() < 2:
        return None, f"no interval: {reason or 'fewer than two resamples'}"
    return replicates[known] - means, reason


def _factors(largest: NDArray[np.float64], sets: int, confidence: float) -> tuple[float, float]:
    """Return t's quantile for one pair, and the bootstrap's for all, which is widened as t is against the normal."""
    tail = (1 + confidence) / 2
    single = float(stats.t.ppf(tail, sets - 1))
    return single, float(np.quantile(largest, confidence)) * single / float(stats.norm.ppf(tail))


# --- The gap between the means of groups, of values that come in sets.

NO_TWO_GROUPS = "undefined: fewer than two groups have values"
NOT_ABOVE_ZERO = "undefined: a group's mean is not above 0"
NO_DIFFERENCE = "interval reaches parity: no significant difference"
BIASED = "biased upwards: {:.2g} on average if groups did not differ"
_TELLING = 0.1
"""A bias is said where it is this part of the value, or more."""
_PARITY = {"difference": 0.0, "ratio": 1.0, "deviation": 0.0}
_AT_ONCE = 4_000_000


def group_gap(
    values: ArrayLike,
    groups: ArrayLike,
    sets: ArrayLike,
    *,
    n_groups: int,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
    kind: Literal["difference", "ratio", "deviation"] = "difference",
) -> SetEstimate:
    """Return the largest minus, or over, the smallest group mean, or their standard deviation, with interval and p.

    The value is that of the observed means, which is biased upwards: chance alone pulls the outermost groups apart,
    more so with many groups and few sets. The reason says what it would be on average without any difference, by
    centred resamples, where that is a tenth of it or more. The interval allows for it: see
    `plumbline.statistics.cluster_gaps`; a ratio's is that of the difference of logarithms. It reaches parity where
    the test does not reject, as in `plumbline.statistics.tables.estimate_table`.

    Parameters
    ----------
    values, groups, sets : (n,)
        As in `group_means`.
    permutations : int
        Group labels are shuffled within sets; where every set is of one group, over whole sets. All values of one
        group in one set keep together: they are the seeds of one image. For very many images there are fewer
        permutations (`plumbline.statistics.clusters.MAX_PERMUTED_LABELS`).
    kind : {"difference", "ratio", "deviation"}
        A ratio is nan where a group's mean is not above 0. The standard deviation is that of the means of the groups
        there are (ddof 0).

    Returns
    -------
    SetEstimate
        nan with fewer than two groups; n: all sets.

    Raises
    ------
    MetricError
        As `group_means`; or if there are no permutations.
    """
    if permutations < 1:
        raise MetricError("a gap is tested by at least one permutation", found=permutations)
    data = grouped_values(values, groups, sets, n_groups=n_groups, resamples=resamples)
    # A group that is not there has no mean, in the data as in every draw.
    present, n = data.sizes.sum(axis=0) > 0, len(data.sizes)
    means = shares(data.sums.sum(axis=0), data.sizes.sum(axis=0))[present]
    value = float(_gaps(means[None], kind)[0]) if len(means) > 1 else np.nan
    if np.isnan(value):
        return undefined(NOT_ABOVE_ZERO if len(means) > 1 else NO_TWO_GROUPS, n=n, p=np.nan)
    replicates = resampled_means(data, resamples, rng)[:, present]
    fewest = int((data.sizes > 0).sum(axis=0)[present].min())
    interval = _interval(means, replicates, kind, sets=fewest, confidence=confidence)
    p = p_value(value, _gaps(_dealt_means(data, permutations, rng)[:, present], kind))
    reason = joined(interval.reason, _bias(value, means, replicates, kind))
    told = Interval(interval.low, interval.high, reason)
    if p > 1 - confidence and not np.isnan(interval.low):
        told = Interval(_PARITY[kind], interval.high, joined(reason, NO_DIFFERENCE))
    return estimated(value, told, n=n, p=p)


def _interval(
    means: NDArray[np.float64], replicates: NDArray[np.float64], kind: str, *, sets: int, confidence: float
) -> Interval:
    if kind == "deviation":
        return deviation_ci(means, replicates, sets=sets, confidence=confidence)
    if kind == "difference":
        return max_min_ci(means, replicates, sets=sets, confidence=confidence)
    logarithms = np.log(replicates, out=np.full(replicates.shape, np.nan), where=replicates > 0)
    found = max_min_ci(np.log(means), logarithms, sets=sets, confidence=confidence)
    return Interval(float(np.exp(found.low)), float(np.exp(found.high)), found.reason)


def _bias(value: float, means: NDArray[np.float64], replicates: NDArray[np.float64], kind: str) -> str | None:
    """Say by how much a gap of several groups is too large where that is a good part of it.

    It is the mean gap of groups that differ by what draws differ from the data.
    """
    gaps = _gaps(replicates / means if kind == "ratio" else replicates - means, kind)
    if len(means) < 3 or not np.isfinite(gaps).any():
        return None
    by_chance, parity = float(gaps[np.isfinite(gaps)].mean()), _PARITY[kind]
    return BIASED.format(by_chance) if by_chance - parity >= _TELLING * (value - parity) > 0 else None


def _gaps(means: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Return the (b,) gaps of (b, g) means; nan where a group has none."""
    if kind == "deviation":
        return means.std(axis=1)
    low, high = means.min(axis=1), means.max(axis=1)
    if kind == "difference":
        return high - low
    return shares(high, low)


def _dealt_means(data: GroupedValues, permutations: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (r, g) means after shuffling labels; r is `permutations`, or fewer for very many images."""
    of_set, of_group = np.nonzero(data.sizes)
    sums, sizes = data.sums[of_set, of_group], data.sizes[of_set, of_group]
    n_groups = data.sizes.shape[1]
    draws = int(min(permutations, max(200, MAX_PERMUTED_LABELS // len(of_set))))
    step = max(1, _AT_ONCE // len(of_set))
    blocks = []
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        dealt = permute_labels(of_group, of_set, permutations=rows, rng=rng)
        cell = (dealt + n_groups * np.arange(rows)[:, None]).ravel()
        drawn = [
            np.bincount(cell, weights=np.tile(column, rows), minlength=rows * n_groups).reshape(rows, -1)
            for column in (sums, sizes)
        ]
        blocks.append(shares(drawn[0].astype(np.float64), drawn[1].astype(np.float64)))
    return np.concatenate(blocks)
