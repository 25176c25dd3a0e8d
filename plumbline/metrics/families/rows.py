"""What the rows of all families share."""

from __future__ import annotations

from typing import Any

from plumbline.metrics.cell import Cell
from plumbline.statistics.estimates import Estimate

Row = dict[str, object]


def base_row(cell: Cell, **columns: object) -> Row:
    """Return the columns that every plain estimate of a cell has."""
    row: Row = {
        "model": cell.model,
        "dataset": cell.dataset,
        "condition": "before",
        "statistic": "estimate",
    }
    return row | columns


def estimate_columns(estimate: Estimate, *reasons: str | None) -> dict[str, Any]:
    """Return the columns of an estimate; the given reasons come before its own."""
    return {
        "value": estimate.value,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "p": estimate.p,
        "reason": joined(*reasons, estimate.reason),
    }


def joined(*reasons: str | None) -> str | None:
    """Join the reasons that apply."""
    return "; ".join(reason for reason in reasons if reason) or None


def small_groups_reason(names: tuple[str, ...], sizes: list[int], min_group: int) -> str | None:
    """Name the groups under the minimum size."""
    small = [name for name, size in zip(names, sizes) if size < min_group]
    return f"fewer than {min_group} images in {', '.join(small)}" if small else None
