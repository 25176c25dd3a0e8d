"""Means and quantiles of each group of values that come in sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.bootstrap import Jackknife
from plumbline.statistics.counts import shares
from plumbline.statistics.intervals import bca, percentile
from plumbline.statistics.set_draws import WeightedQuantile, drawn_times
from plumbline.statistics.set_estimate import NO_VALUES, SetEstimate, checked_values, estimated, undefined


@dataclass(frozen=True)
class GroupedValues:
    """Values of groups, by set.

    Attributes
    ----------
    values : (n,) float64
    groups, sets : (n,) int64
        Of values in a group; sets are 0 .. s - 1.
    sums, sizes : (s, g) float64
    """

    values: NDArray[np.float64]
    groups: NDArray[np.int64]
    sets: NDArray[np.int64]
    sums: NDArray[np.float64]
    sizes: NDArray[np.float64]

    @property
    def strata(self) -> NDArray[np.int64] | None:
        """Return the (s,) group of each set where every set is of one, within which sets are drawn; else None."""
        held = self.sizes > 0
        return held.argmax(axis=1) if (held.sum(axis=1) == 1).all() else None

    def draws(self, resamples: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
        """Yield how often each set is drawn, in blocks."""
        return drawn_times(len(self.sizes), resamples=resamples, rng=rng, strata=self.strata)


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
    data = grouped_values(values, groups, sets, n_groups=n_groups, resamples=resamples)
    if not data.values.size:
        return [undefined(NO_VALUES) for _ in range(n_groups)]
    replicates = drawn_means(data, resamples, rng)
    left_out = shares(data.sums.sum(axis=0) - data.sums, data.sizes.sum(axis=0) - data.sizes)
    means = shares(data.sums.sum(axis=0), data.sizes.sum(axis=0))
    found = []
    for group, mean in enumerate(means):
        holding = data.sizes[:, group] > 0
        if not holding.any():
            found.append(undefined(NO_VALUES))
            continue
        # Sets without the group take no part in its mean.
        acceleration = Jackknife.of_units(left_out[holding, group]).acceleration
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
    data = grouped_values(values, groups, sets, n_groups=n_groups, resamples=resamples)
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
        found[group] = estimated(value, interval, n=int((data.sizes[:, group] > 0).sum()), share=share)
    return found


def drawn_means(data: GroupedValues, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (resamples, g) means in draws of whole sets."""
    return np.concatenate(
        [shares(times @ data.sums, times @ data.sizes) for times in data.draws(resamples, rng)]
    )


def grouped_values(
    values: ArrayLike, groups: ArrayLike, sets: ArrayLike, *, n_groups: int, resamples: int
) -> GroupedValues:
    """Check values, groups and sets, and add up each group's values in each set; see `group_means`."""
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
    return GroupedValues(kept, codes, own, sums.astype(np.float64), sizes.astype(np.float64))
