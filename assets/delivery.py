"""What cells and generative models have in common when MLflow is told of them: runs, whose they are, and refusals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import polars as pl

from plumbline.recording import note, unrecorded
from resources import served
from resources.tracking import TrackedCell, Tracking, TrackingUnavailable
from resources.workspace import Workspace

SHOWN_DIGITS = 12
"""Digits of a digest among the parameters."""
_STATE, _REFUSED = "tracking", "not delivered: "


@dataclass(frozen=True)
class Delivered:
    """What became of the MLflow runs of a cell or model.

    Attributes
    ----------
    run : str or None
        Id of the run of the model as it is; None where MLflow could not be written.
    state : dict
        What the UI shows of it.
    runs : dict of str to str
        Id of each run -> digest of its numbers, with which MLflow is compared later.
    """

    run: str | None
    state: dict[str, Any]
    runs: dict[str, str] = field(default_factory=dict)


def deliver(
    context: dg.AssetExecutionContext,
    workspace: Workspace,
    tracking: Tracking,
    cells: Mapping[str, TrackedCell],
    *,
    first: str,
) -> Delivered:
    """Write runs to MLflow.

    Parameters
    ----------
    cells : mapping of str to TrackedCell
        By condition; `first` is that of the model as it is.
    """
    note("tracking_store", value=workspace.tracking_store)
    try:
        runs = {condition: tracking.write(cell) for condition, cell in cells.items()}
        run, written, _ = runs[first]
        pages = {condition: tracking.run_page(tracked.run) for condition, tracked in runs.items()}
    except TrackingUnavailable as error:
        context.log.warning("MLflow could not be written; run this again to deliver it: %s", error)
        note("delivered", value=False)
        return Delivered(None, {_STATE: f"{_REFUSED}{error}"})
    state: dict[str, Any] = {_STATE: "written" if written else "found"}
    for condition, page in pages.items():
        title = "mlflow_run" if condition == first else f"mlflow_run_{condition}"
        state[title] = dg.MetadataValue.url(page)
    return Delivered(run, state, {tracked.run: tracked.numbers for tracked in runs.values()})


def refusal(metadata: Mapping[str, Any]) -> str | None:
    """Return what MLflow said when it could not be written, from the metadata of `tracked_run` or `tracked_answers`."""
    state = str(metadata.get(_STATE, ""))
    return state if state.startswith(_REFUSED) else None


def provenance_row(
    context: dg.AssetExecutionContext,
    *,
    cell: str,
    model: str,
    dataset: str,
    run: str | None,
    forward_passes: int,
    cached_shards: int,
    device: str,
) -> pl.DataFrame:
    """Return what `provenance` keeps of a cell or model: who made and tracked it, and how much work it was."""
    return pl.DataFrame(
        {
            "cell_id": [cell],
            "model": [model],
            "dataset": [dataset],
            "dagster_run": [context.run.run_id],
            "mlflow_run": pl.Series([run], dtype=pl.String),
            "finished_at": [datetime.now(UTC).isoformat(timespec="seconds")],
            "forward_passes": [forward_passes],
            "cached_shards": [cached_shards],
            "device": [device],
        }
    )


def audit_file(workspace: Workspace) -> str:
    """Return the digest of the audit file, as MLflow shows it."""
    with unrecorded():  # told of the run, whose numbers do not depend on all of it
        return workspace.audit.digest[:SHOWN_DIGITS]


def run_note(context: dg.AssetExecutionContext, what: str, *, asset: str, report: str) -> dict[str, str]:
    """Return the tags that lead from an MLflow run to the report and to what made it in Dagster."""
    run = context.run.run_id
    links = {
        "numbers in the report": f"{served.DAGSTER}{report}",
        "asset in Dagster": served.asset_page(asset, context.partition_key if context.has_partition_key else None),
        f"Dagster run {run[:8]}": f"{served.DAGSTER}/runs/{run}",
    }
    listed = ", ".join(f"[{title}]({address})" for title, address in links.items())
    return {"plumbline.dagster_run": run, "mlflow.note.content": f"{what}: {listed}."}
