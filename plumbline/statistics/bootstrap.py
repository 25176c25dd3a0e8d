"""Bootstrap and jackknife of tables of counts, and bootstrap weights of any units.

A statistic that depends on the images only through a group × outcome table has the same bootstrap distribution whether
n_g images of group g are drawn with replacement or one multinomial(n_g, shares of g): the second costs the number of
cells instead of the number of images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.jackknife import Jackknife
from plumbline.statistics.sampling import Whole, binomial

_BLOCK = 2_000_000
"""Maximum number of weights in memory at a time: 16 MB, whatever the number of units and resamples."""


@dataclass(frozen=True)
class DrawSettings:
    """Seed, number of draws, and confidence level of a family of metrics.

    Attributes
    ----------
    seed : int
        From which every generator is derived, by name.
    resamples, permutations : int
        Bootstrap replicates, and permutations of a test.
    confidence : float
        Confidence level of the intervals.
    """

    seed: int = 20260801
    resamples: int = 10_000
    permutations: int = 10_000
    confidence: float = 0.95


TableStatistic = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""A function of (..., g, c) tables that gives (...) values."""


def resample_tables(table: ArrayLike, *, resamples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw bootstrap replicates of a group × outcome table, every group keeping its size.

    Parameters
    ----------
    table : (..., g, c) int
        Images by group and outcome; leading axes are tables that are resampled independently.
    resamples : int
        Replicates, at least 1.

    Returns
    -------
    (resamples, ..., g, c) int64
        An empty group stays empty.

    Raises
    ------
    MetricError
        If a count is negative or `resamples` is below 1.
    """
    counts = _checked(table, resamples)
    # Replicates run along the last axis in memory, so that later steps are vectorised over them.
    drawn = np.empty((*counts.shape, resamples), dtype=np.int64)
    for group in np.ndindex(counts.shape[:-1]):
        outcomes = counts[group].tolist()
        left: Whole = sum(outcomes)
        for outcome, count in enumerate(outcomes[:-1]):
            share = count / max(sum(outcomes[outcome:]), 1)
            drawn[*group, outcome] = binomial(left, share, draws=resamples, rng=rng)
            left = left - drawn[*group, outcome]
        drawn[*group, -1] = left
    return np.moveaxis(drawn, -1, 0)


def resample_sums(table: ArrayLike, *, resamples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw bootstrap replicates of each group's sum of scores; an image scores its outcome index.

    The sum of n draws from a few values has a distribution that a Fourier transform gives exactly: the n-th power of
    that of one draw. So a replicate is one inverse-CDF lookup instead of a multinomial draw.

    Parameters
    ----------
    table : (g, c) int
        Images by group and outcome.
    resamples : int
        Replicates, at least 1.

    Returns
    -------
    (resamples, g) int64
        Between 0 and (c - 1) times the images of the group.
    """
    from scipy.fft import irfft, next_fast_len, rfft

    counts = _checked(table, resamples)
    drawn = np.zeros((counts.shape[0], resamples), dtype=np.int64)
    for group, outcomes in enumerate(counts):
        n = int(outcomes.sum())
        if n == 0:
            continue
        length = n * (len(outcomes) - 1) + 1
        size = next_fast_len(length, real=True)
        mass = irfft(rfft(outcomes / n, size) ** n, size)[:length]
        # Rounding leaves about 1e-15 of mass on impossible sums: remove it.
        cdf = np.cumsum(np.where(mass > 1e-13, mass, 0.0))
        drawn[group] = np.searchsorted(cdf, rng.random(resamples) * cdf[-1], side="right")
    return drawn.T


def jackknife_tables(table: ArrayLike, statistic: TableStatistic) -> Jackknife:
    """Compute a statistic with one image left out, for every cell of one (g, c) table at once.

    Parameters
    ----------
    table : (g, c) int
    statistic : callable
        Takes (k, g, c) tables, gives (k,) values.
    """
    counts = _checked(table, 1)
    group, outcome = np.nonzero(counts)
    without = np.repeat(counts[None], len(group), axis=0)
    without[np.arange(len(group)), group, outcome] -= 1
    values = np.full(counts.shape, np.nan)
    values[group, outcome] = statistic(without)
    return Jackknife(values=values, counts=counts)


def _checked(table: ArrayLike, resamples: int) -> NDArray[np.int64]:
    counts = np.asarray(table, dtype=np.int64)
    if counts.ndim < 2 or (counts < 0).any():
        raise MetricError("a table of counts must be (..., g, c) and not negative", found=f"shape {counts.shape}")
    if resamples < 1:
        raise MetricError("resamples must be at least 1", found=resamples)
    return counts


def bootstrap_weights(
    rows: int, units: int, *, rng: np.random.Generator, index: type[np.signedinteger[Any]] = np.int32
) -> NDArray[np.int64]:
    """Return (rows, units) how often each unit is in a resample of as many units, drawn with replacement.

    Parameters
    ----------
    index : type
        Integer dtype of the draws; the same generator draws other numbers with another dtype.
    """
    drawn = rng.integers(0, units, size=(rows, units), dtype=index)
    cell = drawn + units * np.arange(rows)[:, None]  # of the width that `bincount` counts without a copy
    return np.bincount(cell.ravel(), minlength=rows * units).reshape(rows, units)


def random_bits(rows: int, units: int, *, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return (rows, units) zeros and ones, each with probability 1/2."""
    drawn = np.frombuffer(rng.bytes(-(-rows * units // 8)), dtype=np.uint8)
    return np.unpackbits(drawn, count=rows * units).reshape(rows, units)


def weight_blocks(
    units: int,
    *,
    resamples: int,
    rng: np.random.Generator,
    strata: NDArray[np.int64] | None = None,
    index: type[np.signedinteger[Any]] = np.int32,
    block: int | None = None,
    dtype: type[np.floating[Any]] = np.float64,
) -> Iterator[NDArray[Any]]:
    """Yield (b, units) bootstrap weights, `resamples` rows in all, in blocks of bounded memory.

    Parameters
    ----------
    units : int
        At least 1.
    strata : (units,) int, optional
        Units are drawn within their stratum, each of which keeps its size.
    index : type
        As in `bootstrap_weights`.
    block : int, optional
        Maximum number of weights in memory at a time; 16 MB by default.
    dtype : type
        Of the weights, which are whole numbers.
    """
    parts = None if strata is None else [np.flatnonzero(strata == s) for s in np.unique(strata)]
    for rows in _block_sizes(resamples, units, block):
        if parts is None:
            yield bootstrap_weights(rows, units, rng=rng, index=index).astype(dtype)
            continue
        weights = np.empty((rows, units), dtype)
        for part in parts:
            weights[:, part] = bootstrap_weights(rows, len(part), rng=rng, index=index)
        yield weights


def bit_blocks(
    units: int,
    *,
    draws: int,
    rng: np.random.Generator,
    block: int | None = None,
    dtype: type[np.floating[Any]] = np.float64,
) -> Iterator[NDArray[Any]]:
    """Yield (b, units) random bits, `draws` rows in all, in blocks of bounded memory."""
    for rows in _block_sizes(draws, units, block):
        yield random_bits(rows, units, rng=rng).astype(dtype)


def _block_sizes(rows: int, units: int, block: int | None) -> Iterator[int]:
    step = max(1, (block or _BLOCK) // units)
    yield from (min(step, rows - start) for start in range(0, rows, step))
