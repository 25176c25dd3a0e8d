"""The scorecard of an audit: models x questions, and its picture."""

import dagster as dg
import polars as pl

from assets.delivery import SHOWN_DIGITS, audit_file, deliver, run_note
from assets.findings import headline_reading
from assets.pictures import keep_charts
from assets.recorded import asset
from assets.results import OWNERS, markdown_table, materialised, same_columns
from plumbline.digests import digest_json
from plumbline.provenance.code_versions import code_version
from plumbline.report import Chart, findings_table
from plumbline.report.chapters import charts_page
from plumbline.report.charts.scorecard import scorecard as drawn
from plumbline.report.front import verdict
from plumbline.report.reading import Reading
from plumbline.report.scorecard import in_columns
from plumbline.report.scorecard import scorecard as cells_of
from plumbline.storage import Lake
from plumbline.storage.files import csv_bytes
from resources.served import REPORT
from resources.tracking import SHOWS_TAG, TrackedCell, Tracking
from resources.workspace import Workspace

_AUDIT = "audit"
"""The one condition of the MLflow run of an audit."""


@asset(
    deps=["metric_table"],
    group_name="findings",
    owners=OWNERS,
    kinds={"polars", "parquet", "mlflow"},
    code_version=code_version(
        cells_of,
        in_columns,
        drawn,
        findings_table,
        verdict,
        charts_page,
        shells=[
            __name__,
            "assets.delivery",
            "assets.findings",
            "assets.pictures",
            "resources.served",
            "resources.tracking",
        ],
    ),
)
def scorecard(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], tracking: dg.ResourceParam[Tracking]
) -> dg.MaterializeResult:
    """Models x questions, the worst model first: which of them is biased, for whom, by how much, how sure.

    Each cell is one row of the metric table that was declared before any number was seen: its value, interval, q, who
    is worst off, and what could have been found where there is no evidence. The same table stands at the top of the
    report; its picture is also on the MLflow run of this audit.
    """
    lake = workspace.lake
    committed = lake.require("metric_table")
    table, reading = lake.read_table("metric_table", manifest=committed), headline_reading(workspace)
    card = cells_of(table, reading)
    strongest = keep_findings(lake, table, card, reading)
    written = lake.write_table("scorecard", card, details={"audit_id": committed.details["audit_id"]})
    chart = drawn(card)
    charts = {} if chart is None else {"scorecard": chart}
    run = _tracked(context, workspace, committed.details["audit_id"], card, charts)
    sent = deliver(context, workspace, tracking, {_AUDIT: run}, first=_AUDIT)
    shown = keep_charts(workspace, charts, asset="scorecard")
    computed_columns = ("kind", "question", "title", "unit", "state", "row", "chapter")
    return materialised(
        written,
        lake=lake,
        frame=card,
        **shown,
        models=card["model"].n_unique(),
        findings=dg.MetadataValue.md(markdown_table(strongest)),
        evidence=int((card["state"] == "evidence").sum()),
        **{
            f"{kind}s": dg.MetadataValue.md(markdown_table(in_columns(card.filter(kind=kind))))
            for kind in card["kind"].unique(maintain_order=True)
        },
        **sent.state,
        **{"dagster/column_lineage": same_columns(card.drop(computed_columns), "metric_table")},
    )


def keep_findings(lake: Lake, table: pl.DataFrame, card: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    """Keep what every command prints at its end, the verdict and the strongest findings, and return these."""
    strongest = findings_table(table, reading)
    lake.write_table("findings", strongest, details={"verdict": verdict(card, reading, table)})
    return strongest


def _tracked(
    context: dg.AssetExecutionContext, workspace: Workspace, audit_id: str, card: pl.DataFrame, charts: dict[str, Chart]
) -> TrackedCell:
    evident = card.group_by("model").agg((pl.col("state") == "evidence").sum()).sort("model")
    return TrackedCell(
        cell=digest_json([_AUDIT, audit_id]),
        name=f"audit {audit_id[:8]}",
        parameters={"audit_id": audit_id[:SHOWN_DIGITS], "audit_file": audit_file(workspace)},
        tags={
            SHOWS_TAG: _AUDIT,
            "plumbline.condition": _AUDIT,
            **run_note(context, f"Audit `{audit_id[:SHOWN_DIGITS]}`", asset="scorecard", report=REPORT),
        },
        metrics={f"questions_with_evidence/{model}": float(number) for model, number in evident.iter_rows()},
        files={
            "scorecard.csv": csv_bytes(card),
            "figures.html": charts_page(charts, title=f"Scorecard of audit {audit_id[:8]}").encode(),
        },
    )
