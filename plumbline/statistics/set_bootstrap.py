"""Means, quantiles, changes and gaps of numbers that come in sets, with intervals and tests by whole sets.

The images of a counterfactual set show one scene with the person changed, and the three seeds of an image one image:
none of them are independent. What is drawn, left out and swapped is therefore always a whole set. An image without a
set is a set of its own: give it a code of its own, as `plumbline.statistics.clusters.cluster_codes` does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from plumbline.statistics.intervals import bca, percentile
from plumbline.statistics.set_draws import WeightedQuantile, drawn_times
from plumbline.statistics.set_estimate import (
    NO_VALUES,
    SetEstimate,
    checked_values,
    estimated,
    set_acceleration,
    sums_and_sizes,
    undefined,
)


class SetSummary(NamedTuple):
    """The mean and a quantile of the same values."""

    mean: SetEstimate
    quantile: SetEstimate


def set_mean(
    values: ArrayLike, sets: ArrayLike, *, resamples: int, rng: np.random.Generator, confidence: float = 0.95
) -> SetEstimate:
    """Return the mean of values with its BCa interval by whole sets.

    Parameters
    ----------
    values : (n,) float
        Such as one a set and seed. Sets with more values weigh more, in the mean and in every resample.
    sets : (n,) int
        Any codes.
    resamples : int
        Replicates, at least 1.

    Returns
    -------
    SetEstimate
        nan without values; no interval with one set, or where no value differs.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, or there are no resamples.
    """
    columns, own = checked_values(values, sets, resamples=resamples)
    if not own.size:
        return undefined(NO_VALUES)
    sums, sizes = sums_and_sizes(columns[:, 0], own)
    draws = drawn_times(len(sizes), resamples=resamples, rng=rng)
    replicates = np.concatenate([(times @ sums) / (times @ sizes) for times in draws])
    mean = float(columns[:, 0].mean())
    interval = bca(mean, replicates, acceleration=set_acceleration(sums, sizes), confidence=confidence)
    return estimated(mean, interval, n=len(sizes))


def set_quantile(
    values: ArrayLike,
    sets: ArrayLike,
    *,
    share: float,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> SetEstimate:
    """Return a linear quantile of values with its percentile interval by whole sets; see `set_mean`.

    BCa's acceleration comes from the jackknife, which is inconsistent for quantiles (Efron 1982, 3.4); the percentile
    interval holds its level for them.

    Parameters
    ----------
    share : float
        In [0, 1]: 0.9 is the 90th percentile.
    """
    found = set_summaries(values, sets, share=share, resamples=resamples, rng=rng, confidence=confidence)
    return found[0].quantile


def set_summaries(
    values: ArrayLike,
    sets: ArrayLike,
    *,
    share: float,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> list[SetSummary]:
    """Return the mean and a quantile of several columns of the same sets, in the same draws; see `set_mean`.

    Drawing costs more than the statistics do, so what belongs to the same sets is best asked for at once.

    Parameters
    ----------
    values : (n,) or (n, k) float

    Returns
    -------
    list of SetSummary
        One a column.
    """
    columns, own = checked_values(values, sets, resamples=resamples)
    if not own.size:
        return [SetSummary(undefined(NO_VALUES), undefined(NO_VALUES)) for _ in columns.T]
    sizes = np.bincount(own).astype(np.float64)
    sums = np.stack([np.bincount(own, weights=column) for column in columns.T], axis=1)
    in_order = [WeightedQuantile.of(column, own, n_units=len(sizes), share=share) for column in columns.T]
    means, quantiles = [], []
    for times in drawn_times(len(sizes), resamples=resamples, rng=rng):
        means.append((times @ sums) / (times @ sizes)[:, None])
        quantiles.append(np.stack([column.at(times) for column in in_order], axis=1))
    found = []
    drawn = zip(columns.T, np.concatenate(means).T, np.concatenate(quantiles).T, sums.T)
    for column, of_mean, of_quantile, sums_of in drawn:
        mean, n = float(column.mean()), len(sizes)
        interval = bca(mean, of_mean, acceleration=set_acceleration(sums_of, sizes), confidence=confidence)
        spread = percentile(of_quantile, confidence=confidence)
        quantile = float(np.quantile(column, share))
        found.append(
            SetSummary(estimated(mean, interval, n=n), estimated(quantile, spread, n=n, share=share))
        )
    return found
