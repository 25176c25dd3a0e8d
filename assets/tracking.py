"""The last asset of a cell: its MLflow runs, one for the checkpoint as it is and one after each mitigation."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import numpy as np
import polars as pl

from assets.cells import CELL_TABLES, StoredCell, passed_cell
from assets.delivery import SHOWN_DIGITS, audit_file, deliver, provenance_row, run_note
from assets.mitigation_files import mitigation_files
from assets.partitions import GRID
from assets.pictures import read_charts
from assets.recorded import asset
from assets.results import OWNERS, materialised, report_link
from assets.up_to_date import require_up_to_date
from plumbline.catalog.schema import BEFORE, BEFORE_TEST_ROWS
from plumbline.digests import digest_json
from plumbline.mitigations.settings import METHODS
from plumbline.provenance.tracked_numbers import (
    before_test_rows,
    cost_metrics,
    headline_metrics,
    judged_numbers,
    scorecard_numbers,
)
from plumbline.report.chapters import charts_page
from plumbline.storage.files import csv_bytes, table_bytes
from resources.served import report_of
from resources.tracking import SHOWS_TAG, WEIGHTS_TAG, TrackedCell, TrackedModel, Tracking
from resources.workspace import Workspace


@asset(
    deps=[*CELL_TABLES], partitions_def=GRID, group_name="tracking", owners=OWNERS, kinds={"mlflow"}, code_version="4"
)
def tracked_run(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], tracking: dg.ResourceParam[Tracking]
) -> dg.MaterializeResult:
    """The MLflow runs of this encoder on this dataset: unmitigated, and after each mitigation.

    Each has parameters, digests as tags, headline metrics and tables; the first also a page of figures, those after a
    mitigation its parameters and loss curves. Metrics have the same names in all runs: select two to compare. A cell
    whose content is unchanged keeps its runs. If MLflow cannot be reached, the numbers stay in the lake and the next
    run of the cell sends them.
    """
    stored, lake = passed_cell(context, workspace), workspace.lake
    require_up_to_date(workspace, stored.partition, CELL_TABLES)
    frame = pl.concat([lake.read_table(name, partition=stored.partition) for name in CELL_TABLES])
    sent = deliver(context, workspace, tracking, _tracked_cells(context, stored, frame), first=BEFORE)
    provenance = _provenance(context, stored, sent.run)
    committed = lake.write_table("tracked_run", provenance, partition=stored.partition, details={"runs": sent.runs})
    report = report_link(stored.model, stored.dataset)
    # Run ids and times are shown, but a cell whose content is the same makes nothing downstream stale.
    version = dg.DataVersion(digest_json([stored.identity, sent.run]))
    return materialised(committed, lake=lake, frame=provenance, report=report, **sent.state)._replace(
        data_version=version
    )


def _provenance(context: dg.AssetExecutionContext, stored: StoredCell, run: str | None) -> pl.DataFrame:
    # Of a family that scores pairs, the work on images is in the logits.
    images = stored.workspace.lake.require("image_embeddings", partition=stored.partition)
    work = [images.details, stored.logits.details]
    return provenance_row(
        context,
        cell=stored.identity,
        model=stored.model,
        dataset=stored.dataset,
        run=run,
        forward_passes=sum(details["forward_passes"] for details in work),
        cached_shards=sum(details.get("cached_shards", 0) for details in work),
        device=images.details["device"],
    )


def _tracked_cells(
    context: dg.AssetExecutionContext, stored: StoredCell, frame: pl.DataFrame
) -> dict[str, TrackedCell]:
    """Return what is tracked, by condition: the checkpoint as it is first."""
    effects = stored.workspace.lake.read_table("mitigation_effects", partition=stored.partition)
    tried = [name for name in stored.mitigations if (frame["condition"] == name).any()]
    return {condition: _tracked(context, stored, frame, effects, condition) for condition in (BEFORE, *tried)}


def _tracked(
    context: dg.AssetExecutionContext, stored: StoredCell, frame: pl.DataFrame, effects: pl.DataFrame, condition: str
) -> TrackedCell:
    dataset, model, audit = stored.dataset, stored.model, stored.workspace.audit
    logits, records, extended = stored.logits.details, stored.records.details, stored.extended.details
    conditions = (BEFORE, BEFORE_TEST_ROWS) if condition == BEFORE else (condition,)
    rows = frame.filter(pl.col("condition").is_in(conditions))
    parameters = {
        "encoder": model,
        "dataset": dataset,
        "condition": condition,
        **{f"suite.{suite.id}": suite.hash[:SHOWN_DIGITS] for suite in stored.suites},
        **audit.encoders[model].factors,
        **{f"statistics.{k}": str(v) for k, v in audit.statistics.model_dump().items()},
    }
    files: dict[str, bytes] = {}
    curves: Mapping[str, Any] = {}
    of_texts = True
    if condition == BEFORE:
        charts = read_charts(stored.workspace, assets=CELL_TABLES, partition=stored.partition)
        files = {"figures.html": charts_page(charts, title=f"{model} on {dataset}").encode()}
    else:
        settings = stored.mitigations[condition]
        of_texts = METHODS[settings.method].acts_on == "texts"
        parameters |= {f"mitigation.{k}": str(v) for k, v in settings.model_dump(mode="json").items()}
        fitted = mitigation_files(stored, condition)
        effects = effects.filter(pl.col("condition") == condition)
        files, curves = {**fitted.files, "effects.csv": csv_bytes(effects)}, fitted.curves
    return TrackedCell(
        cell=stored.identity if condition == BEFORE else digest_json([stored.identity, condition]),
        name=" · ".join([model, dataset] + [condition] * (condition != BEFORE)),
        model=None if condition != BEFORE else _model(stored),
        parameters=parameters,
        tags={
            SHOWS_TAG: "checkpoint" if condition == BEFORE else "mitigation",
            "plumbline.condition": condition,
            WEIGHTS_TAG: logits["weights_sha256"],
            "plumbline.dataset_digest": records["dataset_digest"],
            # No parameters: the comparison of runs has an axis for each of the first that differ.
            "plumbline.address": audit.encoders[model].address,
            "plumbline.audit_file": audit_file(stored.workspace),
            "plumbline.labeller": extended["labeller"] or "none",
            "plumbline.labeller_sha256": extended["labeller_sha256"] or "none",
            **run_note(context, f"Cell `{dataset}|{model}`", asset="tracked_run", report=report_of(model, dataset)),
        },
        headlines=scorecard_numbers(frame.filter(pl.col("condition") == BEFORE)) if condition == BEFORE else {},
        metrics=(judged_numbers(frame, condition) if of_texts and stored.mitigations else {})
        | headline_metrics(frame, condition, of_texts=of_texts)
        | cost_metrics(effects, condition)
        | ({} if of_texts else before_test_rows(effects)),
        curves={name: np.asarray(curve).tolist() for name, curve in curves.items()},
        files={"metrics.parquet": table_bytes(rows), "metrics.csv": csv_bytes(rows), **files},
    )


def _model(stored: StoredCell) -> TrackedModel:
    entry = stored.workspace.audit.encoders[stored.model]
    return TrackedModel(
        stored.model,
        weights=stored.logits.details["weights_sha256"],
        dataset=stored.dataset,
        dataset_digest=stored.records.details["dataset_digest"],
        parameters={"address": entry.address, "family": stored.logits.details["family"], **entry.factors},
    )
