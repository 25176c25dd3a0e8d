"""The audit report as one HTML file that works offline: no script, no address it loads from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report import data as data_listings
from plumbline.report import method as accounting
from plumbline.report.changes import Changes
from plumbline.report.chapter import Chapter, Part
from plumbline.report.chapters import CHAPTERS
from plumbline.report.data import coverage_listing, data_findings
from plumbline.report.finding import Finding, at_first, headlines, in_rank_order
from plumbline.report.findings import as_picked, findings
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import check_findings, check_listing, lvlm_listing, word_findings
from plumbline.report.listings import Listing
from plumbline.report.method import suite_listing
from plumbline.report.numbers import confidence, count
from plumbline.report.parallel_render import pages_and_parts
from plumbline.report.reading import Reading
from plumbline.report.recommendation import transfer_findings
from plumbline.report.rows import checked
from plumbline.report.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS = (
    ("changes", "What changed since the last audit"),
    ("audited", "What was audited"),
    ("findings", "Headline findings"),
    ("bias", "How biased, against whom, how sure"),
    ("trident", "Trident: single attributes"),
    ("mixed", "Trident: mixed attributes"),
    ("label-error", "Errors of the automatic labels"),
    ("data", "Data quality"),
    ("absent", "What is absent or undefined"),
    ("method", "How the numbers are made"),
    ("provenance", "Where every number comes from"),
)
OF_ENCODERS = ("bias", "trident", "mixed", "label-error")
Explained = Callable[[Sequence[str]], Collection[str]]
LONGEST_TEXT = 2000
LONGEST_CELL = 240


def render(metric_table: pl.DataFrame, inputs: ReportInputs, *, explained: Explained = lambda rows: frozenset()) -> str:
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
        From the names of the rows of headline findings to those whose explanations are there to be linked.

    Raises
    ------
    MetricError
        If the table or a frame of the inputs lacks a column.
    """
    table = checked(metric_table)
    picked, reading = as_picked(table, inputs.reading)
    found = _found(picked, inputs, reading)
    leading, further = at_first(
        in_rank_order([*headlines(found), *data_findings(table, inputs), *check_findings(inputs.lvlms)])
    )
    pages, parts_of = pages_and_parts(table, inputs)
    chapters = [(chapter, parts) for chapter, parts in zip(CHAPTERS, parts_of) if parts]
    return (
        page_environment()
        .get_template("report.html.jinja")
        .render(
            inputs=inputs,
            audit=inputs.audit,
            titles=_titles(chapters, inputs),
            chapters=chapters,
            style=page_style(),
            headlines=leading,
            explained=explained([finding.row for finding in leading if finding.row]),
            explanations=explanations_folder(inputs.audit.audit_id),
            further=further,
            every=_every(found),
            pages=pages,
            datasets=data_listings.dataset_listing(inputs),
            encoders=data_listings.encoder_listing(inputs),
            lvlms=lvlm_listing(inputs),
            suites=suite_listing(inputs.suites),
            answer_checks=check_listing(inputs),
            absent=data_listings.absent_listing(inputs),
            not_tried=data_listings.not_tried_listing(inputs),
            undefined=accounting.undefined_listing(table),
            provenance=data_listings.provenance_listing(inputs, table),
            counts=accounting.comparisons(table, inputs.audit),
            coverage=coverage_listing(table, inputs.planted_truth),
            example=accounting.example_row(table),
            confidence=confidence(inputs.audit.confidence),
            resamples=count(inputs.audit.resamples),
            significance=f"{inputs.audit.significance:g}",
            selection=reading.selection,
        )
    )


def _found(table: pl.DataFrame, inputs: ReportInputs, reading: Reading) -> list[Finding]:
    """Return the findings of every model, dataset and question in rank order."""
    words = word_findings(inputs.language.get("word_associations"), inputs.reading)
    transferred = transfer_findings(inputs.transfer, inputs.audit)
    return in_rank_order([*findings(table, reading), *transferred, *words])


def render_changes(found: Changes, *, title: str) -> str:
    """Return what changed between two sides as one self-contained HTML document; escaped as the report is."""
    template = page_environment().get_template("changes.html.jinja")
    return template.render(found=found, title=title, style=page_style())


def explanations_folder(audit_id: str) -> str:
    """Return where the explanations of an audit lie, relative to the report."""
    return f"explanations/{audit_id[:12]}"


def _titles(chapters: list[tuple[Chapter, list[Part]]], inputs: ReportInputs) -> dict[str, str]:
    """Return anchor -> title in the order of the page: the chapters stand before the labels and the data.

    Without encoders there is nothing to say of the labels that they give.
    """
    entries = [(chapter.anchor, chapter.title) for chapter, _ in chapters]
    before = [anchor for anchor, _ in SECTIONS].index("label-error")
    titles = dict([*SECTIONS[:before], *entries, *SECTIONS[before:]])
    left_out = set() if inputs.encoders or not inputs.lvlms else set(OF_ENCODERS)
    if inputs.changes is None:
        left_out.add("changes")
    return {name: title for name, title in titles.items() if name not in left_out}


def _every(found: list[Finding]) -> Listing:
    rows = [(f.model, f.dataset, f.short, f.value_text, f.interval_text, f.q_text) for f in found]
    heads = ("Model", "Dataset", "Finding", "Value", "Interval, or range over probes", "q")
    return Listing(heads, rows, frozenset({3, 4, 5}))


def _finalize(value: Any) -> Any:
    from markupsafe import Markup

    return value if isinstance(value, Markup) else visible(value, longest=LONGEST_TEXT)


def page_environment() -> Environment:
    """Return what pages are rendered with: every text is escaped, and its unseen characters are shown."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    folder = files("plumbline.report") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only our own drawings and our own style sheet pass unescaped: an XML writer has escaped their text.
    # Data addresses are Base64 of our own, longer than any text that is shown.
    environment.filters["picture_source"] = lambda source: Markup(source)  # noqa: S704
    environment.filters["drawn"] = lambda picture: Markup(picture.svg)  # noqa: S704
    environment.filters["counted"] = count
    environment.filters["shortened"] = lambda cell: visible(cell, longest=LONGEST_CELL)
    return environment


def page_style() -> Any:
    """Return the style sheet of all pages."""
    from markupsafe import Markup

    return Markup((files("plumbline.report") / "templates" / "report.css").read_text("utf-8"))  # noqa: S704
