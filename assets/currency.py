"""Which cells and generative models of an audit have numbers that hold today, and why the others have none."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from assets.answers import StoredAnswers
from assets.cells import CELL_TABLES, StoredCell
from assets.gates import failed_checks
from assets.language import LANGUAGE_TABLES
from assets.slices import asked_for
from assets.sources import checkpoint_versions, dataset_versions, lvlm_versions
from plumbline.errors import PlumblineError
from plumbline.report import AbsentCell
from plumbline.tables.generation_prompts import prompts_hash
from resources.places import Places


@dataclass(frozen=True)
class Currency:
    """The audited cells and generative models, sorted.

    Attributes
    ----------
    current : list of (dataset, encoder, cell id)
        Passed their checks, and computed from the data, checkpoints, prompts and settings of now.
    absent : list of AbsentCell
        The others, each with its reason; a generative model without numbers is one of all its datasets.
    models : list of (generative model, identity)
        As `current`.
    """

    current: list[tuple[str, str, str]]
    absent: list[AbsentCell]
    models: list[tuple[str, str]] = field(default_factory=list)


def sort_cells(places: Places, instance: dg.DagsterInstance) -> Currency:
    """Compare what is stored of every audited cell with its sources as they are on disk now."""
    datasets, checkpoints = dataset_versions(places), checkpoint_versions(places)
    current, absent = [], []
    for dataset, model in places.audit.cells:
        try:
            refused = failed_checks(instance, places, dataset, of=("records", "extended_records"))
            if refused:
                raise PlumblineError(f"refused, since checks have not passed: {', '.join(refused)}")
            stored = StoredCell.find(places, dataset, model)
            _require_todays(stored, datasets, checkpoints)
            current.append((dataset, model, stored.identity))
        except PlumblineError as error:
            absent.append(AbsentCell(model=model, dataset=dataset, reason=error.what))
    models, unanswered = _sort_models(places, instance, datasets)
    return Currency(current, [*absent, *unanswered], models)


def _sort_models(
    places: Places, instance: dg.DagsterInstance, datasets: dict[str, str]
) -> tuple[list[tuple[str, str]], list[AbsentCell]]:
    """Compare what is stored of every generative model with its sources as they are now."""
    asked: dict[str, list[str]] = {}
    for model, dataset in places.audit.designs:
        asked.setdefault(model, []).append(dataset)
    versions = lvlm_versions(places) if asked else {}
    current, absent = [], []
    for model, about in asked.items():
        try:
            for dataset in about:
                refused = failed_checks(instance, places, dataset, of=("records",))
                if refused:
                    raise PlumblineError(
                        f"refused, since checks of {dataset} have not passed: {', '.join(refused)}"
                    )
            stored = StoredAnswers.find(places, model)
            _require_todays_answers(stored, datasets, versions)
            current.append((model, stored.identity))
        except PlumblineError as error:
            absent.append(AbsentCell(model=model, dataset=", ".join(about), reason=error.what))
    return current, absent


def _require_todays_answers(
    stored: StoredAnswers, datasets: dict[str, str], versions: dict[str, str]
) -> None:
    places, lake = stored.places, stored.places.lake
    pairs = {"checkpoint": (stored.version, versions.get(stored.model))}
    for name, made in stored.answers.items():
        records = lake.require("records", partition=stored.slices[name].dataset).details
        today = datasets.get(stored.slices[name].dataset)
        pairs[f"dataset folder of {name}"] = (records["folder_digest"], today)
        pairs[f"people of {name}"] = (
            stored.people[name].details["dataset_digest"],
            records["dataset_digest"],
        )
        pairs[f"prompts of {name}"] = (made.details["prompts"], prompts_hash())
        pairs[f"decoding of {name}"] = (
            made.details["decoding"],
            places.audit.generation.decoding.model_dump(),
        )
        pairs[f"questions of {name}"] = (
            made.details["asked_for"],
            asked_for(stored.slices[name]),
        )
        pairs[f"scorers of {name}"] = (
            list(stored.scores[name].details["scorers"]),
            list(places.audit.scorers),
        )
    for name in LANGUAGE_TABLES:
        made = lake.require(name, partition=stored.model)
        pairs[name] = (made.details["cell_id"], stored.identity)
    _require_equal(pairs)


def _require_todays(stored: StoredCell, datasets: dict[str, str], checkpoints: dict[str, str]) -> None:
    places, records, labels = stored.places, stored.records.details, stored.extended.details
    entry, labeller = places.dataset_entry(stored.dataset), places.audit.labeller
    pairs = {
        "dataset folder": (records["folder_digest"], datasets.get(stored.dataset)),
        "reader": (records["reader"], entry.reader),
        "padding": (records["padding"], entry.padding),
        "column map": (records.get("map"), entry.map.model_dump(mode="json") if entry.map else None),
        "checkpoint": (stored.logits.details["checkpoint"], checkpoints.get(stored.model)),
        "labeller": (labels["labeller_digest"], checkpoints.get(labeller)),
        "engine": (stored.logits.details["engine"], places.declared_engine),
        "engine of the labeller": (labels.get("engine"), places.declared_engine),
    }
    for name in CELL_TABLES:
        made = places.lake.require(name, partition=stored.partition)
        pairs[name] = (made.details["cell_id"], stored.identity)
    _require_equal(pairs)


def _require_equal(pairs: Mapping[str, tuple[object, object]]) -> None:
    changed = [name for name, (then, now) in pairs.items() if then != now]
    if changed:
        raise PlumblineError(
            f"out of date: {', '.join(changed)} changed since it was computed; run the audit again"
        )
