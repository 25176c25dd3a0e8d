"""The last asset of a cell: its MLflow run, written once."""

import math
from datetime import UTC, datetime

import dagster as dg
import polars as pl

from assets.cells import cell_id
from assets.partitions import GRID, cell_of
from assets.pictures import read_pictures
from assets.results import OWNERS, materialised
from plumbline.storage.arrays import csv_bytes, table_bytes
from resources.places import Places
from resources.tracking import TrackedCell, Tracking, TrackingUnavailable

CELL_TABLES = ("outcome_metrics", "trident_metrics", "mitigated_metrics")
_HEADLINES = (
    "max_skew",
    "harm_rate",
    "macro_accuracy",
    "macro_accuracy_gain",
    "probe_rate_gap",
    "impact_ratio",
)
_DEFAULT_DEFINITIONS = ("mean_over_pairs", "top1", "paper", "by_valence", "min_over_max", "test_rows")


@dg.asset(
    deps=["outcome_metrics", "trident_metrics", "mitigated_metrics"],
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
    dataset, model = cell_of(context)
    lake, partition = places.lake, context.partition_key
    frame = pl.concat([lake.read_table(name, partition=partition) for name in CELL_TABLES])
    images = lake.require("image_embeddings", partition=partition).details
    try:
        run, written = tracking.write(_tracked(context, places, frame))
        experiment = tracking.experiment()
        link = f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{run}"
        state = {"tracking": "written" if written else "found", "mlflow_run": dg.MetadataValue.url(link)}
    except TrackingUnavailable as error:
        context.log.warning("MLflow could not be written; run this cell again to deliver it: %s", error)
        run, state = None, {"tracking": f"not delivered: {error}"}
    provenance = pl.DataFrame(
        {
            "cell_id": [cell_id(places, dataset, model)],
            "model": [model],
            "dataset": [dataset],
            "dagster_run": [context.run.run_id],
            "mlflow_run": pl.Series([run], dtype=pl.String),
            "finished_at": [datetime.now(UTC).isoformat(timespec="seconds")],
            "forward_passes": [images["forward_passes"]],
            "cached_shards": [images["cached_shards"]],
            "device": [images["device"]],
        }
    )
    made = lake.write_table("tracked_run", provenance, partition=partition)
    return materialised(made, lake=lake, **state)


def _tracked(context: dg.AssetExecutionContext, places: Places, frame: pl.DataFrame) -> TrackedCell:
    dataset, model = cell_of(context)
    lake, audit = places.lake, places.audit
    logits = lake.require("probe_logits", partition=context.partition_key).details
    records = lake.require("records", partition=dataset).details
    extended = lake.require("extended_records", partition=dataset).details
    entry, cell = audit.encoders[model], cell_id(places, dataset, model)
    pictures = read_pictures(places, assets=CELL_TABLES, partition=context.partition_key)
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
        pl.col("metric").is_in(_HEADLINES)
        & pl.col("definition").is_in(_DEFAULT_DEFINITIONS)
        & pl.col("statistic").is_in(["estimate", "mean"])
        & ~pl.col("suite").is_in(["trident_composite"])
    )
    parts = ("metric", "suite", "event", "attribute", "probe", "condition")
    metrics: dict[str, float] = {}
    for row in chosen.iter_rows(named=True):
        if row["value"] is not None and math.isfinite(row["value"]):
            key = "/".join(str(row[p]) for p in parts if row[p] and row[p] != "before").replace(" ", "_")
            metrics[key] = row["value"]
    return metrics
