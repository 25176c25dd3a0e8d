"""What mitigations change, over all cells: what got better, what got worse, and what was moved."""

import dagster as dg
import polars as pl

from assets.recorded import asset
from assets.results import OWNERS, markdown_table, materialised
from assets.text_mitigations import TEXT_METHODS
from plumbline.metrics.paired.mitigations import bias_shifts, verdict_counts
from plumbline.metrics.paired.mitigations import bias_transfer as transfer_of
from plumbline.provenance.code_versions import code_version
from resources.workspace import Workspace


@asset(
    deps=["mitigated_metrics", "metric_table"],
    group_name="findings",
    owners=OWNERS,
    kinds={"polars", "parquet"},
    code_version=code_version(transfer_of, shells=[__name__, "assets.text_mitigations"]),
)
def bias_transfer(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """Effects of each mitigation on every axis of bias, on held-out images.

    One row per axis (skew and parity difference by attribute and event), harm rate, Trident rate and cost (accuracy,
    retrieval): after minus before on the same images, with a paired interval, p, q and a verdict: improved, worsened,
    or no evidence. The check `no_bias_is_moved` warns where one axis improves and another worsens.
    """
    lake, committed = workspace.lake, workspace.lake.require("metric_table")
    current = committed.details["current"]
    frames = [lake.read_table("mitigation_effects", partition=f"{d}|{m}") for d, m, _ in current]
    table = transfer_of(frames, confidence=workspace.audit.statistics.confidence)
    absent = [
        {"model": m, "dataset": d, "reason": f"{name} was not tried: {reason}"}
        for d, m, _ in current
        for name, reason in _not_tried(workspace, d, m)
    ]
    details = {"audit_id": committed.details["audit_id"], "absent": absent, "current": current}
    written = lake.write_table("bias_transfer", table, details=details)
    return materialised(
        written,
        lake=lake,
        frame=table,
        verdicts=dg.MetadataValue.md(markdown_table(verdict_counts(table))),
        not_tried=dg.MetadataValue.json(absent),
    )


def _not_tried(workspace: Workspace, dataset: str, model: str) -> list[tuple[str, str]]:
    lake, partition = workspace.lake, f"{dataset}|{model}"
    of_texts = [
        (name, reason)
        for method in TEXT_METHODS
        for name, reason in lake.require(method.name, partition=partition).details["absent"].items()
    ]
    of_suites = [
        (f"{name} of {suite}", reason)
        for name, reasons in lake.require("logit_adjustment", partition=partition).details["absent"].items()
        for suite, reason in reasons.items()
    ]
    return of_texts + of_suites


@dg.asset_check(
    asset="bias_transfer",
    blocking=False,
    description="No mitigation improves one axis and worsens another axis or a harm rate of the same checkpoint.",
)
def no_bias_is_moved(workspace: dg.ResourceParam[Workspace]) -> dg.AssetCheckResult:
    """Warn where a mitigation shifts bias from one axis to another."""
    moved = bias_shifts(workspace.lake.read_table("bias_transfer"))
    return dg.AssetCheckResult(
        passed=moved.is_empty(),
        severity=dg.AssetCheckSeverity.WARN,
        description=_describe(moved),
        metadata={"moved": dg.MetadataValue.md(markdown_table(moved))},
    )


def _describe(moved: pl.DataFrame) -> str:
    if moved.is_empty():
        return "no mitigation improves one axis and worsens another"
    named = sorted({f"{row['condition']} ({row['model']} on {row['dataset']})" for row in moved.to_dicts()})
    return f"{len(named)} mitigation(s) improve one axis and worsen another: {', '.join(named)}"
