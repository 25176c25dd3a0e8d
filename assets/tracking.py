"""The last asset of a cell: its MLflow run, written once."""

import math
from datetime import UTC, datetime

import dagster as dg
import polars as pl

from assets.cells import CELL_TABLES, StoredCell, passed_cell
from assets.partitions import GRID
from assets.pictures import read_pictures
from assets.results import OWNERS, materialised
from plumbline.digests import digest_json
from plumbline.errors import StorageError
from plumbline.metrics.registry import METRICS
from plumbline.storage.arrays import csv_bytes, table_bytes
from resources.places import Places
from resources.tracking import TrackedCell, Tracking, TrackingUnavailable

# One number a question: words of a trait, and single templates, are left to the tables.
_HEADLINES = {
    **{traits.name: traits.headline for traits in METRICS.values() if traits.headline},
    "macro_accuracy_gain": "test_rows",
}


@dg.asset(
    deps=[*CELL_TABLES],
    partitions_def=GRID,
    group_name="tracking",
    owners=OWNERS,
    kinds={"mlflow"},
    code_version="1",
)
def tracked_run(
    context: dg.AssetExecutionContext, places: dg.ResourceParam[Places], tracking: dg.ResourceParam[Tracking]
) -> dg.MaterializeResult:
    """The MLflow run of this encoder on this dataset: parameters, digests as tags, headline metrics, tables, figures.

    A cell whose content has not changed keeps its run. If MLflow cannot be reached, the numbers are safe in the
    lake, this says so, and the next run of the cell delivers them.
    """
    stored, lake = passed_cell(context, places), places.lake
    partition = stored.partition
    frame = pl.concat([lake.read_table(name, partition=partition) for name in CELL_TABLES])
    if frame.height and frame["cell_id"].unique().to_list() != [stored.identity]:
        raise StorageError(
            "the metrics of this cell were computed on other inputs or settings",
            where=partition,
            hint="materialise its metrics and mitigations again",
        )
    # Of a family that scores pairs, the work on images is in the logits.
    work = [lake.require("image_embeddings", partition=partition).details, stored.logits.details]
    try:
        run, written = tracking.write(_tracked(context, stored, frame))
        experiment = tracking.experiment()
        link = f"{places.tracking_page}/#/experiments/{experiment}/runs/{run}"
        state = {"tracking": "written" if written else "found", "mlflow_run": dg.MetadataValue.url(link)}
    except TrackingUnavailable as error:
        context.log.warning("MLflow could not be written; run this cell again to deliver it: %s", error)
        run, state = None, {"tracking": f"not delivered: {error}"}
    provenance = pl.DataFrame(
        {
            "cell_id": [stored.identity],
            "model": [stored.model],
            "dataset": [stored.dataset],
            "dagster_run": [context.run.run_id],
            "mlflow_run": pl.Series([run], dtype=pl.String),
            "finished_at": [datetime.now(UTC).isoformat(timespec="seconds")],
            "forward_passes": [sum(details["forward_passes"] for details in work)],
            "cached_shards": [sum(details.get("cached_shards", 0) for details in work)],
            "device": [work[0]["device"]],
        }
    )
    made = lake.write_table("tracked_run", provenance, partition=partition)
    # Run ids and times are shown, but a cell whose content is the same makes nothing downstream stale.
    return materialised(made, lake=lake, **state)._replace(
        data_version=dg.DataVersion(digest_json([stored.identity, run]))
    )


def _tracked(context: dg.AssetExecutionContext, stored: StoredCell, frame: pl.DataFrame) -> TrackedCell:
    dataset, model, audit = stored.dataset, stored.model, stored.places.audit
    logits, records, extended = stored.logits.details, stored.records.details, stored.extended.details
    entry, cell = audit.encoders[model], stored.identity
    pictures = read_pictures(stored.places, assets=CELL_TABLES, partition=stored.partition)
    return TrackedCell(
        cell=cell,
        name=f"{model}__{dataset}__{audit.digest[:8]}",
        parameters={
            "encoder": model,
            "dataset": dataset,
            "address": entry.address,
            "labeller": extended["labeller"],
            **entry.factors,
            **{f"statistics.{k}": str(v) for k, v in audit.statistics.model_dump().items()},
            **{f"adjustment.{k}": str(v) for k, v in audit.adjustment.model_dump().items()},
        },
        tags={
            "plumbline.condition": "before",
            "plumbline.checkpoint_sha256": logits["weights_sha256"],
            "plumbline.dataset_digest": records["dataset_digest"],
            "plumbline.labeller_sha256": extended["labeller_sha256"],
            "plumbline.dagster_run": context.run.run_id,
            "mlflow.note.content": f"Cell `{dataset}|{model}`, made by Dagster run "
            f"[{context.run.run_id}](http://127.0.0.1:3000/runs/{context.run.run_id}).",
        },
        metrics=headline_metrics(frame),
        files={
            "metrics.parquet": table_bytes(frame),
            "metrics.csv": csv_bytes(frame),
            **{f"figures/{name}.png": png for name, png in pictures.items()},
        },
    )


def headline_metrics(frame: pl.DataFrame) -> dict[str, float]:
    """Return the finite headline numbers of a cell by a readable key, such as `max_skew/crime/race`."""
    chosen = frame.filter(
        (
            (pl.col("definition") == pl.col("metric").replace_strict(_HEADLINES, default=None))
            | ((pl.col("metric") == "macro_accuracy") & (pl.col("definition") == "test_rows"))
        )
        & pl.col("statistic").is_in(["estimate", "mean"])
        & (
            (pl.col("suite") != "perception")
            | pl.col("event").is_not_null()
            | (pl.col("metric") == "confound_slope")
        )
        & ((pl.col("suite") != "templates") | pl.col("group").is_null())
        & ~pl.col("suite").is_in(["trident_mixed", "trident_composite"])
        & (pl.col("condition") != "logit_adjustment_released")
    )
    parts = ("metric", "suite", "event", "attribute", "group", "probe", "condition")
    metrics: dict[str, float] = {}
    for row in chosen.iter_rows(named=True):
        if row["value"] is not None and math.isfinite(row["value"]):
            named = [str(row[part]) for part in parts if row[part]]
            # The plain audit needs no word; the same metric on the adjustment's test rows does.
            named = [part for part in named if part != "before" or row["definition"] == "test_rows"]
            metrics["/".join(named).replace(" ", "_")] = row["value"]
    return metrics
