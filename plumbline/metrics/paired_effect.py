"""How sure a difference of two sides on the same images is: of two checkpoints, or of before and after a mitigation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from plumbline.statistics.intervals import Interval, bca, bca_p_value
from plumbline.statistics.permutation import p_value
from plumbline.statistics.reasons import joined


@dataclass(frozen=True)
class SideNames:
    """What reasons call the two sides of a pair.

    Attributes
    ----------
    first, second : str
    side : str
        What one of them is, as `the {} checkpoint`.
    both : str
        What joins the two names in it.
    """

    first: str
    second: str
    side: str
    both: str

    def called(self, chosen: tuple[bool, bool]) -> str:
        """Return what the chosen sides are called."""
        names = [name for name, is_chosen in zip((self.first, self.second), chosen) if is_chosen]
        return self.side.format(self.both.join(names))

    def undefined(self, first: float, second: float) -> str:
        """Say which of two values is undefined."""
        return f"undefined for {self.called((bool(np.isnan(first)), bool(np.isnan(second))))}"


CHECKPOINTS = SideNames("first", "second", "the {} checkpoint", " and the ")
MITIGATION = SideNames("after", "before", "the state {} the mitigation", " and ")


@dataclass(frozen=True)
class Effect:
    """A difference of two sides with what a row says about it; the fields are columns."""

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
    names: SideNames = CHECKPOINTS,
    confidence: float = 0.95,
) -> Effect:
    """Say how sure a difference of two sides is, see `factor_effects`.

    Parameters
    ----------
    first, second : float
        Both values, defined.
    resampled, swapped : (r,) float
        Their difference in paired resamples, and after swapping answers at random.
    acceleration : float
        Of the difference, from the jackknife.
    alike : (float, float) or None
        For a disparity the p of "the groups do not differ" for each side; None for what is no disparity.
    """
    value = first - second
    interval = bca(value, resampled, acceleration=acceleration, confidence=confidence)
    p = [
        p_value(abs(value), np.abs(swapped)),
        bca_p_value(value, resampled, acceleration=acceleration),
    ]
    if alike is not None:
        interval = _reaching_parity(interval, (first, second), alike, names, confidence)
        p.append(alike[0] if value > 0 else alike[1])
    return Effect(value, interval.low, interval.high, float(np.nanmax(p)), interval.reason, first, second)


def _reaching_parity(
    interval: Interval,
    values: tuple[float, float],
    alike: tuple[float, float],
    names: SideNames,
    confidence: float,
) -> Interval:
    """Widen an interval by the whole disparity of a side whose groups may be alike."""
    reached = (alike[0] > 1 - confidence, alike[1] > 1 - confidence)
    if np.isnan(interval.low) or not any(reached):
        return interval
    reason = f"interval reaches to parity of {names.called(reached)}: its groups may be alike"
    return Interval(
        interval.low - (values[0] if reached[0] else 0.0),
        interval.high + (values[1] if reached[1] else 0.0),
        joined(interval.reason, reason),
    )


def alike_p_value(
    counts: NDArray[np.int64], totals: NDArray[np.int64], *, variances: NDArray[np.float64] | None = None
) -> float:
    """Return the p of Pearson's chi-squared test of "groups do not differ", the least over events times their number.

    Parameters
    ----------
    counts : (e, g) int
        Of scores: their sums.
    totals : (g,) int
        Empty groups are left out.
    variances : (e,) float, optional
        Of scores: their variance over all images of the groups, in the place of rate · (1 - rate).
    """
    seen = totals > 0
    x, n = counts[:, seen].astype(np.float64), totals[seen].astype(np.float64)
    rate = x.sum(axis=1, keepdims=True) / n.sum()
    if variances is None:
        varies, spread = ((rate > 0) & (rate < 1))[:, 0], n * rate * (1 - rate)
    else:
        varies, spread = variances > 0, n * variances[:, None]
    spread = np.where(varies[:, None], spread, 1.0)
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
