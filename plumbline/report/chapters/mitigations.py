"""What helps, at what cost, and what it makes worse: every mitigation that was tried on each checkpoint."""

from __future__ import annotations

import polars as pl

from plumbline.mitigation.methods import METHODS
from plumbline.report.adjustment_listings import adjustment_findings, adjustment_listing
from plumbline.report.chapter import Chapter, Part
from plumbline.report.figures.adjustment import adjustment_figure, adjustments
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.mitigations import mitigation_figures
from plumbline.report.inputs import ReportInputs
from plumbline.report.reading import Reading
from plumbline.report.recommendation import advice
from plumbline.report.rows import in_order
from plumbline.report.transfer import Tried, tried
from plumbline.report.transfer_listings import overview_listing, transfer_listing, verdict_matrix
from plumbline.report.vocabulary import suite_title

OPEN = 3
"""Models of a dataset whose figure and verdicts are shown; those of the others are folded."""


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    parts = []
    transfer = inputs.transfer
    known = [table["dataset"]] + ([transfer["dataset"]] if transfer is not None else [])
    for dataset in inputs.datasets_in(pl.concat(known)):
        by_model = _by_model(transfer, inputs, dataset) if transfer is not None else []
        if len(by_model) > 1:
            parts.append(_overview(by_model, dataset))
        parts += [_of_model(own, inputs, folded=i >= OPEN) for i, own in enumerate(by_model)]
        parts += _probe_by_probe(table, inputs, dataset)
    return parts


def _by_model(transfer: pl.DataFrame, inputs: ReportInputs, dataset: str) -> list[list[Tried]]:
    own = transfer.filter(pl.col("dataset") == dataset)
    return [
        tried(own, dataset=dataset, model=model, leaking=inputs.audit.leaking)
        for model in in_order(own["model"], inputs.models)
    ]


def _overview(by_model: list[list[Tried]], dataset: str) -> Part:
    names = list(dict.fromkeys(one.condition for own in by_model for one in own))
    return Part(title=f"{dataset}: every model", tables=[("At a glance", overview_listing(by_model, names))])


def _of_model(own: list[Tried], inputs: ReportInputs, *, folded: bool) -> Part:
    model, dataset = own[0].model, own[0].dataset
    pictures = mitigation_figures(own, model=model, dataset=dataset)
    verdicts = [("Verdicts", verdict_matrix(own))]
    rows = inputs.transfer.filter(model=model, dataset=dataset) if inputs.transfer is not None else None
    listings = [("Every comparison in numbers", transfer_listing(rows))] if rows is not None else []
    return Part(
        title=f"{dataset}: {model}",
        notes=advice(own, inputs.audit),
        pictures=[] if folded else pictures,
        details=pictures if folded else [],
        tables=[] if folded else verdicts,
        listings=(verdicts if folded else []) + listings,
    )


def _probe_by_probe(table: pl.DataFrame, inputs: ReportInputs, dataset: str) -> list[Part]:
    """Return the accuracy with each probe before and after the logit adjustments; those that leak are folded."""
    part = Part(
        title=f"{dataset}: the logit adjustment, probe by probe",
        notes=[
            "What it costs: probes that get worse, and classes that are taken for a probe more often than before."
        ],
    )
    leaking = inputs.audit.leaking
    for suite in ("trident", "trident_mixed", "trident_composite"):
        ids = adjustments(table, dataset, suite, leaking=leaking)
        for name in ids:
            picture = adjustment_figure(table, inputs.models, dataset, suite, condition=name)
            if picture:
                (part.details if name in leaking else part.pictures).append(picture)
        if ids:
            listing = adjustment_listing(table, inputs.audit, inputs.models, dataset, suite)
            part.listings.append((f"Gain and cost in numbers: {suite_title(suite)}", listing))
    return [part] if part.listings else []


def _adjustment_picture(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw the first logit adjustment of a dataset on the single-attribute suite."""
    ids = adjustments(table, dataset, "trident", leaking=reading.leaking)
    return adjustment_figure(table, models, dataset, "trident", condition=ids[0]) if ids else None


CHAPTER = Chapter(
    anchor="mitigations",
    title="What helps, at what cost, and what it makes worse",
    lead="Each mitigation was applied to each model and judged on the same images as before: on the six contrastive "
    "metrics (gender and race, in crime, communion and agency words), on how often labels are harmful, on the Trident "
    "probes, and on what it costs in accuracy and retrieval. A mitigation that lowers one bias may raise another. “No "
    "evidence” means that chance alone may explain a difference; it never means that there is none.",
    parts=_parts,
    findings=adjustment_findings,
    pictures={"adjustment": _adjustment_picture},
    method=(
        (
            "Bias transfer",
            "The number with the mitigation minus the number without it, on the same images, none of which the "
            "mitigation was fitted on. Intervals: paired bootstrap, an image's answers before and after are drawn "
            "together. q: Benjamini–Hochberg for one mitigation at a time, over all models and datasets, within a "
            "metric and definition.",
        ),
        (
            "Improved, worsened, no evidence",
            "Improved or worsened: q is below the significance level, and the difference points that way. Lower is "
            "better for skews, parity differences, harm rates and rates of the probes; higher is better for accuracy "
            "and retrieval. Else there is no evidence, which is not evidence of no difference. A mitigation is "
            "recommended where it improves one of the six contrastive metrics or a harm rate, worsens no axis and no "
            "harm rate, and costs no accuracy or retrieval; among several, the one that improves most of the six.",
        ),
        (
            "What a mitigation costs",
            "Zero-shot accuracy on the dataset's own labels, over images (micro) and as the mean over classes "
            "(macro); macro accuracy with one probe among the labels, mean over probes; how often an image's caption "
            "is the nearest to it (recall@1) or among the five nearest (recall@5); and how often an image is among the "
            "nearest to its caption (R-precision).",
        ),
        *((method.title, method.works) for method in METHODS.values()),
    ),
)
