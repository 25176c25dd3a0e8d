"""How sure a difference of two checkpoints on the same images is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from plumbline.metrics.families.rows import joined
from plumbline.statistics.intervals import Interval, bca
from plumbline.statistics.paired import bca_p_value
from plumbline.statistics.permutation import p_value


@dataclass(frozen=True)
class Effect:
    """A difference of two checkpoints with what a row says about it; the fields are columns."""

    value: float
    ci_low: float
    ci_high: float
    p: float
    reason: str | None
    value_first: float
    value_second: float


def paired_effect(
    first: float,
    second: float,
    *,
    resampled: NDArray[np.float64],
    swapped: NDArray[np.float64],
    acceleration: float,
    alike: tuple[float, float] | None,
    confidence: float = 0.95,
) -> Effect:
    """Say how sure a difference of two checkpoints is, see `factor_effects`.

    Parameters
    ----------
    first, second : float
        Both values, defined.
    resampled, swapped : (r,) float
        Their difference in paired resamples, and after swapping answers at random.
    acceleration : float
        Of the difference, from the jackknife.
    alike : (float, float) or None
        For a disparity the p of "the groups do not differ" for each checkpoint; None for what is no disparity.
    """
    value = first - second
    interval = bca(value, resampled, acceleration=acceleration, confidence=confidence)
    p = [
        p_value(abs(value), np.abs(swapped)),
        bca_p_value(value, resampled, acceleration=acceleration),
    ]
    if alike is not None:
        interval = _reaching_parity(interval, (first, second), alike, confidence)
        p.append(alike[0] if value > 0 else alike[1])
    return Effect(value, interval.low, interval.high, float(np.nanmax(p)), interval.reason, first, second)


def _reaching_parity(
    interval: Interval, values: tuple[float, float], alike: tuple[float, float], confidence: float
) -> Interval:
    """Widen an interval by the whole disparity of a checkpoint whose groups may be alike."""
    reached = [p > 1 - confidence for p in alike]
    if np.isnan(interval.low) or not any(reached):
        return interval
    names = [name for name, reaches in zip(("first", "second"), reached) if reaches]
    reason = (
        f"interval reaches to parity of the {' and the '.join(names)} checkpoint: its groups may be alike"
    )
    return Interval(
        interval.low - (values[0] if reached[0] else 0.0),
        interval.high + (values[1] if reached[1] else 0.0),
        joined(interval.reason, reason),
    )


def alike_p_value(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> float:
    """Return the p of Pearson's chi-squared test of "groups do not differ", the least over events times their number.

    Parameters
    ----------
    counts : (e, g) int
    totals : (g,) int
        Empty groups are left out.
    """
    seen = totals > 0
    x, n = counts[:, seen].astype(np.float64), totals[seen].astype(np.float64)
    rate = x.sum(axis=1, keepdims=True) / n.sum()
    varies = ((rate > 0) & (rate < 1))[:, 0]
    spread = np.where(varies[:, None], n * rate * (1 - rate), 1.0)
    statistic = np.where(varies, ((x - n * rate) ** 2 / spread).sum(axis=1), 0.0)
    return float(min(1.0, chdtrc(len(n) - 1, statistic).min() * len(x)))


def alike_p_value_of_sets(
    counts: NDArray[np.int64], totals: NDArray[np.int64], resampled: NDArray, resampled_totals: NDArray
) -> float:
    """Return the p of Wald's test of "groups do not differ" where images come in sets, else as `alike_p_value`.

    Parameters
    ----------
    counts, totals : (e, g), (g,) int
    resampled, resampled_totals : (e, g, r), (g, r)
        The same in draws of whole sets, whose spread says how far rates of groups lie apart by chance.
    """
    seen = (totals > 0) & (resampled_totals > 0).all(axis=1)
    if seen.sum() < 2:
        return 1.0
    rates = counts[:, seen] / totals[seen]
    drawn = resampled[:, seen].astype(np.float64) / resampled_totals[seen]
    found = [1.0]
    for rate, spread in zip(rates, drawn):
        gaps, covariance = rate[1:] - rate[0], np.atleast_2d(np.cov(spread[1:] - spread[0]))
        if covariance.any():
            statistic = float(gaps @ np.linalg.pinv(covariance, hermitian=True) @ gaps)
            found.append(float(chdtrc(len(gaps), statistic)) * len(rates))
    return min(found)
