"""Which cells and generative models of an audit have numbers that hold today, and why the others have none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import dagster as dg

from assets.answers import StoredAnswers
from assets.cells import CELL_TABLES, StoredCell
from assets.checks import must_pass
from assets.gates import NOT_AUDITED, checks_not_passed, refusal
from assets.language import LANGUAGE_TABLES
from assets.slices import asked_for
from assets.sources import checkpoint_versions, dataset_versions, lvlm_versions
from plumbline.catalog.prompts import prompts_hash
from plumbline.catalog.suites import load_suite
from plumbline.errors import PlumblineError
from plumbline.report import AbsentCell
from resources.lvlms import backend_identity, scorer_version
from resources.workspace import Workspace


class CurrentCell(NamedTuple):
    """An encoder on a dataset, and the identity of the cell."""

    dataset: str
    encoder: str
    cell: str


class CurrentModel(NamedTuple):
    """A generative model, the identity of its answers, and the families of language metrics that hold."""

    model: str
    cell: str
    families: list[str]


@dataclass(frozen=True)
class Staleness:
    """The audited cells and generative models, sorted.

    Attributes
    ----------
    current : list of CurrentCell
        Passed their checks, and computed from the data, checkpoints, prompts and settings of now.
    absent : list of AbsentCell
        The others, each with its reason; a generative model without numbers is one of all its datasets.
    models : list of CurrentModel
        As `current`; families of language metrics that do not hold are in `absent`.
    """

    current: list[CurrentCell]
    absent: list[AbsentCell]
    models: list[CurrentModel] = field(default_factory=list)


def sort_cells(workspace: Workspace, instance: dg.DagsterInstance) -> Staleness:
    """Compare what is stored of every audited cell with its sources as they are on disk now."""
    datasets, checkpoints = dataset_versions(workspace), checkpoint_versions(workspace)
    current, absent = [], []
    for dataset, model in workspace.audit.cells:
        try:
            checks = checks_not_passed(instance, workspace, dataset, of=must_pass(workspace, dataset))
            if refused := refusal(checks):
                raise PlumblineError(refused)
            if workspace.lake.committed("probe_logits", partition=f"{dataset}|{model}") is None:
                raise PlumblineError(NOT_AUDITED)
            stored = StoredCell.find(workspace, dataset, model)
            _require_todays(stored, datasets, checkpoints)
            current.append(CurrentCell(dataset, model, stored.identity))
        except PlumblineError as error:
            absent.append(AbsentCell(model=model, dataset=dataset, reason=error.what))
    answered = _sort_models(workspace, instance, datasets)
    return Staleness(current, [*absent, *answered.absent], answered.models)


def _sort_models(workspace: Workspace, instance: dg.DagsterInstance, datasets: dict[str, str]) -> Staleness:
    """Compare what is stored of every generative model with its sources as they are now; of no encoder."""
    by_model: dict[str, list[str]] = {}
    for model, dataset in workspace.audit.designs:
        by_model.setdefault(model, []).append(dataset)
    versions = lvlm_versions(workspace) if by_model else {}
    staleness = Staleness([], [])
    for model, about in by_model.items():
        try:
            for dataset in about:
                checks = checks_not_passed(instance, workspace, dataset, of=("records",))
                if refused := refusal(checks, of=dataset):
                    raise PlumblineError(refused)
            stored = StoredAnswers.find(workspace, model)
            _require_todays_answers(stored, datasets, versions)
            families = _current_families(stored)
            if families:
                staleness.models.append(CurrentModel(model, stored.identity, families))
            if lacking := [name for name in LANGUAGE_TABLES if name not in families]:
                raise PlumblineError(f"not computed, or out of date: {', '.join(lacking)}")
        except PlumblineError as error:
            staleness.absent.append(AbsentCell(model=model, dataset=", ".join(about), reason=error.what))
    return staleness


def _require_todays_answers(stored: StoredAnswers, datasets: dict[str, str], versions: dict[str, str]) -> None:
    workspace, lake = stored.workspace, stored.workspace.lake
    identity = backend_identity(workspace, stored.model)
    scorers = {name: scorer_version(workspace, name) for name in workspace.audit.scorers}
    pairs: dict[str, tuple[object, object]] = {"checkpoint": (stored.version, versions.get(stored.model))}
    for name, committed in stored.answers.items():
        records = lake.require("records", partition=stored.slices[name].dataset).details
        today = _records_today(workspace, stored.slices[name].dataset, records, datasets)
        pairs |= {f"{what} of {name}": pair for what, pair in today.items()}
        pairs[f"engine of {name}"] = (committed.details["identity"], identity)
        pairs[f"people of {name}"] = (stored.people[name].details["dataset_digest"], records["dataset_digest"])
        pairs[f"prompts of {name}"] = (committed.details["prompts"], prompts_hash())
        pairs[f"decoding of {name}"] = (committed.details["decoding"], workspace.audit.generation.decoding.model_dump())
        pairs[f"questions of {name}"] = (committed.details["asked_for"], asked_for(stored.slices[name]))
        used = stored.scores[name].details["scorers"]
        pairs[f"scorers of {name}"] = ({n: about["settings"] for n, about in used.items()}, scorers)
    _require_equal(pairs)


def _current_families(stored: StoredAnswers) -> list[str]:
    """Return the families that were computed from what is stored now."""
    tables = {name: stored.workspace.lake.committed(name, partition=stored.model) for name in LANGUAGE_TABLES}
    return [n for n, committed in tables.items() if committed and committed.details["cell_id"] == stored.identity]


def _require_todays(stored: StoredCell, datasets: dict[str, str], checkpoints: dict[str, str]) -> None:
    workspace, records, labels = stored.workspace, stored.records.details, stored.extended.details
    labeller = workspace.audit.labeller
    pairs = {
        **_records_today(workspace, stored.dataset, records, datasets),
        "checkpoint": (stored.logits.details["checkpoint"], checkpoints.get(stored.model)),
        "labeller": (labels["labeller_digest"], checkpoints.get(labeller)),
        "prompts of the labeller": (labels["suite_hash"], load_suite("gender_labels").hash),
        "engine": (stored.logits.details["engine"], workspace.declared_engine),
        "engine of the labeller": (labels.get("engine"), workspace.declared_engine),
    }
    for name in CELL_TABLES:
        committed = workspace.lake.require(name, partition=stored.partition)
        pairs[name] = (committed.details["cell_id"], stored.identity)
    _require_equal(pairs)


def _records_today(
    workspace: Workspace, dataset: str, records: Mapping[str, Any], datasets: dict[str, str]
) -> dict[str, tuple[object, object]]:
    """Return what records were read from and how, then and now."""
    entry = workspace.dataset_entry(dataset)
    return {
        "dataset folder": (records["folder_digest"], datasets.get(dataset)),
        "reader": (records["reader"], entry.reader),
        "padding": (records["padding"], entry.padding),
        "column map": (records.get("map"), entry.map.model_dump(mode="json") if entry.map else None),
    }


def _require_equal(pairs: Mapping[str, tuple[object, object]]) -> None:
    changed = [name for name, (then, now) in pairs.items() if then != now]
    if changed:
        raise PlumblineError(f"out of date: {', '.join(changed)} changed since it was computed; run the audit again")
