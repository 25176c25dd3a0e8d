"""Tables of the report about datasets, encoders and runs, as text that is ready to be shown."""

from __future__ import annotations

import polars as pl

from plumbline.report.figures.labels import is_outside
from plumbline.report.inputs import AbsentCell, DatasetSummary, ReportInputs
from plumbline.report.listings import LONGEST_LISTING, Listing
from plumbline.report.numbers import NO_INTERVAL, compact, count, percent, percent_interval
from plumbline.report.vocabulary import attribute_title, group_title

DIGEST_SHOWN = 12


def short_digest(digest: str | None) -> str:
    """Return the first characters of a digest, enough to tell it apart by eye."""
    return digest[:DIGEST_SHOWN] if digest else "–"


def dataset_listing(inputs: ReportInputs) -> Listing:
    """List the datasets: what was listed, accepted, quarantined, checked."""
    rows = [
        (
            dataset.id,
            dataset.reader,
            "planted: drawn faces" if dataset.planted else "images as found",
            count(dataset.listed),
            count(dataset.accepted),
            count(dataset.quarantined.height),
            f"{dataset.checks['passed'].sum()} of {dataset.checks.height}"
            if dataset.checks.height
            else "none run",
            short_digest(dataset.digest),
        )
        for dataset in inputs.datasets
    ]
    heads = ("Dataset", "Format", "Kind", "Listed", "Accepted", "Quarantined", "Checks passed", "Digest")
    return Listing(heads, rows, frozenset({3, 4, 5, 6}))


def encoder_listing(inputs: ReportInputs) -> Listing:
    """List the checkpoints with their factors."""
    rows = [
        (
            encoder.id + (" (labeller)" if encoder.labeller else ""),
            encoder.family,
            encoder.address,
            encoder.size or "–",
            encoder.data_amount or "–",
            encoder.source or "–",
            compact(encoder.parameters),
            short_digest(encoder.sha256),
        )
        for encoder in inputs.encoders
    ]
    heads = ("Model", "Family", "Loaded from", "Size", "Data amount", "Data source", "Parameters", "sha256")
    return Listing(heads, rows, frozenset({6}))


def quarantine_listing(dataset: DatasetSummary) -> Listing:
    """List refused files with line, code, what was found and what had been expected."""
    frame = dataset.quarantined.sort(["code", "path", "line"], nulls_last=True)
    rows = [
        (
            row["path"] or "–",
            "–" if row["line"] is None else str(row["line"]),
            row["code"] or "–",
            row["message"] or "–",
            row["found"] or "–",
            row["expected"] or "–",
        )
        for row in frame.head(LONGEST_LISTING).to_dicts()
    ]
    more = frame.height - len(rows)
    note = f"{count(more)} more are in the quarantine table of the dataset." if more else ""
    return Listing(("Path", "Line", "Code", "What is wrong", "Found", "Expected"), rows, frozenset({1}), note)


def balance_listing(dataset: DatasetSummary) -> Listing:
    """List every label's share against its declared range."""
    rows = [
        (
            attribute_title(row["attribute"]),
            group_title(row["label"]),
            percent(row["share"], row["n"]),
            percent_interval(row["expected_low"], row["expected_high"]).replace(NO_INTERVAL, "none declared"),
            "outside" if is_outside(row) else "",
        )
        for row in dataset.label_shares.to_dicts()
    ]
    return Listing(("Attribute", "Label", "Share", "Declared range", ""), rows, frozenset({2, 3}))


def label_error_listing(dataset: DatasetSummary) -> Listing:
    """List the error of the automatic gender labels by group."""
    rows = [
        (
            attribute_title(row["group_by"]),
            group_title(row["group"]),
            count(row["errors"]),
            percent(row["rate"], row["n"]),
            percent_interval(row["ci_low"], row["ci_high"]),
        )
        for row in dataset.label_errors.to_dicts()
    ]
    return Listing(("Grouped by", "Group", "Wrong", "Error rate", "Interval"), rows, frozenset({2, 3, 4}))


def not_tried_listing(inputs: ReportInputs) -> Listing:
    """List the mitigations that a combination of model and dataset does not allow, with the reason."""
    return _reasons(inputs.not_tried, "Why it was not tried")


def absent_listing(inputs: ReportInputs) -> Listing:
    """List the cells without numbers and why."""
    return _reasons(inputs.absent, "Why there are no numbers")


def _reasons(cells: tuple[AbsentCell, ...], title: str) -> Listing:
    return Listing(("Model", "Dataset", title), [(cell.model, cell.dataset, cell.reason) for cell in cells])


def provenance_listing(inputs: ReportInputs, table: pl.DataFrame) -> Listing:
    """List the runs behind every cell, with the digests its rows carry."""
    # Not every row of a cell has every digest: only mixed tests depend on a labeller.
    digests = table.drop_nulls("cell_id").group_by("cell_id", maintain_order=True)
    known = digests.agg(pl.col("dataset_digest", "checkpoint_sha256", "labeller_sha256").drop_nulls().first())
    lineage = {row["cell_id"]: row for row in known.to_dicts()}
    rows = []
    for row in inputs.provenance.to_dicts():
        own = lineage.get(row["cell_id"], {})
        rows.append(
            (
                row["model"],
                row["dataset"],
                short_digest(row["cell_id"]),
                short_digest(own.get("dataset_digest")),
                short_digest(own.get("checkpoint_sha256")),
                short_digest(own.get("labeller_sha256")),
                row["dagster_run"] or "–",
                row["mlflow_run"] or "–",
                row["finished_at"] or "–",
                row["device"] or "–",
                count(row["forward_passes"]) if row["forward_passes"] is not None else "–",
                count(row["cached_shards"]) if row["cached_shards"] is not None else "–",
            )
        )
    heads = (
        "Model", "Dataset", "Cell", "Dataset digest", "Checkpoint", "Labeller", "Dagster run", "MLflow run",
        "Finished", "Device", "Forward passes", "Shards from cache",
    )  # fmt: skip
    return Listing(heads, rows, frozenset({10, 11}))
