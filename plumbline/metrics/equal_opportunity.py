"""Equal opportunity: whether a class is recognised equally often in every group (Hardt, Price & Srebro 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.metrics.rates import parity_differences
from plumbline.statistics.counts import shares


@dataclass(frozen=True)
class EqualOpportunity:
    """True-positive rates by class and group, and how far apart they are.

    Attributes
    ----------
    rate : (C, g) float64
        Share of the images of a class and group whose top-1 is that class; nan without images.
    per_class : (C,) float64
        Largest minus smallest rate of the groups, in [0, 1]; nan with fewer than two groups.
    value, maximum : float
        Mean and largest of `per_class` over the classes in which it is defined; nan without one.
    n : int
        Images of these classes.
    reason : str or None
        Says that classes were left out.
    """

    rate: NDArray[np.float64]
    per_class: NDArray[np.float64]
    value: float
    maximum: float
    n: int
    reason: str | None


def equal_opportunity_gap(right: ArrayLike, totals: ArrayLike) -> EqualOpportunity:
    """Return the gap between groups in the true-positive rate, by class, as mean and as largest over classes.

    Parameters
    ----------
    right : (C, g) int
        Images of each class and group whose top-1 is their class.
    totals : (C, g) int
        Images of each class and group.

    Raises
    ------
    MetricError
        If the shapes differ, there are fewer than two groups, or a count is outside 0 .. n.
    """
    counts, sizes = np.asarray(right), np.asarray(totals)
    if counts.ndim != 2 or counts.shape != sizes.shape or counts.shape[1] < 2:
        raise MetricError(
            "counts must be by class and group, over at least two groups",
            found=f"right {counts.shape}, totals {sizes.shape}",
            expected="(C, g), g at least 2",
        )
    if (counts < 0).any() or (counts > sizes).any():
        raise MetricError("a count lies outside 0 .. n", found=counts.tolist(), expected=sizes.tolist())
    gaps = parity_differences(counts, sizes)
    defined = ~np.isnan(gaps)
    left_out = int((~defined).sum())
    return EqualOpportunity(
        rate=shares(counts, sizes),
        per_class=gaps,
        value=float(mean_gap(counts, sizes)),
        maximum=float(gaps[defined].max()) if defined.any() else float("nan"),
        n=int(sizes[defined].sum()),
        reason=f"{left_out} of {len(gaps)} classes seen in fewer than two groups, left out"
        if left_out
        else None,
    )


def mean_gap(right: NDArray[np.int64], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean over classes of the largest difference of rates, (..., C, g) to (...), for many tables."""
    gaps = parity_differences(right, totals)
    defined = ~np.isnan(gaps)
    return shares(np.where(defined, gaps, 0.0).sum(axis=-1), defined.sum(axis=-1))


def max_gap(right: NDArray[np.int64], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the largest over classes of the largest difference of rates, (..., C, g) to (...), for many tables."""
    gaps = np.where(np.isnan(found := parity_differences(right, totals)), -np.inf, found).max(axis=-1)
    return np.where(np.isneginf(gaps), np.nan, gaps)
