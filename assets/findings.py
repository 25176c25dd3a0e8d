"""From the cells to what a person reads: one metric table, where every number comes from, and the report."""

from datetime import UTC, datetime

import dagster as dg
import polars as pl
from upath import UPath

from assets.cells import cell_id
from assets.gates import failed_checks
from assets.report_inputs import report_inputs
from assets.results import OWNERS, markdown_table, materialised, same_columns
from assets.tracking import CELL_TABLES
from plumbline import __version__
from plumbline.digests import digest_json
from plumbline.errors import PlumblineError
from plumbline.metrics.table import metric_table as join_cells
from plumbline.report import AbsentCell, findings_table, render
from plumbline.storage.atomic import commit_bytes
from resources.places import Places

_SPEC = {"group_name": "findings", "owners": OWNERS, "code_version": "1"}


def sort_cells(
    places: Places, instance: dg.DagsterInstance
) -> tuple[list[tuple[str, str]], list[AbsentCell]]:
    """Return the audited cells whose numbers are current, and the others with the reason.

    A cell is current when its dataset has passed its checks and its stored metrics are those of today's data,
    checkpoint, prompts and settings.
    """
    current, absent = [], []
    for dataset, model in places.audit.cells:
        reason = _why_absent(places, instance, dataset, model)
        if reason is None:
            current.append((dataset, model))
        else:
            absent.append(AbsentCell(model=model, dataset=dataset, reason=reason))
    return current, absent


def _why_absent(places: Places, instance: dg.DagsterInstance, dataset: str, model: str) -> str | None:
    refused = failed_checks(instance, dataset, of=("records", "extended_records"))
    if refused:
        return f"refused: checks have not passed: {', '.join(refused)}"
    try:
        identity = cell_id(places, dataset, model)
        for name in CELL_TABLES:
            frame = places.lake.read_table(name, partition=f"{dataset}|{model}")
            if frame["cell_id"].unique().to_list() != [identity]:
                return f"out of date: {name} was computed on other inputs or settings; run the cell again"
    except PlumblineError as error:
        return error.what
    return None


@dg.asset(
    deps=["outcome_metrics", "trident_metrics", "mitigated_metrics"], kinds={"polars", "parquet"}, **_SPEC
)
def metric_table(context: dg.AssetExecutionContext, places: dg.ResourceParam[Places]) -> dg.MaterializeResult:
    """Every number of the audit in one table: estimate, interval, p, q, n, reason, and the digests it comes from.

    Content only: equal data, checkpoints, prompts and settings give the same bytes. Run ids and times are in
    `provenance`.
    """
    current, absent = sort_cells(places, context.instance)
    if not current:
        raise dg.Failure(
            "no cell of this audit has numbers: " + "; ".join(sorted({c.reason for c in absent}))
        )
    lake = places.lake
    audit_id = digest_json(
        [places.audit.digest, __version__, sorted(cell_id(places, *cell) for cell in current)]
    )
    frames = [lake.read_table(name, partition="|".join(cell)) for cell in current for name in CELL_TABLES]
    table = join_cells(frames, audit_id=audit_id)
    made = lake.write_table("metric_table", table, details={"audit_id": audit_id, "cells": len(current)})
    return materialised(
        made,
        lake=lake,
        frame=table,
        audit_id=audit_id,
        cells=len(current),
        absent=dg.MetadataValue.json([f"{c.dataset}|{c.model}: {c.reason}" for c in absent]),
        findings=dg.MetadataValue.md(markdown_table(findings_table(table))),
        **{"dagster/column_lineage": same_columns(table.drop("audit_id", "q"), *CELL_TABLES)},
    )


@dg.asset(deps=["tracked_run"], kinds={"polars", "parquet"}, **_SPEC)
def provenance(context: dg.AssetExecutionContext, places: dg.ResourceParam[Places]) -> dg.MaterializeResult:
    """Which Dagster and MLflow runs made each cell, when, on what device, and how much work it was."""
    current, _ = sort_cells(places, context.instance)
    frames = []
    for dataset, model in current:
        if places.lake.committed("tracked_run", partition=f"{dataset}|{model}"):
            frames.append(places.lake.read_table("tracked_run", partition=f"{dataset}|{model}"))
    table = pl.concat(frames) if frames else pl.DataFrame({"cell_id": []}, schema={"cell_id": pl.String})
    made = places.lake.write_table("provenance", table)
    passes = int(table["forward_passes"].sum()) if frames else 0
    return materialised(made, lake=places.lake, frame=table, forward_passes=passes)


@dg.asset(deps=["metric_table", "provenance", "records", "quarantine"], kinds={"html"}, **_SPEC)
def audit_report(context: dg.AssetExecutionContext, places: dg.ResourceParam[Places]) -> dg.MaterializeResult:
    """The report: one HTML file that works offline, from headline findings to the provenance of every number."""
    table = places.lake.read_table("metric_table")
    _, absent = sort_cells(places, context.instance)
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = render(table, report_inputs(places, table, absent=tuple(absent), created=created)).encode()
    commit_bytes(UPath(places.report), page)
    return dg.MaterializeResult(
        metadata={
            "report": dg.MetadataValue.path(str(places.report)),
            "bytes": len(page),
            "audit_id": places.lake.require("metric_table").details["audit_id"],
            "findings": dg.MetadataValue.md(markdown_table(findings_table(table))),
        },
        data_version=dg.DataVersion(places.lake.require("metric_table").sha256),
    )
