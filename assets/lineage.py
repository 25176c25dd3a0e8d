"""The chain from a number back to its sources: its table, what models gave, prompts, people, checkpoints, datasets."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assets.answers import StoredAnswers
from assets.cells import StoredCell
from plumbline.catalog.prompts import prompts_hash, render
from plumbline.catalog.suites import TASKS, Suite, load_suite
from plumbline.datasets.ingestion import folder_digest
from plumbline.digests import digest_json
from plumbline.errors import PlumblineError, StorageError, StoredDataGone
from plumbline.provenance.chain import Link, State, changed_files, compared
from plumbline.provenance.explanation import prompts_asked
from plumbline.storage import Committed
from plumbline.world.folders import PLANTED, world_version
from resources.lvlms import scorer_version
from resources.workspace import Workspace


def stored_link(workspace: Workspace, level: int, what: str, committed: Committed, note: str = "") -> Link:
    """Return the link of something stored, whose bytes are read and compared with its manifest."""
    name = f"{committed.name} {committed.partition}".strip()
    try:
        workspace.lake.verify(committed)
    except StorageError as error:
        state: State = "gone" if isinstance(error, StoredDataGone) else "changed"
        return Link(level, what, name, committed.sha256, state, f"{error.what}: {error.where}")
    return Link(level, what, name, committed.sha256, "unchanged", note)


def table_links(workspace: Workspace, row: Mapping[str, Any], family: Committed | None) -> Iterator[Link]:
    """Yield the links of the metric table and of the family table that the row comes from."""
    table = workspace.lake.require("metric_table")
    yield stored_link(workspace, 0, "metric table", table, f"audit {row['audit_id'][:12]}")
    if family is not None:
        yield stored_link(workspace, 1, "table of the metric family", family, _made_by(workspace, row))


def _made_by(workspace: Workspace, row: Mapping[str, Any]) -> str:
    runs = workspace.lake.read_table("provenance")
    of_cell = runs.filter(runs["cell_id"] == row["cell_id"]).to_dicts()
    if not of_cell:
        return "its runs are not recorded"
    run = of_cell[0]
    mlflow = f"MLflow run {run['mlflow_run']}" if run["mlflow_run"] else "no MLflow run"
    return f"Dagster run {run['dagster_run']}, {mlflow}, finished {run['finished_at']} on {run['device']}"


def cell_chain(
    workspace: Workspace, row: Mapping[str, Any], family: Committed | None, verified: dict[str, Link]
) -> Iterator[Link]:
    """Yield the chain of a row of one encoder on one dataset; `verified` keeps the links of dataset folders."""
    stored = StoredCell.find(workspace, row["dataset"], row["model"])
    yield from table_links(workspace, row, family)
    yield stored_link(workspace, 2, "responses of the model (probe_logits)", stored.logits)
    images = workspace.lake.require("image_embeddings", partition=stored.partition)
    yield stored_link(workspace, 3, "image embeddings", images)
    yield from _shards(workspace, images)
    texts = workspace.lake.require("text_embeddings", partition=stored.model)
    yield stored_link(workspace, 3, "text embeddings", texts)
    yield from prompt_links(row, stored.suites)
    yield from checkpoint_links(
        workspace, 4, stored.model, texts.details["weights_sha256"], texts.details["checkpoint"]
    )
    if row["labeller_sha256"] is not None:
        about = stored.extended.details
        yield stored_link(workspace, 2, "automatic labels (extended_records)", stored.extended)
        yield from checkpoint_links(
            workspace, 3, about["labeller"], about["labeller_sha256"], about["labeller_digest"], what="labeller"
        )
    yield stored_link(workspace, 3, "records", stored.records)
    if stored.dataset not in verified:
        verified[stored.dataset] = dataset_link(workspace, 4, stored.dataset, stored.records)
    yield verified[stored.dataset]


def text_chain(workspace: Workspace, row: Mapping[str, Any], family: Committed | None) -> Iterator[Link]:
    """Yield the chain of a row of a text space, which has no images."""
    yield from table_links(workspace, row, family)
    texts = workspace.lake.require("text_embeddings", partition=row["model"])
    yield stored_link(workspace, 2, "text embeddings", texts)
    yield from prompt_links(row, (load_suite("perception"),))
    yield from checkpoint_links(
        workspace, 3, row["model"], texts.details["weights_sha256"], texts.details["checkpoint"]
    )


def _shards(workspace: Workspace, images: Committed) -> Iterator[Link]:
    listed = images.details.get("shards", [])
    if not listed:
        return
    lost = []
    for shard in listed:
        shard_now = workspace.shards.load(shard["key"])
        if shard_now is None or shard_now.sha256 != shard["sha256"]:
            lost.append(shard["key"][:12])
    note = f"{len(lost)} gone or damaged: {', '.join(lost)}" if lost else ""
    digest = digest_json([shard["sha256"] for shard in listed])
    yield Link(4, "shards of image embeddings", f"{len(listed)} shards", digest, "gone" if lost else "unchanged", note)


def prompt_links(row: Mapping[str, Any], suites: tuple[Suite, ...]) -> Iterator[Link]:
    """Yield the link of the prompts, rendered, as this version has them; those of the row's event first."""
    known = {suite.hash: (suite.id, prompts_asked(suite, row)) for suite in suites}
    tasks = [suite for task in TASKS for suite in suites if suite.id == task]
    together = tuple(text for suite in tasks for text in prompts_asked(suite, row))
    known[digest_json([suite.hash for suite in tasks])] = (", ".join(TASKS), together)
    recorded = row["suite_hash"]
    name, texts = known.get(recorded, (str(row["suite"]), ()))
    if recorded is None:
        yield Link(4, "prompts", name, None, "not checked")
    elif recorded in known:
        yield Link(4, "prompts", f"suite {name}", recorded, "unchanged", f"{len(texts)} prompts", tuple(texts))
    else:
        note = "no suite of this version has these prompts; they are named in the manifest of the text embeddings"
        yield Link(4, "prompts", f"suite {name}", recorded, "changed", note)


def checkpoint_links(
    workspace: Workspace, level: int, model: str, weights: str, digest: str, *, what: str = "checkpoint"
) -> Iterator[Link]:
    """Yield the checkpoint as a whole and file by file, compared with what is on disk."""
    try:
        files = workspace.checkpoint(model)
    except PlumblineError as error:
        note = error.what + (f": {error.where}" if error.where else "")
        yield Link(level, f"{what}: weights", model, weights, "gone", note)
        return
    state = compared(weights, files.weights_sha256)
    note = "" if state == "unchanged" else f"now sha256 {files.weights_sha256[:12]}"
    several = f"{len(files.weights)} files, by their names and sha256: {files.folder}"
    yield Link(
        level, f"{what}: weights", str(files.weights[0]) if len(files.weights) == 1 else several, weights, state, note
    )
    # What was recorded is the digest of the files' names and digests together.
    whole = digest_json([files.family, files.digest])
    others = [f"{name} sha256 {sha256}" for name, sha256 in files.deciding]
    state = compared(digest, whole)
    note = "all of them as they were" if state == "unchanged" else "at least one of them has changed; listed as now"
    yield Link(
        level, f"{what}: all deciding files", model, digest, state, f"{len(others)} files; {note}", tuple(others)
    )


def dataset_root(workspace: Workspace, dataset: str) -> Path:
    """Return a dataset's folder as it is: a planted one that is gone is not written again."""
    root = workspace.dataset_entry(dataset).root
    if root.startswith(PLANTED):
        kind = root.removeprefix(PLANTED)
        return workspace.home / "world" / f"{kind}-{world_version()}" / kind
    return workspace.dataset_root(dataset)


def dataset_link(workspace: Workspace, level: int, dataset: str, records: Committed) -> Link:
    """Return the link of a dataset's folder: index and every listed file, compared with what is on disk."""
    recorded, what = records.details["folder_digest"], "dataset folder: index and images"
    reader = workspace.dataset_entry(dataset).open_reader()
    root = dataset_root(workspace, dataset)
    try:
        now = folder_digest(reader, root)
        index = ", ".join(reader.index_files(root)) or "the file names"
    except PlumblineError as error:
        return Link(level, what, str(root), recorded, "gone", f"{error.what}: {error.found or error.where or ''}")
    state = compared(recorded, now)
    note = f"index: {index}; dataset digest {records.details['dataset_digest']}"
    if state == "changed":
        listed = workspace.lake.read_table("records", manifest=records).select("path", "image_id")
        changed = changed_files(root, dict(listed.iter_rows()))
        changes = str(changed) or "every recorded image is as it was; the index or refused files have changed"
        note = f"{changes}; {note}"
        state = "gone" if changed.gone and not changed.changed else state
    return Link(level, what, str(root), recorded, state, note)


def answer_chain(workspace: Workspace, row: Mapping[str, Any], family: Committed | None) -> Iterator[Link]:
    """Yield the chain of a row of one generative model."""
    stored = StoredAnswers.find(workspace, row["model"])
    yield from table_links(workspace, row, family)
    yield from _of_model(stored, row, scorer=row["scorer"])
    if stored.base_llm is not None and "base_llm" in row["metric"]:
        yield from _of_model(stored.base_llm, row, scorer=row["scorer"])


def _of_model(stored: StoredAnswers, row: Mapping[str, Any], *, scorer: str | None) -> Iterator[Link]:
    workspace, datasets = stored.workspace, set()
    for name, asked_slice in stored.slices.items():
        if row["dataset"] not in (asked_slice.dataset, None):
            continue
        datasets.add(asked_slice.dataset)
        if scorer is not None:
            yield stored_link(workspace, 2, "scores of the answers", stored.scores[name])
            yield _scorer(workspace, scorer, stored.scores[name])
        yield stored_link(workspace, 3, "answers", stored.answers[name])
        yield stored_link(workspace, 4, "who is pictured", stored.people[name])
    yield _prompts(stored, row)
    yield _model(stored)
    for dataset in sorted(datasets):
        records = workspace.lake.require("records", partition=dataset)
        yield stored_link(workspace, 5, "records", records)
        yield dataset_link(workspace, 6, dataset, records)


def _scorer(workspace: Workspace, scorer: str, scores: Committed) -> Link:
    about = scores.details["scorers"].get(scorer, {})
    try:
        state = compared(about.get("settings"), scorer_version(workspace, scorer))
        note = "a stand-in, no real scorer" if about.get("stand_in") else ""
    except (PlumblineError, KeyError) as error:
        state, note = "gone", str(getattr(error, "what", error))
    return Link(3, "scorer", scorer, about.get("identity"), state, note)


def _prompts(stored: StoredAnswers, row: Mapping[str, Any]) -> Link:
    recorded = next(iter(stored.answers.values())).details["prompts"]
    texts: tuple[str, ...] = ()
    if row["prompt"] is not None:
        instruction = {"instruction": row["instruction"]} if row["instruction"] else {}
        try:
            texts = (render(row["prompt"], occupation="[occupation]", **instruction),)
        except PlumblineError as error:
            texts = (error.what,)
    name = f"prompt {row['prompt'] or 'all'}, instruction {row['instruction'] or 'none'}"
    return Link(4, "prompts and instructions", name, recorded, compared(recorded, prompts_hash()), "", texts)


def _model(stored: StoredAnswers) -> Link:
    workspace, recorded = stored.workspace, stored.version
    try:
        now = workspace.lvlm_version(stored.model)
        entry = workspace.lvlm_entry(stored.model)
        files = None if entry.address is None else workspace.lvlm_files(stored.model)
    except PlumblineError as error:
        return Link(4, "checkpoint", stored.model, recorded, "gone", error.what)
    if entry.answers is not None:
        name = ", ".join(entry.answers.files)
        return Link(4, "stored answers", name, recorded, compared(recorded, now), "files, and how they are read")
    if files is None:
        note = "an endpoint: what it is asked for is recorded, what answers there cannot be checked"
        return Link(4, "endpoint", stored.model, recorded, compared(recorded, now), note)
    texts = (*(path.name for path in files.weights), f"sha256 {files.weights_sha256}")
    note = f"weights sha256 {files.weights_sha256}" if recorded == now else "files of the checkpoint have changed"
    return Link(4, "checkpoint", str(files.folder), recorded, compared(recorded, now), note, texts)
