"""One asset a metric family, made from the registry of the library."""

import time

import dagster as dg
import polars as pl

from assets.cells import FAMILY_VERSIONS, passed_cell
from assets.partitions import GRID
from assets.pictures import charts_of
from assets.recorded import asset
from assets.results import OWNERS, materialised, report_link
from plumbline.catalog.schema import polars_schema
from plumbline.metrics.family import ImageFamily, MetricSettings, family_rows
from plumbline.metrics.own import OWN_METRICS, own_family
from plumbline.metrics.registry import FAMILIES
from resources.workspace import Workspace


def metric_settings(workspace: Workspace) -> MetricSettings:
    """Return the statistical settings of the audit file; a labeller is assumed to err as often as it may at most."""
    audit = workspace.audit
    return MetricSettings(**audit.statistics.model_dump(), label_error=min(audit.thresholds.label_error, 0.49))


def metric_asset(family: ImageFamily) -> dg.AssetsDefinition:
    """Build the asset of one metric family."""

    @asset(
        name=family.name,
        description=family.about.description,
        deps=["probe_logits", "extended_records"],
        partitions_def=GRID,
        group_name="metrics",
        owners=OWNERS,
        kinds={"numpy", "polars"},
        code_version=FAMILY_VERSIONS[family.name],
    )
    def compute(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
        stored = passed_cell(context, workspace)
        start = time.perf_counter()
        frame = pl.DataFrame(schema=polars_schema())
        chosen = own_family(workspace.own_metrics) if family is OWN_METRICS else family
        if suites := stored.suites_of(chosen.needs):
            frame = family_rows(chosen, stored.read(suites=suites), settings=metric_settings(workspace))
        seconds = time.perf_counter() - start
        frame = stored.with_lineage(frame)
        committed = workspace.lake.write_table(family.name, frame, partition=stored.partition)
        return materialised(
            committed,
            lake=workspace.lake,
            frame=frame.drop("cell_id", "dataset_digest", "checkpoint_sha256"),
            report=report_link(stored.model, stored.dataset),
            **charts_of(workspace, frame, asset=family.name, partition=context.partition_key),
            seconds=seconds,
        )

    return compute


METRIC_ASSETS = [metric_asset(family) for family in FAMILIES.values()]
