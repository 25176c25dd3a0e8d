"""The gap between the means of groups, of values that come in sets."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.counts import shares
from plumbline.statistics.intervals import Interval
from plumbline.statistics.permutation import p_value
from plumbline.statistics.reasons import joined
from plumbline.statistics.set_estimate import SetEstimate, estimated, undefined
from plumbline.statistics.set_gap_bounds import deviation_bounds, gap_bounds
from plumbline.statistics.set_groups import GroupedValues, drawn_means, grouped_values
from plumbline.statistics.set_sampling import MOST_DEALT, deal_groups

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
    `plumbline.statistics.set_gap_bounds`; a ratio's is that of the difference of logarithms. It reaches parity where
    the test does not reject, as in `plumbline.statistics.estimates.estimate_table`.

    Parameters
    ----------
    values, groups, sets : (n,)
        As in `group_means`.
    permutations : int
        Group labels are shuffled within sets; where every set is of one group, over whole sets. All values of one
        group in one set keep together: they are the seeds of one image. For very many images there are fewer
        permutations (`plumbline.statistics.set_sampling.MOST_DEALT`).
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
    replicates = drawn_means(data, resamples, rng)[:, present]
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
        return deviation_bounds(means, replicates, sets=sets, confidence=confidence)
    if kind == "difference":
        return gap_bounds(means, replicates, sets=sets, confidence=confidence)
    logarithms = np.log(replicates, out=np.full(replicates.shape, np.nan), where=replicates > 0)
    found = gap_bounds(np.log(means), logarithms, sets=sets, confidence=confidence)
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
    draws = int(min(permutations, max(200, MOST_DEALT // len(of_set))))
    step = max(1, _AT_ONCE // len(of_set))
    blocks = []
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        dealt = deal_groups(of_group, of_set, permutations=rows, rng=rng)
        cell = (dealt + n_groups * np.arange(rows)[:, None]).ravel()
        drawn = [
            np.bincount(cell, weights=np.tile(column, rows), minlength=rows * n_groups).reshape(rows, -1)
            for column in (sums, sizes)
        ]
        blocks.append(shares(drawn[0].astype(np.float64), drawn[1].astype(np.float64)))
    return np.concatenate(blocks)
