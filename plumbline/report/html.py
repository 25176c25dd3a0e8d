"""The audit report, and what changed between two audits, as pages: see `plumbline.report.page`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from plumbline.errors import MetricError
from plumbline.report import data as data_listings
from plumbline.report.changes import Changes
from plumbline.report.chapter import Chapter, Part
from plumbline.report.chapters import CHAPTERS
from plumbline.report.front import WORDS, Front, front_page
from plumbline.report.inputs import DatasetSummary, ReportInputs, check_result
from plumbline.report.language import check_listing, lvlm_listing
from plumbline.report.numbers import confidence, count
from plumbline.report.page import DIGITS, all_numbers, page_html
from plumbline.report.rows import Row, checked
from plumbline.report.scorecard import NOTHING, OF_SMOOTHED, is_smoothed
from plumbline.report.scorecard_table import STATES, score_tables
from plumbline.visible import safe_link

NOTES_SHOWN = 400
"""Characters of a chapter's notes that stand before its first chart; the first note does whatever its length."""
_AUDIT = re.compile(r"[\w-]*")
Explained = Callable[[Sequence[str]], Collection[str]]
Pages = Callable[[Row], Mapping[str, str]]


def render(
    metric_table: pl.DataFrame,
    inputs: ReportInputs,
    *,
    explained: Explained = lambda rows: frozenset(),
    pages: Pages = lambda cell: {},
) -> str:
    """Return the report of an audit as one self-contained HTML document.

    The same inputs give the same bytes. Every text that comes from outside is escaped, and its unseen characters
    are shown.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.catalog.schema`.
    inputs : ReportInputs
        The audit, its datasets and encoders, and where the numbers come from.
    explained : callable
        From the names of the rows of findings to those whose explanations are there to be linked.
    pages : callable
        From a row of `inputs.provenance` to title -> path of its pages in `plumbline ui`, which the report links where
        that serves it.

    Raises
    ------
    MetricError
        If the table or a frame of the inputs lacks a column.
    """
    table = checked(metric_table)
    front = front_page(table, inputs, inputs.reading)
    chapters = [Folded.of(chapter, parts) for chapter in CHAPTERS if (parts := chapter.parts(table, inputs))]
    numbers = all_numbers(table, significance=inputs.audit.significance)
    row_names = [item.finding.row for item in front.findings if item.finding.row]
    return page_html(
        "report.html.jinja",
        title=inputs.audit.title,
        data={"table": numbers.data},
        inputs=inputs,
        audit=inputs.audit,
        front=front,
        scorecard=score_tables(front.scorecard, {each.id: each.subsets for each in inputs.datasets}),
        states=STATES,
        states_there=_states(front),
        smoothed_there=any(map(is_smoothed, front.scorecard.to_dicts())),
        of_smoothed=OF_SMOOTHED,
        anchors={one.model: f"model-{place}" for place, one in enumerate(front.models, 1)},
        anchors_there={each.chapter.anchor for each in chapters},
        selection=front.selection,
        explained=explained(row_names),
        explanations=explanations_folder(inputs.audit.audit_id),
        pages=_pages(inputs, pages),
        chapters=chapters,
        numbers=numbers,
        digits=DIGITS,
        datasets=data_listings.dataset_listing(inputs),
        encoders=data_listings.encoder_listing(inputs),
        lvlms=lvlm_listing(inputs),
        suites=data_listings.suite_listing(inputs.suites),
        answer_checks=check_listing(inputs),
        checks={dataset.id: data_checks(dataset) for dataset in inputs.datasets},
        notes=data_listings.dataset_notes(inputs),
        balances={dataset.id: data_listings.balance_listing(dataset) for dataset in inputs.datasets},
        quarantines={dataset.id: data_listings.quarantine_listing(dataset) for dataset in inputs.datasets},
        coverage=data_listings.coverage_listing(table, inputs.planted_truth),
        absent=data_listings.absent_listing(inputs),
        not_tried=data_listings.not_tried_listing(inputs),
        undefined=data_listings.undefined_listing(table),
        provenance=data_listings.provenance_listing(inputs, table),
        counts=data_listings.comparisons(table, inputs.audit),
        example=data_listings.example_row(table),
        words=WORDS,
        confidence=confidence(inputs.audit.confidence),
        resamples=count(inputs.audit.resamples),
        significance=f"{inputs.audit.significance:g}",
    )


def _pages(inputs: ReportInputs, pages: Pages) -> dict[str, list[tuple[str, Mapping[str, str]]]]:
    """Return model -> the datasets that it was asked on, each with the pages of that cell."""
    by_model: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for cell in inputs.provenance.to_dicts():
        if there := pages(cell):
            by_model.setdefault(cell["model"], []).append((cell["dataset"], there))
    return by_model


@dataclass(frozen=True)
class Folded:
    """A chapter as a reader meets it: `first`, a part with one chart, and the parts that unfold."""

    chapter: Chapter
    first: Part | None
    rest: list[Part]
    several: bool

    @classmethod
    def of(cls, chapter: Chapter, parts: list[Part]) -> Folded:
        """Fold a chapter to the first chart of its parts, with the notes of that part."""
        opening = next((part for part in parts if part.pictures), None)
        notes = [] if opening is None else opening.notes
        kept = next((at for at in range(len(notes), 1, -1) if sum(map(len, notes[:at])) <= NOTES_SHOWN), 1)
        first = opening and Part(opening.title, opening.pictures[:1], notes=notes[:kept])
        rest = [
            replace(part, pictures=part.pictures[1:], notes=notes[kept:]) if part is opening else part for part in parts
        ]
        shown = [part for part in rest if any((part.pictures, part.details, part.listings, part.notes, part.tables))]
        return cls(chapter, first, shown, len(parts) > 1)


def _states(front: Front) -> list[str]:
    """Return the states of the cells of a scorecard that have a mark, in the order of the legend."""
    there = set(front.scorecard["state"].to_list()) - {*NOTHING, "undefined", "not_asked"}
    return [state for state in STATES if state in there]


@dataclass(frozen=True)
class Check:
    """A data check as it is shown; `link` is None where there is none that is safe to follow."""

    name: str
    passed: bool
    observed: str
    expected: str
    link: str | None

    @property
    def result(self) -> str:
        """Return what became of it in a word."""
        return check_result(self.passed, self.observed)


def data_checks(dataset: DatasetSummary) -> list[Check]:
    """Return the checks of a dataset."""
    return [
        Check(
            name=row["check"],
            passed=bool(row["passed"]),
            observed=row["observed"] or "–",
            expected=row["expected"] or "–",
            link=safe_link(row["link"]),
        )
        for row in dataset.checks.to_dicts()
    ]


def render_changes(found: Changes, *, title: str) -> str:
    """Return what changed between two sides as one self-contained HTML document; escaped as the report is."""
    return page_html("changes.html.jinja", title=title, found=found, heading=title)


def explanations_folder(audit_id: str) -> str:
    """Return where the explanations of an audit lie, relative to the report.

    Raises
    ------
    MetricError
        If the id, which a stored table may say, would lead to another place.
    """
    if not _AUDIT.fullmatch(audit_id[:12]):
        raise MetricError("this is no id of an audit", found=ascii(audit_id[:12]), expected="letters and digits")
    return f"explanations/{audit_id[:12]}"
