"""The shares of groups that a ranking should have: equal ones, those of the ranked set, or given ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError

Desired = Literal["equal", "ranked"] | Mapping[Any, float] | ArrayLike | None
"""Equal shares (the default), the shares of the ranked set, or given ones: by group, or in the groups' sorted order."""


def equal_shares(n_groups: int) -> NDArray[np.float64]:
    """Return the desired shares of groups that are to be equally frequent."""
    return np.full(n_groups, 1 / n_groups)


def desired_shares(
    desired: Desired, names: tuple[Any, ...], codes: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return the (g,) desired shares of groups, all above 0 and 1 in sum.

    Parameters
    ----------
    names : tuple
        The groups.
    codes : (n,) int
        Group of each ranked image, as a position in `names`.

    Raises
    ------
    MetricError
        If given shares do not fit the groups, or are no shares.
    """
    if desired is None or (isinstance(desired, str) and desired == "equal"):
        return equal_shares(len(names))
    if isinstance(desired, str):
        if desired != "ranked":
            raise MetricError(
                "unknown desired shares",
                found=desired,
                expected='"equal", "ranked", or the shares themselves',
            )
        return np.bincount(codes, minlength=len(names)) / len(codes)
    given = [desired[name] for name in names] if isinstance(desired, Mapping) else desired
    shares = np.asarray(given, dtype=np.float64)
    if shares.shape != (len(names),):
        raise MetricError(
            "desired shares must be one a group, in sorted order", found=shares.shape, expected=names
        )
    # A group that is not wanted at all would have infinite skew whatever the ranking.
    if not (shares > 0).all() or not abs(shares.sum() - 1) < 1e-9:
        raise MetricError(
            "desired shares must be above zero and sum to 1",
            found=dict(zip(names, shares.tolist())),
            hint="leave out the groups that are not wanted from the ranking",
        )
    return shares
