"""What a mitigation changes in one cell, on images that it was not fitted on, each before and after it.

Sources of what is measured: Sun et al. (TriProTesting); Al Sahili et al., "Data Matters Most", section 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.metrics.answered_dataset import answered_dataset
from plumbline.metrics.cell import Cell
from plumbline.metrics.outcome_comparisons import HARM, outcome_answers, outcome_comparisons
from plumbline.metrics.paired_comparisons import (
    Comparison,
    Key,
    PairedAnswers,
    Reading,
    everyone,
    paired_rows,
)
from plumbline.metrics.paired_effect import MITIGATION
from plumbline.metrics.rates import shares
from plumbline.metrics.retrieval import HITS
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.transfer_schema import TRANSFER_SCHEMA
from plumbline.metrics.trident_comparisons import TridentAnswers, TridentTests, compared_tests
from plumbline.tables.schema import Schema

MITIGATION_EFFECTS_SCHEMA: Schema = {
    name: kind for name, kind in TRANSFER_SCHEMA.items() if name not in ("q", "verdict")
}
"""The effects of one mitigation on one cell: not judged yet, since that takes the rows of all cells."""

Hits = Mapping[str, NDArray[np.bool_]]
"""What retrieval finds, by the names of `plumbline.metrics.retrieval.HITS`: (n,) each, over a cell's records."""

_AFTER, _BEFORE = _SIDES = ("after", "before")
_RENAMED = {"value_first": "value_after", "value_second": "value_before"}
_Found = dict[str, dict[Key, NDArray[Any]]]


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

    `kind` says what a row is of:

    - `axis`: Max Skew (`mean_over_pairs`, `smoothed`) and the parity difference of every event of the outcome suites
      that both cells have, by every attribute, and of the mean over the three tasks.
    - `harm`: the share of all images in the event; every event of the outcome suites is a harmful one.
    - `trident`: P(class → probe), averaged over the probes of a valence (`event`), of all labelled images
      (`probe_rate`), and its largest minus smallest value over the classes (suite `trident`) and over classes by
      automatic gender label (`trident_mixed`). A class that becomes the probe is lost, whatever the probe's valence.
    - `cost` (`better` is `higher`; for all others `lower`): `macro_accuracy` of the one-probe tests, averaged over
      classes and probes; `zero_shot_accuracy` among the classes alone, averaged over classes (`macro`) or images
      (`micro`); and retrieval.

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
    # Draws go by position: the order of the ids makes results independent of that of the records.
    chosen = np.flatnonzero(rows)
    at = chosen[before.records["image_id"].gather(chosen).arg_sort().to_numpy()]
    cells = {_AFTER: after, _BEFORE: before}
    common = {"model": before.model, "dataset": before.dataset, "condition": condition, "method": method}
    answered = answered_dataset([_outcomes(cells, side, at) for side in _SIDES])
    scores: _Found = {side: dict(own) for side, own in outcome_answers(answered).scores.items()}
    comparisons = [_of_outcome(each) for each in outcome_comparisons(answered)]
    parts = [_trident(cells, at, dict(zip(_SIDES, reversed(answers)))), _retrieval(hits, at)]
    for found, compared in parts:
        comparisons += compared
        for side, own in found.items():
            scores[side] |= own
    effects = paired_rows(
        PairedAnswers(scores, answered.clusters),
        comparisons,
        [(_AFTER, _BEFORE)],
        named=("bias_transfer", before.model, before.dataset, condition),
        settings=settings,
        names=MITIGATION,
    )
    table = [common | {_RENAMED.get(name, name): value for name, value in row.items()} for _, row in effects]
    return pl.DataFrame(table, schema=MITIGATION_EFFECTS_SCHEMA, orient="row")


def _outcomes(cells: Mapping[str, Cell], side: str, at: NDArray[np.int64]) -> Cell:
    """Return the outcome suites that all cells have, on the judged images; the side stands for the checkpoint."""
    cell = cells[side]
    logits = {
        name: replace(each, logits=each.ranking[at], cosine=None)
        for name, each in cell.logits.items()
        if each.suite.family == "outcomes" and all(name in other.logits for other in cells.values())
    }
    # Suites that share their labels must go on doing so: only then is there a mean over them.
    labels = {id(frame): frame[at] for frame in cell.relabelled.values()}
    return replace(
        cell,
        model=side,
        records=cell.records[at],
        logits=logits,
        keep={name: _kept(cells, name)[at] for name in logits},
        relabelled={name: labels[id(frame)] for name, frame in cell.relabelled.items()},
        images=None,
    )


def _kept(cells: Mapping[str, Cell], suite: str) -> NDArray[np.bool_]:
    return np.logical_and.reduce([cell.rows(suite) for cell in cells.values()])


def _of_outcome(compared: Comparison) -> Comparison:
    kind = "harm" if HARM in compared.readings else "axis"
    return replace(compared, columns={**compared.columns, "kind": kind, "better": "lower"})


def _trident(
    cells: Mapping[str, Cell], at: NDArray[np.int64], given: Mapping[str, TridentAnswers | None]
) -> tuple[_Found, list[Comparison]]:
    """Return the scores of the one-probe tests and what is compared of them, where both cells have them."""
    if any("trident" not in cell.logits for cell in cells.values()):
        return {}, []
    before = cells[_BEFORE]
    kept = _kept(cells, "trident")[at]
    tests = TridentTests.of(before.logits["trident"].suite, before.records[at], kept)
    if tests is None:
        return {}, []
    answers = {
        side: (given[side] or TridentAnswers.of(cell.logits["trident"])).at(at)
        for side, cell in cells.items()
    }
    return compared_tests(tests, answers)


def _retrieval(hits: tuple[Hits, Hits] | None, at: NDArray[np.int64]) -> tuple[_Found, list[Comparison]]:
    """Return what retrieval finds, and the comparison of how often it does."""
    if hits is None:
        return {}, []
    found: _Found = {
        side: {("retrieval", name): own[name][at] for name in HITS}
        for side, own in zip(_SIDES, reversed(hits))
    }
    columns = {"kind": "cost", "suite": "retrieval", "event": None, "attribute": None, "better": "higher"}
    images = everyone(np.ones(len(at), dtype=bool))
    compared = [
        Comparison(
            (("retrieval", name),), images, (Reading(*told, value=_share_found, disparity=False),), columns
        )
        for name, told in HITS.items()
    ]
    return found, compared


def _share_found(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    return shares(counts, np.broadcast_to(totals, counts.shape))[..., 0, 0]


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
    for side, own in zip(reversed(_SIDES), hits or ()):
        if own.keys() != HITS.keys() or any(each.shape != (n,) for each in own.values()):
            raise MetricError(
                "retrieval must say of every image what it finds",
                where=f"{where}, {side}",
                found={name: each.shape for name, each in own.items()},
                expected=f"({n},) for each of {', '.join(HITS)}",
            )
