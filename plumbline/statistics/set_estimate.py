"""A number of values that come in sets, with everything that a metric row says about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.bootstrap import Jackknife
from plumbline.statistics.clusters import FEW_SETS, few_sets
from plumbline.statistics.counts import shares
from plumbline.statistics.intervals import Interval
from plumbline.statistics.reasons import joined

NO_VALUES = "undefined: no values"
ONE_SET = "no interval: only one set"
FEW_BEYOND = 10
"""Sets beyond a quantile: fewer are said."""


@dataclass(frozen=True)
class SetEstimate:
    """A number of values that come in sets.

    Attributes
    ----------
    value, ci_low, ci_high : float
        nan where undefined.
    n : int
        Sets behind it.
    p : float or None
        None where nothing was tested, nan where it could not be.
    reason : str or None
        Why something is undefined, or what to know about the interval.
    """

    value: float
    ci_low: float
    ci_high: float
    n: int
    p: float | None
    reason: str | None

    def columns(self, *reasons: str | None) -> dict[str, object]:
        """Return the columns of a metric row; the given reasons come before its own."""
        return {
            "value": self.value,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "p": self.p,
            "n": self.n,
            "reason": joined(*reasons, self.reason),
        }


def estimated(
    value: float, interval: Interval, *, n: int, p: float | None = None, share: float | None = None
) -> SetEstimate:
    """Return an estimate from `n` sets that says what there is to know about its interval; `share` of a quantile."""
    few = few_sets(n) or _few_beyond(n, share)
    reasons = (
        [ONE_SET] if n == 1 else [None if np.isnan(interval.low) and n >= FEW_SETS else few, interval.reason]
    )
    return SetEstimate(value, interval.low, interval.high, n, p, joined(*reasons))


def _few_beyond(sets: int, share: float | None) -> str | None:
    """Say that few sets lie beyond a quantile: an end of its interval is then one of the outermost values."""
    beyond = FEW_BEYOND if share is None else sets * min(share, 1 - share)
    # 100 × (1 - 0.9) is a little less than 10.
    if beyond >= FEW_BEYOND - 1e-9:
        return None
    return f"interval of a quantile with only about {beyond:.0f} of {sets} sets beyond it"


def undefined(reason: str = NO_VALUES, *, n: int = 0, p: float | None = None) -> SetEstimate:
    """Return an estimate of which there is none."""
    return SetEstimate(float("nan"), float("nan"), float("nan"), n, p, reason)


def sums_and_sizes(
    values: NDArray[np.float64], own: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the (s,) sum and number of the values of each set, which `own` names for each of (n,) values."""
    return np.bincount(own, weights=values).astype(np.float64), np.bincount(own).astype(np.float64)


def set_acceleration(sums: NDArray[np.float64], sizes: NDArray[np.float64]) -> float:
    """Return BCa's acceleration of a mean from the (s,) sums and sizes of its sets, each left out once."""
    left = sizes.sum() - sizes
    values = shares(sums.sum() - sums, left)
    return Jackknife.of_units(values).acceleration


def checked_values(
    values: ArrayLike, sets: ArrayLike, *, resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return (n, k) values and the (n,) codes 0 .. sets - 1 of their sets.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, or there are no resamples.
    """
    columns, codes = np.asarray(values, dtype=np.float64), np.asarray(sets)
    if codes.ndim != 1 or columns.ndim not in (1, 2) or len(columns) != len(codes) or resamples < 1:
        raise MetricError(
            "values and sets must describe the same rows, and there must be resamples",
            found=f"values {columns.shape}, sets {codes.shape}, {resamples} resamples",
            expected="(n,) or (n, k), (n,), at least 1",
        )
    if np.isnan(columns).any():
        raise MetricError(
            "a value is nan",
            found=f"{int(np.isnan(columns).sum())} of {columns.size}",
            hint="leave out what is undefined, and say how many in the reason",
        )
    own = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return columns.reshape(len(codes), columns.shape[1] if columns.ndim == 2 else 1), own
