"""The audit report as one HTML file that works offline: no script, no address it loads from."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report import data_listings, listings
from plumbline.report.data_findings import data_findings, planted_coverage
from plumbline.report.figures.adjustment import adjustment_figure
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.labels import balance_figure, label_error_figure
from plumbline.report.figures.outcomes import harm_figure, proportions_figure
from plumbline.report.figures.skew import skew_figure
from plumbline.report.figures.trident import bubble_figure, gap_figure
from plumbline.report.findings import Finding, findings, headlines
from plumbline.report.inputs import DatasetSummary, ReportInputs
from plumbline.report.listings import Listing
from plumbline.report.numbers import confidence, count, percent
from plumbline.report.rows import checked, in_order, where
from plumbline.report.visible import safe_link, visible
from plumbline.report.vocabulary import event_title

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS = (
    ("audited", "What was audited"),
    ("findings", "Headline findings"),
    ("bias", "How biased, against whom, how sure"),
    ("trident", "Trident: single attributes"),
    ("mixed", "Trident: mixed attributes"),
    ("adjustment", "What the logit adjustment helps, and at what cost"),
    ("label-error", "Errors of the automatic labels"),
    ("data", "Data quality"),
    ("absent", "What is absent or undefined"),
    ("method", "How the numbers are made"),
    ("provenance", "Where every number comes from"),
)
PROPORTIONS = (
    ("crime", "crime"),
    ("communion", "negative_communion"),
    ("agency", "negative_agency"),
    ("crime", "non_human"),
)
HEADLINES = 12


@dataclass(frozen=True)
class Check:
    """A data check as it is shown; `link` is None where there is none that is safe to follow."""

    name: str
    passed: bool
    observed: str
    expected: str
    link: str | None


@dataclass(frozen=True)
class DatasetPage:
    """All that the report shows about one dataset, as pictures and tables; None where there is nothing."""

    dataset: DatasetSummary
    skew: Picture | None
    harm: Picture | None
    shares: list[Picture]
    share_details: list[Picture]
    skews: Listing
    harms: Listing
    gap: Picture | None
    single: list[Picture]
    mixed: list[Picture]
    gaps_single: Listing
    gaps_mixed: Listing
    accuracy: Listing
    variants: Listing
    adjusted: list[tuple[Picture, Listing]]
    label_error: Picture | None
    label_errors: Listing
    balance: Picture | None
    balances: Listing
    checks: list[Check]
    quarantine: Listing


def render(metric_table: pl.DataFrame, inputs: ReportInputs) -> str:
    """Return the report of an audit as one self-contained HTML document.

    The same inputs give the same bytes. Every text that comes from outside is escaped, and its unseen characters
    are shown.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.tables.schema`.
    inputs : ReportInputs
        The audit, its datasets and encoders, and where the numbers come from.

    Raises
    ------
    MetricError
        If the table or a frame of the inputs lacks a column.
    """
    table = checked(metric_table)
    found = findings(table, inputs.audit)
    told = headlines(found) + data_findings(table, inputs)
    environment = _environment()
    return environment.get_template("report.html.jinja").render(
        inputs=inputs,
        audit=inputs.audit,
        sections=SECTIONS,
        style=_style(),
        headlines=_sorted(told)[:HEADLINES],
        further=_sorted(told)[HEADLINES:],
        every=_every(found),
        pages=[_page(table, inputs, dataset) for dataset in inputs.datasets],
        datasets=data_listings.dataset_listing(inputs),
        encoders=data_listings.encoder_listing(inputs),
        absent=data_listings.absent_listing(inputs),
        undefined=listings.undefined_listing(table),
        provenance=data_listings.provenance_listing(inputs, table),
        counts=listings.comparison_counts(table, inputs.audit),
        coverage=_coverage(table, inputs),
        example=listings.example_row(table),
        confidence=confidence(inputs.audit.confidence),
        resamples=count(inputs.audit.resamples),
        significance=f"{inputs.audit.significance:g}",
    )


def _sorted(told: list[Finding]) -> list[Finding]:
    from plumbline.report.findings import _rank

    return sorted(told, key=_rank)


def _every(found: list[Finding]) -> Listing:
    rows = [(f.model, f.dataset, f.short, f.value_text, f.interval_text) for f in found]
    return Listing(("Model", "Dataset", "Finding", "Value", "Interval"), rows, frozenset({3, 4}))


def _page(table: pl.DataFrame, inputs: ReportInputs, dataset: DatasetSummary) -> DatasetPage:
    own, models, name = where(table, dataset=dataset.id), inputs.models, dataset.id
    shares = [_share_picture(own, inputs, name, suite, event) for suite, event in PROPORTIONS]
    details = [
        _share_picture(own, inputs, name, suite, event, composite=True) for suite, event in PROPORTIONS
    ]
    return DatasetPage(
        dataset=dataset,
        skew=skew_figure(own, inputs.audit, models, name),
        harm=harm_figure(own, models, name),
        shares=[picture for picture in shares[:3] if picture],
        share_details=[picture for picture in shares[3:] + details if picture],
        skews=listings.skew_listing(own, models, name),
        harms=listings.harm_listing(own, models, name),
        gap=gap_figure(own, inputs.audit, models, name),
        single=_bubbles(own, models, name, "trident"),
        mixed=_bubbles(own, models, name, "trident_mixed"),
        gaps_single=listings.gap_listing(own, models, name, "trident"),
        gaps_mixed=listings.gap_listing(own, models, name, "trident_mixed"),
        accuracy=listings.accuracy_listing(own, models, name, "trident"),
        variants=listings.variant_listing(own, models, name),
        adjusted=[
            (picture, listings.adjustment_listing(own, models, name, suite))
            for suite in ("trident", "trident_mixed")
            if (picture := adjustment_figure(own, models, name, suite))
        ],
        label_error=label_error_figure(dataset),
        label_errors=data_listings.label_error_listing(dataset),
        balance=balance_figure(dataset),
        balances=data_listings.balance_listing(dataset),
        checks=[
            Check(
                row["check"],
                bool(row["passed"]),
                row["observed"] or "–",
                row["expected"] or "–",
                safe_link(row["link"]),
            )
            for row in dataset.checks.to_dicts()
        ],
        quarantine=data_listings.quarantine_listing(dataset),
    )


def _share_picture(
    table: pl.DataFrame,
    inputs: ReportInputs,
    dataset: str,
    suite: str,
    event: str,
    *,
    composite: bool = False,
) -> Picture | None:
    return proportions_figure(
        table,
        inputs.planted_truth,
        inputs.models,
        dataset=dataset,
        suite=suite,
        event=event,
        composite=composite,
    )


def _bubbles(table: pl.DataFrame, models: tuple[str, ...], dataset: str, suite: str) -> list[Picture]:
    tested = where(table, metric="probe_rate", definition="dot", suite=suite, condition="before")
    pictures = (
        bubble_figure(table, model=model, dataset=dataset, suite=suite)
        for model in in_order(tested["model"], models)
    )
    return [picture for picture in pictures if picture]


def _coverage(table: pl.DataFrame, inputs: ReportInputs) -> Listing | None:
    met = planted_coverage(table, inputs.planted_truth)
    if met is None or met.is_empty():
        return None
    rows = []
    for key, group in met.group_by("model", "dataset", "event", maintain_order=True):
        error = (group["value"] - group["planted"]).abs().to_numpy()
        covered = int(group["covered"].sum())
        rows.append(
            (
                str(key[0]),
                str(key[1]),
                event_title(str(key[2])),
                f"{covered} of {group.height} ({percent(covered / group.height)})",
                f"{100 * error.mean():.1f} points",
                f"{100 * error.max():.1f} points",
            )
        )
    heads = (
        "Model",
        "Dataset",
        "Event",
        "Intervals that cover the planted rate",
        "Mean error",
        "Largest error",
    )
    return Listing(heads, rows, frozenset({3, 4, 5}))


def _finalize(value: Any) -> Any:
    from markupsafe import Markup

    return value if isinstance(value, Markup) else visible(value, longest=2000)


def _environment() -> Environment:
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
    # Only our own drawings pass unescaped: their text went through the XML writer.
    environment.filters["drawn"] = lambda picture: Markup(picture.svg)  # noqa: S704
    return environment


def _style() -> Any:
    from markupsafe import Markup

    return Markup((files("plumbline.report") / "templates" / "report.css").read_text("utf-8"))  # noqa: S704
