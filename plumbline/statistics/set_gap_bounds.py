"""Bounds for the gap between groups: which two lie furthest apart was chosen by the data, and counts as chosen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from plumbline.statistics.intervals import UNDEFINED_LIMIT, Interval

NO_VARIATION = "no interval: the resamples do not vary"
ONE_SET_GROUP = "no interval: a group is in one set only"
_NONE = 1e-12


def gap_bounds(
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


def deviation_bounds(
    means: NDArray[np.float64], replicates: NDArray[np.float64], *, sets: int, confidence: float
) -> Interval:
    """Return bounds for the standard deviation (ddof 0) of several groups' true means; see `gap_bounds`.

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
