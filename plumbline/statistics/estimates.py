"""An estimate, or an array of them, with interval, p-value, n and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.reasons import Reason, Reasons, joined
from plumbline.statistics.power import COLUMNS, Detectable


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval.

    Attributes
    ----------
    value, ci_low, ci_high : float
        nan where undefined.
    n : int or None
        Number of units (images, clusters or words); None where the caller fills it in.
    p : float or None
        None where nothing was tested, nan where it could not be.
    reason : tuple of Reason
        Why something is undefined, or what to know about the interval.
    detectable : Detectable or None
        What the test of p can find; None where that is not computed.
    """

    value: float
    ci_low: float
    ci_high: float
    n: int | None = None
    p: float | None = None
    reason: Reasons = ()
    detectable: Detectable | None = None

    def columns(self, *reasons: Reason | Reasons | None) -> dict[str, Any]:
        """Return the columns of a metric row; the given reasons come before its own."""
        return {
            "value": self.value,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "p": self.p,
            "n": self.n,
            "reason": joined(*reasons, self.reason),
            **(dict(zip(COLUMNS, self.detectable)) if self.detectable else {}),
        }


@dataclass(frozen=True)
class EstimateArray:
    """Many values with their confidence intervals, in arrays of one shape.

    Attributes
    ----------
    value, ci_low, ci_high : (...) float64
        nan where undefined.
    n : (...) int64 or None
    p : (...) float64 or None
        None where nothing was tested, nan where it could not be.
    reason : sequence of tuple of Reason
        One per entry, in C order; empty if no entry has any.
    detectable : sequence of Detectable
        Likewise.
    """

    value: NDArray[np.float64]
    ci_low: NDArray[np.float64]
    ci_high: NDArray[np.float64]
    n: NDArray[np.int64] | None = None
    p: NDArray[np.float64] | None = None
    reason: Sequence[Reasons] = ()
    detectable: Sequence[Detectable] = ()

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Estimate]:
        """Give every entry of a one-dimensional array."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int | tuple[int, ...]) -> Estimate:
        """Return the estimate of one entry: `array[i]`, or `array[i, j]` of a two-dimensional one."""
        place = int(np.ravel_multi_index(index if isinstance(index, tuple) else (index,), self.value.shape))
        return Estimate(
            value=float(self.value[index]),
            ci_low=float(self.ci_low[index]),
            ci_high=float(self.ci_high[index]),
            n=None if self.n is None else int(self.n[index]),
            p=None if self.p is None else float(self.p[index]),
            reason=self.reason[place] if self.reason else (),
            detectable=self.detectable[place] if self.detectable else None,
        )
