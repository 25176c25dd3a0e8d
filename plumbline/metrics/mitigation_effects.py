"""What a mitigation changes in one cell, on images that it was not fitted on, each before and after it.

Sources of what is measured: Sun et al. (TriProTesting); Al Sahili et al., "Data Matters Most", section 3.4.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell
from plumbline.metrics.cell_effects import Hits, cell_effects
from plumbline.metrics.paired_effect import MITIGATION
from plumbline.metrics.retrieval import HITS
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.transfer_schema import TRANSFER_SCHEMA
from plumbline.metrics.trident_comparisons import TridentAnswers
from plumbline.tables.schema import Schema

MITIGATION_EFFECTS_SCHEMA: Schema = {
    name: kind for name, kind in TRANSFER_SCHEMA.items() if name not in ("q", "verdict")
}
"""The effects of one mitigation on one cell: not judged yet, since that takes the rows of all cells."""

_SIDES = ("before", "after")


def mitigation_effects(
    before: Cell,
    after: Cell,
    *,
    condition: str,
    method: str,
    rows: NDArray[np.bool_],
    settings: MetricSettings,
    answers: tuple[TridentAnswers | None, TridentAnswers | None] = (None, None),
    hits: tuple[Hits, Hits] | None = None,
) -> pl.DataFrame:
    """Return what a mitigation changed in one cell, after - before, on images that it was not fitted on.

    What a row is of `kind` says, see `plumbline.metrics.transfer_schema.TRANSFER_SCHEMA`.

    Parameters
    ----------
    before, after : Cell
        Of the same n records. A suite counts where both have it, an image where both keep it.
    condition, method : str
        The mitigation's id, and what it is.
    rows : (n,) bool
        Records that the mitigation was not fitted on.
    answers : pair of TridentAnswers or None
        Before and after, over all n records, where a cell's Trident logits do not tell them: each probe of a logit
        adjustment has factors of its own. Default: by the logits.
    hits : pair of mappings, optional
        Before and after. What they say of records outside `rows` is not looked at.

    Returns
    -------
    DataFrame
        In `MITIGATION_EFFECTS_SCHEMA`. Interval and p are those of `factor_effects`, with `after` in the place of the
        first checkpoint. Undefined values are nan with the reason; there is no row for a disparity of fewer than two
        groups with images.

    Raises
    ------
    MetricError
        If the cells are not of the same records, something is not of their length, or `rows` chooses none.
    """
    _check(before, after, condition, rows, hits)
    common = {"model": before.model, "dataset": before.dataset, "condition": condition, "method": method}
    effects = cell_effects(
        before,
        after,
        rows=rows,
        named=("bias_transfer", before.model, before.dataset, condition),
        names=MITIGATION,
        settings=settings,
        answers=answers,
        hits=hits,
    )
    table = [common | row for row in effects]
    return pl.DataFrame(table, schema=MITIGATION_EFFECTS_SCHEMA, orient="row")


def _check(
    before: Cell, after: Cell, condition: str, rows: NDArray[np.bool_], hits: tuple[Hits, Hits] | None
) -> None:
    where, n = f"{before.dataset}|{before.model}, {condition}", before.records.height
    if not before.records["image_id"].equals(after.records["image_id"]):
        raise MetricError(
            "a mitigation is judged on the same images, before and after",
            where=where,
            found=f"{after.records.height} images after",
            expected=f"the {n} images before",
        )
    if rows.shape != (n,) or rows.dtype != np.bool_ or not rows.any():
        raise MetricError(
            "there must be images that the mitigation was not fitted on",
            where=where,
            found=f"{rows.dtype} {rows.shape}, {int(rows.sum())} chosen",
            expected=f"bool ({n},), at least one chosen",
        )
    for side, own in zip(_SIDES, hits or ()):
        if own.keys() != HITS.keys() or any(each.shape != (n,) for each in own.values()):
            raise MetricError(
                "retrieval must say of every image what it finds",
                where=f"{where}, {side}",
                found={name: each.shape for name, each in own.items()},
                expected=f"({n},) for each of {', '.join(HITS)}",
            )
