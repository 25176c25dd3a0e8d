"""Two states of one cell on the same images: before and after a mitigation, or an old checkpoint and its successor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.answered_dataset import answered_dataset
from plumbline.metrics.cell import Cell
from plumbline.metrics.outcome_comparisons import HARM, outcome_answers, outcome_comparisons
from plumbline.metrics.paired_comparisons import Compared, Comparison, Key, PairedAnswers, Reading, everyone
from plumbline.metrics.paired_effect import SideNames
from plumbline.metrics.paired_rows import paired_rows
from plumbline.metrics.retrieval import HITS
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.trident_comparisons import TridentAnswers, TridentTests, compared_tests
from plumbline.statistics.counts import shares
from plumbline.tables.schema import Row

Hits = Mapping[str, NDArray[np.bool_]]
"""What retrieval finds, by the names of `plumbline.metrics.retrieval.HITS`: (n,) each, over a cell's records."""

_AFTER, _BEFORE = _SIDES = ("after", "before")
_RENAMED = {"value_first": "value_after", "value_second": "value_before"}
_Found = dict[str, dict[Key, NDArray[Any]]]


def cell_effects(
    before: Cell,
    after: Cell,
    *,
    rows: NDArray[np.bool_],
    named: tuple[str, ...],
    names: SideNames,
    settings: MetricSettings,
    answers: tuple[TridentAnswers | None, TridentAnswers | None] = (None, None),
    hits: tuple[Hits, Hits] | None = None,
) -> list[Row]:
    """Return after - before of everything that two states of one cell answer to the same images.

    What the rows are of, and the intervals, `mitigation_effects` says; `kind`, `better`, `value_before` and
    `value_after` are among their columns.

    Parameters
    ----------
    before, after : Cell
        Of the same n records. A suite counts where both have it, an image where both keep it.
    rows : (n,) bool
        Records that count.
    named : tuple of str
        What the draws are for: part of the generators' names.
    names : SideNames
        What reasons call the two states.
    answers, hits
        See `mitigation_effects`.
    """
    # Draws go by position: the order of the ids makes results independent of that of the records.
    chosen = np.flatnonzero(rows)
    at = chosen[before.records["image_id"].gather(chosen).arg_sort().to_numpy()]
    cells = {_AFTER: after, _BEFORE: before}
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
        named=named,
        settings=settings,
        names=names,
    )
    return [{_RENAMED.get(name, name): value for name, value in row.items()} for _, row in effects]


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
) -> Compared:
    """Return the scores of the one-probe tests and what is compared of them, where both cells have them."""
    if any("trident" not in cell.logits for cell in cells.values()):
        return Compared({}, [])
    before = cells[_BEFORE]
    kept = _kept(cells, "trident")[at]
    tests = TridentTests.of(before.logits["trident"].suite, before.records[at], kept)
    if tests is None:
        return Compared({}, [])
    answers = {
        side: (given[side] or TridentAnswers.of(cell.logits["trident"])).at(at)
        for side, cell in cells.items()
    }
    return compared_tests(tests, answers)


def _retrieval(hits: tuple[Hits, Hits] | None, at: NDArray[np.int64]) -> Compared:
    """Return what retrieval finds, and the comparison of how often it does."""
    if hits is None:
        return Compared({}, [])
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
    return Compared(found, compared)


def _share_found(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    return shares(counts, np.broadcast_to(totals, counts.shape))[..., 0, 0]
