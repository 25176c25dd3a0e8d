"""All that the report shows about one dataset, drawn and listed."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from plumbline.catalog.suites import TASK_EVENTS
from plumbline.report import data as data_listings
from plumbline.report import listings
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.labels import balance_figure, label_error_figure
from plumbline.report.figures.outcomes import harm_figure, proportions_figure, skew_figure
from plumbline.report.figures.trident import bubble_figure, gap_figure
from plumbline.report.inputs import NOTHING_DECLARED, DatasetSummary, ReportInputs
from plumbline.report.listings import Listing
from plumbline.report.rows import in_order, where
from plumbline.report.visible import safe_link


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
        if self.observed == NOTHING_DECLARED:
            return "not asked for"
        return "passed" if self.passed else "failed"


@dataclass(frozen=True)
class BiasPage:
    """Skew, shares and harm rates of a dataset; a picture is None where there is nothing to draw."""

    skew: Picture | None
    shares: list[Picture]
    harm: Picture | None
    share_details: list[Picture]
    skews: Listing
    harms: Listing


@dataclass(frozen=True)
class TridentPage:
    """One Trident suite of a dataset; the model with the largest gap for negative probes comes first."""

    gap: Picture | None
    charts: list[Picture]
    gaps: Listing
    accuracy: Listing
    variants: Listing


@dataclass(frozen=True)
class DataPage:
    """The labels, checks and refused files of a dataset."""

    label_error: Picture | None
    label_errors: Listing
    balance: Picture | None
    balances: Listing
    checks: list[Check]
    quarantine: Listing


@dataclass(frozen=True)
class DatasetPage:
    """Everything about one dataset."""

    dataset: DatasetSummary
    bias: BiasPage
    single: TridentPage
    mixed: TridentPage
    data: DataPage


def dataset_page(table: pl.DataFrame, inputs: ReportInputs, dataset: DatasetSummary) -> DatasetPage:
    """Draw and list what the metric table and the inputs hold about a dataset."""
    of_dataset = where(table, dataset=dataset.id)
    return DatasetPage(
        dataset=dataset,
        bias=_bias_page(of_dataset, inputs, dataset.id),
        single=_trident_page(of_dataset, inputs, dataset.id, "trident"),
        mixed=_trident_page(of_dataset, inputs, dataset.id, "trident_mixed"),
        data=_data_page(dataset),
    )


def _bias_page(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> BiasPage:
    def shares(suite: str, event: str, *, composite: bool = False) -> list[Picture]:
        picture = proportions_figure(
            own, inputs.planted_truth, inputs.models, dataset=dataset, suite=suite, event=event, composite=composite
        )
        return [picture] if picture else []

    details = [picture for suite, event in TASK_EVENTS.items() for picture in shares(suite, event, composite=True)]
    return BiasPage(
        skew=skew_figure(own, inputs.audit, inputs.models, dataset),
        shares=[picture for suite, event in TASK_EVENTS.items() for picture in shares(suite, event)],
        harm=harm_figure(own, inputs.models, dataset),
        share_details=shares("crime", "non_human") + details,
        skews=listings.skew_listing(own, inputs.models, dataset),
        harms=listings.harm_listing(own, inputs.models, dataset),
    )


def _trident_page(own: pl.DataFrame, inputs: ReportInputs, dataset: str, suite: str) -> TridentPage:
    tested = where(own, metric="probe_rate", definition="logit", suite=suite, condition="before")
    gaps = where(own, metric="probe_rate_gap", suite=suite, event="negative", condition="before")
    largest = {row["model"]: row["value"] for row in gaps.to_dicts() if row["value"] == row["value"]}
    names = in_order(tested["model"], inputs.models)
    names.sort(key=lambda name: -(largest.get(name) or 0.0))
    charts = (bubble_figure(own, model=name, dataset=dataset, suite=suite) for name in names)
    return TridentPage(
        gap=gap_figure(own, inputs.audit, inputs.models, dataset) if suite == "trident" else None,
        charts=[chart for chart in charts if chart],
        gaps=listings.gap_listing(own, inputs.models, dataset, suite),
        accuracy=listings.accuracy_listing(own, inputs.models, dataset, suite),
        variants=listings.variant_listing(own, inputs.models, dataset),
    )


def _data_page(dataset: DatasetSummary) -> DataPage:
    checks = [
        Check(
            name=row["check"],
            passed=bool(row["passed"]),
            observed=row["observed"] or "–",
            expected=row["expected"] or "–",
            link=safe_link(row["link"]),
        )
        for row in dataset.checks.to_dicts()
    ]
    return DataPage(
        label_error=label_error_figure(dataset),
        label_errors=data_listings.label_error_listing(dataset),
        balance=balance_figure(dataset),
        balances=data_listings.balance_listing(dataset),
        checks=checks,
        quarantine=data_listings.quarantine_listing(dataset),
    )
