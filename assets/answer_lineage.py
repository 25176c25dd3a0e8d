"""The chain of a generative model's number: answers and scores, prompts, the people pictured, the model."""

from collections.abc import Iterator, Mapping
from typing import Any

from assets.answers import StoredAnswers
from assets.lineage import dataset_link, stored_link, table_links
from plumbline.catalog.prompts import prompts_hash, render
from plumbline.errors import PlumblineError
from plumbline.provenance.chain import Link, compared
from plumbline.storage import Committed
from resources.lvlms import scorer_version
from resources.workspace import Workspace


def answer_chain(workspace: Workspace, row: Mapping[str, Any], family: Committed | None) -> Iterator[Link]:
    """Yield the chain of a row of one generative model."""
    stored = StoredAnswers.find(workspace, row["model"])
    yield from table_links(workspace, row, family)
    yield from _of_model(stored, row, scorer=row["scorer"])
    if stored.twin is not None and ("llm" in row["metric"] or "twin" in row["metric"]):
        yield from _of_model(stored.twin, row, scorer=row["scorer"])


def _of_model(stored: StoredAnswers, row: Mapping[str, Any], *, scorer: str | None) -> Iterator[Link]:
    workspace, datasets = stored.workspace, set()
    for name, asked in stored.slices.items():
        if row["dataset"] not in (asked.dataset, None):
            continue
        datasets.add(asked.dataset)
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
        endpoint = workspace.lvlm_entry(stored.model).endpoint
        files = None if endpoint is not None else workspace.lvlm_files(stored.model)
    except PlumblineError as error:
        return Link(4, "checkpoint", stored.model, recorded, "gone", error.what)
    if files is None:
        note = "an endpoint: what it is asked for is recorded, what answers there cannot be checked"
        return Link(4, "endpoint", stored.model, recorded, compared(recorded, now), note)
    texts = (*(path.name for path in files.weights), f"sha256 {files.weights_sha256}")
    note = (
        f"weights sha256 {files.weights_sha256}"
        if recorded == now
        else "files of the checkpoint have changed"
    )
    return Link(4, "checkpoint", str(files.folder), recorded, compared(recorded, now), note, texts)
