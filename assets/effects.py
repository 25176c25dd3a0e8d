"""What one design factor of a checkpoint changes, over all pairs that differ in that factor alone."""

from collections.abc import Iterator

import dagster as dg

from assets.cells import StoredCell
from assets.metrics import metric_settings
from assets.recorded import asset
from assets.results import OWNERS, markdown_table, materialised
from plumbline.datasets.records import Declaration
from plumbline.encoders.families import answers
from plumbline.metrics.cell import build_cell
from plumbline.metrics.paired.comparisons import FactorPair, factor_pairs
from plumbline.metrics.paired.comparisons import factor_effects as effects_of
from plumbline.metrics.predictions import Predictions, predictions_of
from plumbline.provenance.code_versions import code_version
from resources.workspace import Workspace


@asset(
    deps=["probe_logits", "metric_table"],
    group_name="findings",
    owners=OWNERS,
    kinds={"numpy", "polars"},
    code_version=code_version(
        build_cell,
        factor_pairs,
        effects_of,
        predictions_of,
        Declaration,
        answers,
        shells=[__name__, "assets.asked_cells", "assets.cells", "assets.metrics"],
    ),
)
def factor_effects(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """Effects of model size, amount of training data and data source on bias, all else equal.

    Each pair of checkpoints whose `factors` in the audit file differ in exactly one is compared on the same images:
    Max Skew, parity difference and harm rate of the first minus those of the second, with a paired bootstrap
    interval. The first has the level that comes first in the audit file; a positive difference means that it is more
    biased. Empty without such a pair.
    """
    committed = workspace.lake.require("metric_table")
    current = committed.details["current"]
    entries = workspace.audit.encoders
    # In the order of the file, which says which level of a factor comes first.
    pairs = factor_pairs({name: entry.factors for name, entry in entries.items() if entry.factors})
    models = {dataset: {m for d, m, _ in current if d == dataset} for dataset, _, _ in current}
    table = effects_of(_answered(workspace, models, pairs), pairs, settings=metric_settings(workspace))
    compared = [cell for cell in current if _compared(models[cell[0]], pairs, cell[1])]
    details = {"audit_id": committed.details["audit_id"], "cells": compared}
    written = workspace.lake.write_table("factor_effects", table, details=details)
    clear = table.filter(table["q"] < 0.05).sort("q", "factor", "first", maintain_order=True)
    return materialised(
        written,
        lake=workspace.lake,
        frame=table,
        pairs=len(pairs),
        clear=clear.height,
        clearest=dg.MetadataValue.md(markdown_table(clear.drop("n", "reason", "p").head(20))),
    )


def _compared(present: set[str], pairs: tuple[FactorPair, ...], model: str) -> bool:
    return any(model in (p.first, p.second) and {p.first, p.second} <= present for p in pairs)


def _answered(
    workspace: Workspace, models: dict[str, set[str]], pairs: tuple[FactorPair, ...]
) -> Iterator[Predictions]:
    """Read one dataset after the other, and of it one cell after the other, keeping only what was answered."""
    for dataset, present in models.items():
        chosen = [name for name in workspace.audit.encoders if name in present and _compared(present, pairs, name)]
        if chosen:
            yield predictions_of(StoredCell.find(workspace, dataset, name).read() for name in chosen)
