"""The last asset of a generative model: its MLflow runs, one as it is and one after each instruction."""

from typing import Any

import dagster as dg
import polars as pl

from assets.answers import StoredAnswers
from assets.delivery import audit_file, deliver, provenance_row, run_note
from assets.language import LANGUAGE_TABLES
from assets.model_addresses import lvlm_address
from assets.partitions import LVLMS
from assets.recorded import asset
from assets.results import OWNERS, materialised, report_link
from assets.up_to_date import require_up_to_date
from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.digests import digest_json
from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.provenance.tracked_numbers import headlines_of_answers, of_scorer, scorecard_numbers
from plumbline.storage.files import csv_bytes, table_bytes
from resources.served import report_of
from resources.tracking import SHOWS_TAG, WEIGHTS_TAG, TrackedCell, TrackedModel, Tracking
from resources.workspace import Workspace


@asset(
    deps=[*LANGUAGE_TABLES],
    partitions_def=LVLMS,
    group_name="language",
    owners=OWNERS,
    kinds={"mlflow"},
    code_version="3",
)
def tracked_answers(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], tracking: dg.ResourceParam[Tracking]
) -> dg.MaterializeResult:
    """The MLflow runs of a generative model: unmitigated, and with each instruction.

    Metrics have the same names in all runs: select two to compare a model with itself under an instruction, or two
    models. Words and numbers are sent to MLflow, texts are not. A model whose content is unchanged keeps its runs.
    """
    stored, lake = StoredAnswers.find(workspace, context.partition_key), workspace.lake
    require_up_to_date(workspace, stored.model, LANGUAGE_TABLES)
    frame = pl.concat([lake.read_table(name, partition=stored.model) for name in LANGUAGE_TABLES])
    instructions = sorted({i for one in stored.slices.values() for e in one.entries for i in e.instructions})
    cells = {
        name: _tracked(context, stored, frame, name)
        for name in (NO_INSTRUCTION, *(name for name in instructions if name != NO_INSTRUCTION))
    }
    sent = deliver(context, workspace, tracking, cells, first=NO_INSTRUCTION)
    provenance = _provenance(context, stored, sent.run)
    committed = lake.write_table("tracked_answers", provenance, partition=stored.model, details={"runs": sent.runs})
    version = dg.DataVersion(digest_json([stored.identity, sent.run]))
    report = report_link(stored.model)
    return materialised(committed, lake=lake, frame=provenance, report=report, **sent.state)._replace(
        data_version=version
    )


def _provenance(context: dg.AssetExecutionContext, stored: StoredAnswers, run: str | None) -> pl.DataFrame:
    answers = [committed.details for committed in stored.answers.values()]
    return provenance_row(
        context,
        cell=stored.identity,
        model=stored.model,
        dataset=", ".join(dict.fromkeys(one.dataset for one in stored.slices.values())),
        run=run,
        # A generation is one pass through the model for this purpose, whatever batch it was in.
        forward_passes=sum(details["generated"] for details in answers),
        cached_shards=sum(details["found"] for details in answers),
        device=answers[0]["device"],
    )


def _tracked(
    context: dg.AssetExecutionContext, stored: StoredAnswers, frame: pl.DataFrame, instruction: str
) -> TrackedCell:
    model, audit = stored.model, stored.workspace.audit
    value = None if instruction == NO_INSTRUCTION else instruction
    rows = frame.filter(pl.col("instruction").eq_missing(pl.lit(value, pl.String)))
    entry, details = audit.lvlms[model], next(iter(stored.answers.values())).details
    files: dict[str, bytes] = {"metrics.parquet": table_bytes(rows), "metrics.csv": csv_bytes(rows)}
    if value is None:
        for name in (table for family in LANGUAGE_FAMILIES.values() for table in family.tables):
            table = stored.workspace.lake.read_table(name, partition=model)
            files |= {f"tables/{name}.csv": csv_bytes(table)} if table.height else {}
    first = next(iter(stored.scorers), None)
    parameters: dict[str, Any] = {
        "lvlm": model,
        "instruction": instruction,
        "slices": ", ".join(stored.slices),
        **{f"decoding.{k}": str(details["decoding"][k]) for k in details["sent"] if k in details["decoding"]},
        **{f"scorer.{name}": str(settings.kind) for name, settings in audit.scorers.items()},
        **{f"statistics.{k}": str(v) for k, v in audit.statistics.model_dump().items()},
    }
    return TrackedCell(
        cell=stored.identity if value is None else digest_json([stored.identity, instruction]),
        name=" · ".join([model] + [instruction] * (value is not None)),
        model=None if value is not None else _model(stored),
        parameters=parameters,
        tags={
            SHOWS_TAG: "checkpoint" if value is None else "instruction",
            "plumbline.instruction": instruction,
            WEIGHTS_TAG: stored.version,
            # No parameters: the comparison of runs has an axis for each of the first that differ.
            "plumbline.address": lvlm_address(entry),
            "plumbline.audit_file": audit_file(stored.workspace),
            "plumbline.prompts": str(details["prompts"]),
            **run_note(context, f"Generative model `{model}`", asset="tracked_answers", report=report_of(model)),
        },
        headlines=scorecard_numbers(of_scorer(rows, first)) if value is None else {},
        metrics=headlines_of_answers(rows, first_scorer=first),
        files=files,
    )


def _model(stored: StoredAnswers) -> TrackedModel:
    entry = stored.workspace.audit.lvlms[stored.model]
    return TrackedModel(
        stored.model,
        weights=stored.version,
        dataset=", ".join(stored.slices),
        dataset_digest=digest_json(sorted(one.dataset for one in stored.slices.values())),
        parameters={"address": lvlm_address(entry)},
    )
