"""Adaptive Logit Adjustment: fits on a few labelled images of every class."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import polars as pl
from numpy.typing import NDArray

from assets.cells import StoredCell, passed_cell
from assets.mitigation_fits import below, require_fits
from assets.partitions import GRID
from assets.results import OWNERS, markdown_table, materialised
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell
from plumbline.mitigations import LogitAdjustment
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import TRIDENT, fit_suites
from plumbline.mitigations.logit_adjustment.rows import ABLATION_SCHEMA, ablation
from plumbline.mitigations.settings import METHODS
from resources.workspace import Workspace

NAME = "logit_adjustment"


@dataclass(frozen=True)
class Adjustments:
    """The logit adjustments of a cell.

    Attributes
    ----------
    fits : dict of str to dict of str to LogitAdjustment
        By id in the audit file, then by what is adjusted: `trident` for the one-probe tests, or an outcome suite.
    absent : dict of str to dict of str to str
        By id, then by outcome suite: why it cannot be adjusted.
    """

    fits: dict[str, dict[str, LogitAdjustment]] = field(default_factory=dict)
    absent: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def of_probes(self) -> dict[str, LogitAdjustment]:
        """Return the adjustments of the one-probe tests by id."""
        return {name: fits[TRIDENT] for name, fits in self.fits.items() if TRIDENT in fits}


@dg.asset(
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
    cell = stored.read() if adjustments else None
    fitted = Adjustments() if cell is None else _fitted(stored, cell, adjustments)
    ablated = _ablated(stored, cell, adjustments)
    arrays: dict[str, NDArray[Any]] = {}
    details: dict[str, dict[str, dict[str, str]]] = {}
    for name, fits in fitted.fits.items():
        details[name] = {what: fit.metadata() for what, fit in fits.items()}
        for what, fit in fits.items():
            arrays |= {f"{name}/{what}/{part}": array for part, array in fit.parameters().items()}
    workspace.lake.write_table("adjustment_ablation", ablated, partition=stored.partition)
    committed = workspace.lake.write_arrays(
        NAME,
        arrays,
        partition=stored.partition,
        details={"fits": details, "absent": fitted.absent, "cell_id": stored.identity},
    )
    return materialised(
        committed,
        lake=workspace.lake,
        fits=dg.MetadataValue.json(details),
        not_adjusted=dg.MetadataValue.json(fitted.absent),
        ablation=dg.MetadataValue.md(_gains(ablated)),
    )


def _fitted(stored: StoredCell, cell: Cell, adjustments: Mapping[str, LogitAdjustmentSettings]) -> Adjustments:
    """Fit every adjustment that is asked for; one that the audit file names for this cell must have something to fit.

    Raises
    ------
    MetricError
        If it has not.
    """
    found, audit = Adjustments(), stored.workspace.audit
    named = audit.mitigated[stored.dataset, stored.model] if adjustments else {}
    for name, settings in adjustments.items():
        fits, absent = fit_suites(cell, settings, seed=audit.statistics.seed)
        found.fits[name], found.absent[name] = fits, absent
        if not fits and named[name]:
            raise MetricError(
                f"the mitigation `{name}` has nothing to be fitted on",
                where=stored.partition,
                found="; ".join(f"{suite}: {why}" for suite, why in absent.items()) or "no suite",
                hint="leave it out for this dataset",
            )
    return found


def _ablated(stored: StoredCell, cell: Cell | None, adjustments: Mapping[str, LogitAdjustmentSettings]) -> pl.DataFrame:
    """Return what other numbers of images and learning rates would have given, where that is asked for."""
    frames, statistics = (
        [pl.DataFrame(schema={"condition": pl.String, **ABLATION_SCHEMA})],
        stored.workspace.audit.statistics,
    )
    for name, settings in adjustments.items():
        if cell is not None and settings.ablation:
            rows = ablation(cell, settings, seed=statistics.seed, confidence=statistics.confidence)
            frames.append(rows.select(pl.lit(name).alias("condition"), pl.all()))
    return pl.concat(frames)


def _gains(ablated: pl.DataFrame) -> str:
    """Return the mean gain over probes of every tried number of images and learning rate."""
    over = ["condition", "varied", "per_class", "learning_rate"]
    return markdown_table(ablated.group_by(over, maintain_order=True).agg(pl.col("value", "sd").mean()))


def read_adjustments(stored: StoredCell) -> Adjustments:
    """Return the stored logit adjustments of a cell.

    Raises
    ------
    StorageError
        If they were fitted on other content than the cell has now.
    """
    committed = require_fits(stored, NAME)
    arrays = stored.workspace.lake.read_arrays(NAME, manifest=committed)
    fits = {
        name: {
            what: LogitAdjustment.from_parameters(below(f"{name}/{what}/", arrays), metadata)
            for what, metadata in fit.items()
        }
        for name, fit in committed.details["fits"].items()
    }
    return Adjustments(fits, committed.details["absent"])
