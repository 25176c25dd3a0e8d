"""Adaptive Logit Adjustment: fits on a few labelled images of every class."""

from typing import Any

import dagster as dg
from numpy.typing import NDArray

from assets.cells import StoredCell, passed_cell
from assets.mitigation_fits import below
from assets.partitions import GRID
from assets.recorded import asset
from assets.results import OWNERS, markdown_table, materialised
from plumbline.mitigations import LogitAdjustment
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import Adjustments, fit_adjustments
from plumbline.mitigations.logit_adjustment.rows import ablations, mean_gains
from plumbline.mitigations.settings import METHODS
from resources.workspace import Workspace

NAME = "logit_adjustment"


@asset(
    name=NAME,
    deps=["probe_logits", "extended_records"],
    kinds={"numpy", "safetensors"},
    partitions_def=GRID,
    group_name="mitigation",
    owners=OWNERS,
    code_version=METHODS[NAME].version,
)
def logit_adjustment(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """Adaptive Logit Adjustment: one factor per candidate redistributes probability between classes and probe.

    Fitted on a few images per class, for all probes and trials at once, selected by training loss alone. The crime
    suites are adjusted too where the groups are among the candidates. The variant `released` lets test accuracy choose,
    as the published code does, and is marked as leaking.
    """
    stored = passed_cell(context, workspace)
    adjustments = {n: s for n, s in stored.mitigations.items() if isinstance(s, LogitAdjustmentSettings)}
    cell, audit = stored.read() if adjustments else None, workspace.audit
    seed, confidence = audit.statistics.seed, audit.statistics.confidence
    fitted = Adjustments()
    if cell is not None:
        fitted = fit_adjustments(cell, adjustments, seed=seed)
    ablated = ablations(cell, adjustments, seed=seed, confidence=confidence)
    arrays: dict[str, NDArray[Any]] = {}
    details: dict[str, dict[str, dict[str, str]]] = {}
    for name, fits in fitted.fits.items():
        details[name] = {what: fit.metadata() for what, fit in fits.items()}
        for what, fit in fits.items():
            arrays |= {f"{name}/{what}/{part}": array for part, array in fit.parameters().items()}
    workspace.lake.write_table("adjustment_ablation", ablated, partition=stored.partition)
    committed = workspace.lake.write_arrays(
        NAME, arrays, partition=stored.partition, details={"fits": details, "absent": fitted.absent}
    )
    return materialised(
        committed,
        lake=workspace.lake,
        fits=dg.MetadataValue.json(details),
        not_adjusted=dg.MetadataValue.json(fitted.absent),
        ablation=dg.MetadataValue.md(markdown_table(mean_gains(ablated))),
    )


def read_adjustments(stored: StoredCell) -> Adjustments:
    """Return the stored logit adjustments of a cell."""
    committed = stored.workspace.lake.require(NAME, partition=stored.partition)
    arrays = stored.workspace.lake.read_arrays(NAME, manifest=committed)
    fits = {
        name: {
            what: LogitAdjustment.from_parameters(below(f"{name}/{what}/", arrays), metadata)
            for what, metadata in fit.items()
        }
        for name, fit in committed.details["fits"].items()
    }
    return Adjustments(fits, committed.details["absent"])
