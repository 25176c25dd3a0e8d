"""The record of an audit: what was stored for it, so that it can be compared, explained and exported later."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg

from assets.recorded import asset
from assets.results import OWNERS, materialised
from plumbline.config.audit import Audit
from plumbline.provenance.export import installed
from plumbline.recording import note, unrecorded
from plumbline.storage import Committed
from plumbline.storage.lake import TABLE, write_record
from resources.workspace import Workspace

# Caches beside the lake's own things: what is used of them is named by the manifests.
_NO_MANIFESTS = ("embeddings", "training", "answers", "scores", "judgements", TABLE)
_MADE_AFTERWARDS = ("audit_diff", "audit_flips")


@asset(
    deps=["metric_table", "scorecard", "factor_effects", "bias_transfer", "paper_comparison", "provenance"],
    group_name="findings",
    owners=OWNERS,
    kinds={"polars", "parquet"},
    code_version="1",
)
def audit_record(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """The manifests of everything in this audit, from records and embeddings to the metric table.

    Stored data is never overwritten, so `plumbline diff`, `plumbline explain` and `plumbline export` can read a past
    audit from its record after checkpoints or datasets have been replaced.
    """
    lake = workspace.lake
    table = lake.require("metric_table")
    # The table's id is of all settings that can move a number; others, such as the title, stay as they were first.
    with unrecorded():
        audit = workspace.audit
        things, settings = list(_things(workspace, audit)), audit.model_dump(mode="json", exclude_unset=True)
    for thing in things:
        if thing.name not in _MADE_AFTERWARDS:
            note("stored", thing.name, thing.partition, value=thing.version)
    committed = write_record(
        lake,
        things,
        audit_id=table.details["audit_id"],
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        settings=settings,
        software=installed(),
    )
    return materialised(committed, lake=lake, audit_id=table.details["audit_id"], things=len(things))


def _things(workspace: Workspace, audit: Audit) -> Iterator[Committed]:
    """Yield what is stored for the datasets and models of the audit file, and over all of them."""
    names = {"", *audit.datasets, *audit.encoders, *audit.lvlms}
    slices = tuple(f"{dataset}." for dataset in audit.datasets)
    for committed in workspace.lake.all_committed(without=_NO_MANIFESTS):
        first = committed.partition.partition("|")[0]
        if first in names or first.startswith(slices):
            yield committed
