"""Means and quantiles of each group, and the gap between groups, of values that come in sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.bootstrap import Jackknife
from plumbline.statistics.estimates import reaching_parity
from plumbline.statistics.intervals import bca, percentile
from plumbline.statistics.permutation import p_value
from plumbline.statistics.set_draws import WeightedQuantile, drawn_times
from plumbline.statistics.set_estimate import NO_VALUES, SetEstimate, checked_values, estimated, undefined
from plumbline.statistics.set_sampling import MOST_DEALT, deal_groups

NO_TWO_GROUPS = "undefined: fewer than two groups have values"
NOT_ABOVE_ZERO = "undefined: a group's mean is not above 0"
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class _Grouped:
    """Values of groups, by set.

    Attributes
    ----------
    values : (n,) float64
    groups, sets : (n,) int64
        Of values in a group; sets are 0 .. s - 1.
    sums, sizes : (s, g) float64
    strata : (s,) int64 or None
        Group of each set where every set is of one group: sets are then drawn within groups. None where some set holds
        several.
    """

    values: NDArray[np.float64]
    groups: NDArray[np.int64]
    sets: NDArray[np.int64]
    sums: NDArray[np.float64]
    sizes: NDArray[np.float64]

    @property
    def strata(self) -> NDArray[np.int64] | None:
        held = self.sizes > 0
        return held.argmax(axis=1) if (held.sum(axis=1) == 1).all() else None

    def draws(self, resamples: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
        return drawn_times(len(self.sizes), resamples=resamples, rng=rng, strata=self.strata)

    def jackknife(self, left_out: NDArray[np.float64]) -> Jackknife:
        """Return the jackknife of (s,) values without each set, in the strata that are drawn from."""
        if self.strata is None:
            return Jackknife(values=left_out[None], counts=np.ones((1, len(left_out)), dtype=np.int64))
        counts = np.zeros((self.sizes.shape[1], len(left_out)), dtype=np.int64)
        counts[self.strata, np.arange(len(left_out))] = 1
        return Jackknife(values=np.where(counts > 0, left_out, np.nan), counts=counts)


def group_means(
    values: ArrayLike,
    groups: ArrayLike,
    sets: ArrayLike,
    *,
    n_groups: int,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> list[SetEstimate]:
    """Return each group's mean with its BCa interval by whole sets.

    Parameters
    ----------
    values : (n,) float
    groups : (n,) int
        0 .. n_groups - 1; -1 is in no group and does not count.
    sets : (n,) int
        Any codes. Where every set is of one group, sets are drawn within groups, else from all.

    Returns
    -------
    list of SetEstimate
        One a group; n: sets that hold it.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, a group is out of range, or there are no resamples.
    """
    data = _grouped(values, groups, sets, n_groups=n_groups, resamples=resamples)
    if not data.values.size:
        return [undefined(NO_VALUES) for _ in range(n_groups)]
    replicates = _drawn_means(data, resamples, rng)
    left_out = _means(data.sums.sum(axis=0) - data.sums, data.sizes.sum(axis=0) - data.sizes)
    means = _means(data.sums.sum(axis=0), data.sizes.sum(axis=0))
    found = []
    for group, mean in enumerate(means):
        holding = data.sizes[:, group] > 0
        if not holding.any():
            found.append(undefined(NO_VALUES))
            continue
        # Sets without the group take no part in its mean.
        own = left_out[holding, group][None]
        acceleration = Jackknife(values=own, counts=np.ones(own.shape, dtype=np.int64)).acceleration
        interval = bca(float(mean), replicates[:, group], acceleration=acceleration, confidence=confidence)
        found.append(estimated(float(mean), interval, n=int(holding.sum())))
    return found


def group_quantiles(
    values: ArrayLike,
    groups: ArrayLike,
    sets: ArrayLike,
    *,
    share: float,
    n_groups: int,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> list[SetEstimate]:
    """Return each group's linear quantile with its percentile interval by whole sets; see `group_means`."""
    data = _grouped(values, groups, sets, n_groups=n_groups, resamples=resamples)
    members = [np.flatnonzero(data.groups == group) for group in range(n_groups)]
    present = [group for group in range(n_groups) if members[group].size]
    in_order = [
        WeightedQuantile.of(
            data.values[members[g]], data.sets[members[g]], n_units=len(data.sizes), share=share
        )
        for g in present
    ]
    # Whole numbers far below 2^24: one conversion for all groups.
    draws = (times.astype(np.float32) for times in (data.draws(resamples, rng) if present else ()))
    blocks = [np.stack([column.at(times) for column in in_order], axis=1) for times in draws]
    found = [undefined(NO_VALUES) for _ in range(n_groups)]
    for place, group in enumerate(present):
        interval = percentile(np.concatenate([block[:, place] for block in blocks]), confidence=confidence)
        value = float(np.quantile(data.values[members[group]], share))
        found[group] = estimated(value, interval, n=int((data.sizes[:, group] > 0).sum()))
    return found


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

    The interval is BCa, the test one by permutation.

    As in `plumbline.statistics.estimates.estimate_table`, the interval reaches parity (0, or 1 for a ratio) where the
    test does not reject "no difference between groups".

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
    data = _grouped(values, groups, sets, n_groups=n_groups, resamples=resamples)
    # A group that is not there has no mean, in the data as in every draw.
    present = data.sizes.sum(axis=0) > 0
    if present.sum() < 2:
        return undefined(NO_TWO_GROUPS, n=len(data.sizes), p=np.nan)
    value = float(_gaps(_means(data.sums.sum(axis=0), data.sizes.sum(axis=0))[present][None], kind)[0])
    if np.isnan(value):
        return undefined(NOT_ABOVE_ZERO, n=len(data.sizes), p=np.nan)
    replicates = _gaps(_drawn_means(data, resamples, rng)[:, present], kind)
    left_out = _means(data.sums.sum(axis=0) - data.sums, data.sizes.sum(axis=0) - data.sizes)
    acceleration = data.jackknife(_gaps(left_out[:, present], kind)).acceleration
    interval = bca(value, replicates, acceleration=acceleration, confidence=confidence)
    p = p_value(value, _gaps(_dealt_means(data, permutations, rng)[:, present], kind))
    if p > 1 - confidence:
        parity = 1.0 if kind == "ratio" else 0.0
        interval = reaching_parity(parity, interval, percentile(replicates, confidence=confidence))
    return estimated(value, interval, n=len(data.sizes), p=p)


def _gaps(means: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Return the (b,) gaps of (b, g) means; nan where a group has none."""
    if kind == "deviation":
        return means.std(axis=1)
    low, high = means.min(axis=1), means.max(axis=1)
    if kind == "difference":
        return high - low
    return np.divide(high, low, out=np.full(len(low), np.nan), where=low > 0)


def _means(sums: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(sums, sizes, out=np.full(np.shape(sums), np.nan), where=sizes > 0)


def _drawn_means(data: _Grouped, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (resamples, g) means in draws of whole sets."""
    return np.concatenate(
        [_means(times @ data.sums, times @ data.sizes) for times in data.draws(resamples, rng)]
    )


def _dealt_means(data: _Grouped, permutations: int, rng: np.random.Generator) -> NDArray[np.float64]:
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
        blocks.append(_means(drawn[0].astype(np.float64), drawn[1].astype(np.float64)))
    return np.concatenate(blocks)


def _grouped(
    values: ArrayLike, groups: ArrayLike, sets: ArrayLike, *, n_groups: int, resamples: int
) -> _Grouped:
    columns, _ = checked_values(values, sets, resamples=resamples)
    codes = np.asarray(groups)
    if codes.shape != (len(columns),) or (codes.size and not -1 <= codes.min() <= codes.max() < n_groups):
        raise MetricError(
            "every value must have a group, or -1",
            found=f"{codes.shape} for {len(columns)} values, of {n_groups} groups",
            expected="(n,) codes from -1 to n_groups - 1",
        )
    used = codes >= 0
    kept, own = columns[used, 0], np.unique(np.asarray(sets)[used], return_inverse=True)[1].reshape(-1)
    codes = codes[used].astype(np.int64)
    count = int(own.max(initial=-1)) + 1
    cell, shape = own * n_groups + codes, (count, n_groups)
    sums = np.bincount(cell, weights=kept, minlength=count * n_groups).reshape(shape)
    sizes = np.bincount(cell, minlength=count * n_groups).reshape(shape)
    return _Grouped(kept, codes, own, sums.astype(np.float64), sizes.astype(np.float64))
