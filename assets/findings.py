"""From the cells to what a person reads: one metric table, where every number comes from, and the report."""

from datetime import UTC, datetime
from functools import partial

import dagster as dg
import polars as pl
from upath import UPath

from assets.agreement import agreement_over_models
from assets.cells import CELL_TABLES
from assets.explanation import quick_pages
from assets.geometry import stored_geometry
from assets.language import LANGUAGE_TABLES
from assets.recorded import asset
from assets.report_inputs import report_inputs
from assets.results import OWNERS, materialised, same_columns
from assets.up_to_date import Present
from plumbline.config.own import own_questions
from plumbline.datasets.ingestion import folder_digest
from plumbline.datasets.registry import reader_for
from plumbline.digests import digest_json
from plumbline.language.annotated_agreement import pooled_agreement
from plumbline.metrics.registry import metric_table as join_cells
from plumbline.provenance.code_versions import DESCRIPTIONS, code_version
from plumbline.provenance.explanation import thumbnail
from plumbline.recording import note
from plumbline.report import render
from plumbline.report.inputs import PROVENANCE_SCHEMA
from plumbline.report.reading import Reading
from plumbline.storage import Lake
from plumbline.storage.files import commit_bytes
from plumbline.world.sources import planted_rates
from resources import served
from resources.quality import Quality
from resources.workspace import Workspace

_JOINING = code_version(
    join_cells,
    pooled_agreement,
    shells=[
        __name__,
        "assets.agreement",
        "assets.cells",
        "assets.embeddings",
        "assets.geometry",
        "assets.language",
        "assets.metrics",
        "assets.up_to_date",
    ],
)
_SPEC = {"group_name": "findings", "owners": OWNERS}


@asset(
    deps=["records", *CELL_TABLES, "valence_geometry", *LANGUAGE_TABLES],
    kinds={"polars", "parquet"},
    code_version=_JOINING,
    **_SPEC,
)
def metric_table(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """All metrics of the audit in one table: estimate, interval, p, q, n, reason, and the digests of its sources.

    Deterministic: equal data, checkpoints, prompts and settings give the same bytes. Run ids and times are in
    `provenance`. Cells whose sources have changed, or whose dataset has not passed its checks, are left out and
    listed. Where annotations of answers exist, inter-annotator agreement over all generative models is included.
    """
    lake, cells = workspace.lake, Present(workspace).standing
    note("standing", value=cells.as_json())
    if not (cells.current or cells.models):
        reasons = sorted({f"{cell.dataset}: {cell.reason}" for cell in cells.absent})
        raise dg.Failure(f"no cell of this audit has numbers. {'; '.join(reasons)}", allow_retries=False)
    geometry = stored_geometry(workspace, dict.fromkeys(m for _, m, _ in cells.current))
    parts = [*sorted(cell for _, _, cell in cells.current), *(g.identity for g in geometry)]
    parts += sorted(digest_json([identity, families]) for _, identity, families in cells.models)
    pooled = agreement_over_models(workspace, [model for model, *_ in cells.models])
    parts += [digest_json(pooled.made_of)] if pooled.made_of else []
    audit_id = digest_json([workspace.audit.digest, _JOINING, parts])
    frames = [_of_cell(lake, name, f"{d}|{m}", cell) for d, m, cell in cells.current for name in CELL_TABLES]
    frames += [each.rows for each in geometry]
    frames += [_of_cell(lake, name, model, cell) for model, cell, families in cells.models for name in families]
    statistics, margins = workspace.audit.statistics, dict(workspace.audit.equivalence)
    table = join_cells(
        [*frames, pooled.rows],
        audit_id=audit_id,
        confidence=statistics.confidence,
        margins=margins,
        permutations=statistics.permutations,
    )
    absent = [vars(cell) for cell in (*cells.absent, *pooled.absent)]
    listed = {"current": cells.current, "models": cells.models, "absent": absent}
    details = {"audit_id": audit_id, **listed, "pooled": pooled.made_of}
    committed = lake.write_table("metric_table", table, details=details)
    return materialised(
        committed,
        lake=lake,
        frame=table,
        audit_id=audit_id,
        cells=len(cells.current),
        generative_models=len(cells.models),
        annotated_models=dg.MetadataValue.json(pooled.models),
        absent=dg.MetadataValue.json(absent),
        **{
            "dagster/column_lineage": same_columns(
                table.drop("audit_id", "q", "smallest_detectable", "equivalence_q"), *CELL_TABLES, *LANGUAGE_TABLES
            )
        },
    )


def _of_cell(lake: Lake, name: str, partition: str, cell: str) -> pl.DataFrame:
    """Return the rows of a family, with the identity of the cell or model that they are of."""
    return lake.read_table(name, partition=partition).with_columns(pl.lit(cell).alias("cell_id"))


@asset(deps=["tracked_run", "tracked_answers", "metric_table"], kinds={"polars", "parquet"}, code_version="1", **_SPEC)
def provenance(workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """The Dagster and MLflow runs that computed each cell, with time, device and amount of work."""
    lake = workspace.lake
    frames = [pl.DataFrame(schema=PROVENANCE_SCHEMA)]
    details = lake.require("metric_table").details
    tracked = [("tracked_run", f"{dataset}|{model}", cell) for dataset, model, cell in details["current"]]
    tracked += [("tracked_answers", model, cell) for model, cell, _ in details["models"]]
    for name, partition, cell in tracked:
        if lake.committed(name, partition=partition):
            runs = lake.read_table(name, partition=partition)
            frames.append(runs.filter(pl.col("cell_id") == cell).cast(PROVENANCE_SCHEMA))
    table = pl.concat(frames)
    committed = lake.write_table("provenance", table)
    return materialised(committed, lake=lake, frame=table, forward_passes=int(table["forward_passes"].sum()))


@asset(
    deps=[
        "metric_table", "factor_effects", "bias_transfer", "paper_comparison", "provenance", "audit_diff", "records",
        "quarantine",
    ],
    kinds={"html"},
    code_version=code_version(
        render,
        thumbnail,
        planted_rates,
        reader_for,
        folder_digest,
        "plumbline.mitigations.logit_adjustment.adjustment",
        shells=[
            __name__, "assets.answers", "assets.answers_checks", "assets.asked_cells", "assets.audit_changes",
            "assets.audit_comparison", "assets.audit_diff", "assets.audit_tables", "assets.cells", "assets.checks",
            "assets.embeddings", "assets.explanation", "assets.geometry", "assets.language", "assets.lineage",
            "assets.metrics", "assets.model_addresses", "assets.report_inputs", "assets.slices",
            "plumbline.generators.design", "plumbline.generators.stored_answers", "plumbline.mitigations.prompt_array",
            "plumbline.mitigations.saner", "plumbline.mitigations.text_mitigations", "plumbline.world.folders",
            "resources.served",
        ],
        files=[DESCRIPTIONS],
    ),
    **_SPEC,
)  # fmt: skip
def audit_report(workspace: dg.ResourceParam[Workspace], quality: dg.ResourceParam[Quality]) -> dg.MaterializeResult:
    """The report: one self-contained HTML file, from headline findings to the provenance of every number."""
    committed = workspace.lake.require("metric_table")
    table = workspace.lake.read_table("metric_table", manifest=committed)
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    seen = workspace.at_once()  # it looks up the audit file and manifests some hundred times
    inputs = report_inputs(seen, committed, created=created)
    pages = partial(served.cell_pages, generators={one.id for one in inputs.lvlms})
    page = render(table, inputs, explained=partial(quick_pages, seen, table), pages=pages).encode()
    commit_bytes(UPath(workspace.report), page)
    note("report", value=True)
    quality.index()
    return dg.MaterializeResult(
        metadata={
            "report": dg.MetadataValue.md(f"[open the report]({served.REPORT})"),
            "path": dg.MetadataValue.path(str(workspace.report)),
            "bytes": len(page),
            "audit_id": committed.details["audit_id"],
        },
        data_version=dg.DataVersion(committed.sha256),
    )


def headline_reading(workspace: Workspace) -> Reading:
    """Return how the short table of findings is read: as the report, by the first scorer of the audit file."""
    audit = workspace.audit
    return Reading(
        confidence=audit.statistics.confidence, scorers=tuple(audit.scorers), own_questions=own_questions(audit)
    )
