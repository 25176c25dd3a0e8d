"""What the papers printed, beside what this audit measured."""

import dagster as dg
import polars as pl

from assets.audit_tables import table_of_audit
from assets.model_addresses import model_addresses
from assets.recorded import asset
from assets.results import OWNERS, markdown_table, materialised
from plumbline.config.reproduction import reproduction, run_of
from plumbline.provenance.code_versions import code_version
from plumbline.report.comparison import checkpoint_fits, compare_with_published
from resources.workspace import Workspace


@asset(
    deps=["metric_table", "factor_effects"],
    group_name="findings",
    owners=OWNERS,
    kinds={"polars", "parquet"},
    code_version=code_version(
        compare_with_published,
        reproduction,
        run_of,
        shells=[__name__, "assets.audit_tables", "assets.model_addresses", "plumbline.world.folders"],
    ),
)
def paper_comparison(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """Published numbers beside the values that this audit measures.

    One row per published number whose checkpoint (by its address), dataset and metric are in the audit: its table
    cell, the printed and the measured value, their difference, and whether the measured interval covers the printed
    value before rounding. Printed numbers that are suspect or cannot be compared, or were made by another protocol than
    this audit's, are shown with the reason and are not judged. Beside it `reproduction` says of every table of every
    paper how far this audit reproduces it. The planted world has no published numbers: its tables are empty.
    """
    lake, audit = workspace.lake, workspace.audit
    committed = lake.require("metric_table")
    run = run_of(audit, model_addresses(audit))
    table = compare_with_published(
        lake.read_table("metric_table", manifest=committed),
        encoders=model_addresses(audit),
        datasets=run.datasets,
        protocol_of=run.protocol,
        effects=table_of_audit(workspace, "factor_effects", committed),
        pooled=list(committed.details.get("pooled", {}).get("models", ())),
        scorers={name: getattr(entry, "origin", None) or entry.kind for name, entry in audit.scorers.items()},
    )
    details = {"audit_id": committed.details["audit_id"], "metric_table": committed.sha256}
    lake.write_table("reproduction", reproduction(run), details=details)
    written = lake.write_table("paper_comparison", table, details=details)
    differing = table.filter(pl.col("within").not_()).sort("difference")
    return materialised(
        written,
        lake=lake,
        frame=table,
        within=int(table["within"].sum()),
        differing=differing.height,
        not_judged=table["within"].null_count(),
        differences=dg.MetadataValue.md(markdown_table(differing.select(_SHOWN).head(20))),
        fits=dg.MetadataValue.md(markdown_table(checkpoint_fits(table))),
    )


_SHOWN = ("paper", "table", "row", "column", "model", "dataset", "published", "measured", "ci_low", "ci_high", "note")
