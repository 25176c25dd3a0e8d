"""Why a number is undefined, or what to know about it: the words of the column `reason`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MIN_GROUP = 30
"""Images of a group below which its numbers are called those of a small group."""


def joined(*reasons: str | None) -> str | None:
    """Join the reasons that apply."""
    return "; ".join(reason for reason in reasons if reason) or None


def group_size_reason(n: int, min_group: int = MIN_GROUP) -> str | None:
    """Say that a group is empty or small."""
    if n == 0:
        return "empty group"
    return f"small group: {n} images, fewer than {min_group}" if n < min_group else None


def small_groups_reason(names: Sequence[str], sizes: Sequence[int], min_group: int) -> str | None:
    """Name the groups under the minimum size."""
    small = [name for name, size in zip(names, sizes) if size < min_group]
    return f"fewer than {min_group} images in {', '.join(small)}" if small else None


def empty_groups_reason(totals: NDArray[np.int64]) -> str | None:
    """Say how many groups have no images."""
    empty = int((totals == 0).sum())
    return f"{empty} of {totals.size} groups empty, left out" if empty else None
