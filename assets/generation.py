"""What a generative model answers about one slice, and what scorers say of the answers."""

import time
from typing import Any

import dagster as dg
import polars as pl

from assets.gates import require_passed
from assets.partitions import ANSWERS, answers_of
from assets.plans import require_within_limit
from assets.progress import progress_of
from assets.recorded import asset
from assets.results import OWNERS, materialised
from assets.slices import AskedSlice, asked_for, asked_slice
from plumbline.catalog.prompts import prompts_hash
from plumbline.catalog.schema import SCORE_SCHEMA
from plumbline.errors import CheckpointError
from plumbline.generators.backend import Backend, Decoding
from plumbline.generators.design import asked_rows
from plumbline.generators.generation import GenerationStore, answer_table, generate
from plumbline.generators.stored_answers import StoredAnswers
from plumbline.scorers.scoring import join_scores, score_texts
from plumbline.storage import Committed
from resources.lvlms import LvlmPool, scorer_version
from resources.workspace import Workspace

_ROW_GROUP_ROWS = 10_000
"""Of tables that are streamed: Polars reads a fixed number of groups ahead, whatever their size."""
_SHOWN = ("prompt", "instruction", "seed", "text", "finish_reason", "new_tokens")


_SPEC = {
    "partitions_def": ANSWERS,
    "group_name": "generation",
    "owners": OWNERS,
    "kinds": {"pytorch", "parquet"},
    "pool": "gpu",
    "code_version": "1",
}


@asset(deps=["pictured_people", "lvlm_checkpoint", "generation_prompts"], **{**_SPEC, "code_version": "2"})
def generations(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], lvlms: dg.ResourceParam[LvlmPool]
) -> dg.MaterializeResult:
    """Answers of one generative model on one slice: one per image, prompt, instruction and seed.

    Sampling is seeded per row, so that a text does not depend on what else is generated. Finished rows are kept and
    never generated again; a new prompt generates only its own rows. An image is read once for all its prompts and
    seeds. Refusals count as answers. Answers that were given elsewhere are read from their files.
    """
    model, slice_id = answers_of(context)
    sliced, version = asked_slice(workspace, model, slice_id), workspace.lvlm_version(model)
    require_passed(workspace, sliced.dataset, of=("records",))
    require_within_limit(workspace, model, slice_id)
    backend, decoding = lvlms.backend(model), workspace.decoding(model)
    questions = asked_rows(
        sliced.rows,
        sliced.entries,
        identity=backend.identity,
        decoding=decoding,
        root=workspace.dataset_root(sliced.dataset),
        sees=model not in workspace.audit.base_llms,
        articles=workspace.audit.generation.articles,
    )
    missing = {}
    if isinstance(backend, StoredAnswers):
        questions, lacking = backend.answered(questions)
        missing = {"questions_without_answer": lacking, "answers_not_used_here": backend.surplus(len(questions))}
    start = time.perf_counter()
    with progress_of(f"{model}, {slice_id}: generating") as progress:
        answered = generate(
            backend, questions, decoding, GenerationStore(workspace.answers), shard=slice_id, progress=progress
        )
    seconds = time.perf_counter() - start
    _require_version(workspace, model, version)
    frame = answer_table(questions, sliced.rows, answered.frame, model=model, dataset=sliced.dataset)
    work = {"generated": answered.generated, "found": answered.reused, **missing}
    details = {
        "version": version,
        **_asked_details(workspace, sliced, backend, decoding),
        "sources": dict(frame["source"].value_counts().sort("source").iter_rows()),
        "tokens_per_second": _rate(workspace, context.partition_key, frame, answered.generated, seconds),
        **work,
    }
    committed = _write(workspace, "generations", frame, partition=context.partition_key, details=details)
    return materialised(
        committed,
        lake=workspace.lake,
        frame=frame.select(_SHOWN),
        rows_per_second=answered.generated / seconds,
        own_decoding=dg.MetadataValue.json(getattr(backend, "own_decoding", {})),
        answers_with_thinking=int((frame["thinking"].fill_null("") != "").sum()),
        thinking_tokens=int(frame["thinking_tokens"].sum()),
        finish_reasons=dg.MetadataValue.json(dict(frame["finish_reason"].value_counts().iter_rows())),
        **work,
    )


def _asked_details(workspace: Workspace, sliced: AskedSlice, backend: Backend, decoding: Decoding) -> dict[str, Any]:
    """Return of what and how a slice was asked: what its answers hold for."""
    return {
        "identity": backend.identity,
        "pictured": workspace.lake.require("pictured_people", partition=sliced.id).sha256,
        "asked_for": asked_for(sliced),
        "prompts": prompts_hash(),
        "decoding": vars(decoding),
        "sent": list(getattr(backend, "sent", vars(decoding))),
        "own_decoding": getattr(backend, "own_decoding", {}),
        "switches": getattr(backend, "switches", {}),
        "device": backend.device,
    }


def _write(
    workspace: Workspace, name: str, frame: pl.DataFrame, *, partition: str, details: dict[str, Any]
) -> Committed:
    return workspace.lake.write_table(name, frame, partition=partition, details=details, row_group_rows=_ROW_GROUP_ROWS)


def _require_version(workspace: Workspace, model: str, version: str) -> None:
    """Stop where the files are no longer those that answered: what was answered is kept under their identity."""
    if (now := workspace.lvlm_version(model)) != version:
        raise CheckpointError(
            f"the checkpoint of `{model}` was replaced while it answered",
            found=f"version {now[:16]}…",
            expected=f"version {version[:16]}…",
            hint="run again: the new one is asked anew",
        )


def _rate(workspace: Workspace, partition: str, frame: pl.DataFrame, generated: int, seconds: float) -> float | None:
    """Return new tokens a second of this run; of an earlier one where nothing was generated now."""
    if generated and (tokens := int(frame["new_tokens"].sum()) * generated / frame.height):
        return tokens / seconds
    earlier = workspace.lake.committed("generations", partition=partition)
    return None if earlier is None else earlier.details.get("tokens_per_second")


@asset(deps=["generations", "answer_words"], **_SPEC)
def toxicity_scores(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], lvlms: dg.ResourceParam[LvlmPool]
) -> dg.MaterializeResult:
    """Toxicity, insult, identity-attack and flirtation scores of each answer, by every scorer of the audit file.

    Each distinct text is scored once per version of a scorer. A text that a scorer could not score keeps its row,
    with the reason.
    """
    model, _ = answers_of(context)
    committed = workspace.lake.require("generations", partition=context.partition_key)
    texts = workspace.lake.read_table("generations", manifest=committed).select("row_key", "text")
    frames, scorers = [pl.DataFrame(schema=SCORE_SCHEMA)], {}
    for name in workspace.audit.scorers:
        scorer = lvlms.scorer(name)
        with progress_of(f"{context.partition_key}: scoring by {name}") as progress:
            scored = score_texts(scorer, [texts], workspace.scores / model, rows=texts.height, progress=progress)
        frames.append(join_scores(texts, scored, name).collect())
        scorers[name] = {
            "settings": scorer_version(workspace, name),
            "identity": scorer.identity,
            "version": scorer.version,
            "stand_in": scorer.offline_stand_in,
        }
    # A streamed join gives its rows in any order; equal content must be equal bytes.
    frame = pl.concat(frames).sort("scorer", "attribute", "row_key")
    details = {"generations": committed.sha256, "scorers": scorers, "device": workspace.audit.device}
    written = _write(workspace, "toxicity_scores", frame, partition=context.partition_key, details=details)
    means = frame.group_by("scorer", "attribute", maintain_order=True).agg(
        pl.col("score").is_nan().sum().alias("without"),
        pl.col("truncated").sum(),
        pl.col("score").fill_nan(None).mean().alias("mean"),
    )
    return materialised(written, lake=workspace.lake, frame=means)
