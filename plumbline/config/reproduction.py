"""How far an audit file reproduces the papers: which printed table it covers, and whether by the paper's protocol."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import polars as pl

from plumbline.catalog.published import differences, published_tables, published_values, published_words
from plumbline.catalog.schema import NO_INSTRUCTION, Schema
from plumbline.catalog.studies import recognise
from plumbline.catalog.suites import TASKS
from plumbline.config.audit import Audit
from plumbline.world.folders import PLANTED

TEXT, GENERATION, OUTCOMES = "text", "generation", "outcomes"
"""Dataset of a text space, and the suites of generated texts and of several tasks together."""

_ANNOTATED = ("fleiss_kappa", "judge_precision", "judge_recall")
_UNPUBLISHED: dict[str, str] = {
    "absent": "no number is printed",
    "suspect": "a copy error of the paper, as it seems",
    "not_comparable": "not comparable as printed",
}
_MIXED = {"trident_mixed": "trident"}

REPRODUCTION_SCHEMA: Schema = {
    "paper": pl.String,
    "table": pl.String,
    "title": pl.String,
    "cells": pl.Int64,
    "reproduced": pl.Int64,
    "other_protocol": pl.Int64,
    "cannot": pl.Int64,
    "why": pl.String,
}
"""One row a table of a paper of which an audit measures anything: how many of its cells are measured as the paper did,
by another protocol, and cannot be. `why`: each reason with its number of cells, the most frequent first; of a table
without results, such as a list of prompts, what it is here."""


class State(NamedTuple):
    """How far a published cell is reproduced, and why no further: a reason, and what it is about."""

    how: Literal["reproduced", "other_protocol", "cannot"]
    reason: str | None = None
    about: str | None = None


class Run:
    """What an audit file runs, in the words of the published values.

    Parameters
    ----------
    audit : Audit
    addresses : mapping of str to str
        Model -> address, as `plumbline.report.comparison.compare_with_published` takes them.
    datasets : mapping of str to str
        Dataset -> reader, those of the planted world left out.
    """

    def __init__(self, audit: Audit, addresses: Mapping[str, str], datasets: Mapping[str, str]) -> None:
        self.audit, self.datasets = audit, datasets
        known = {model: checkpoint.id for model, address in addresses.items() if (checkpoint := recognise(address))}
        self.models = {name: [m for m, of in known.items() if of == name] for name in known.values()}

    @property
    def scorer_kinds(self) -> set[str]:
        """Return the kinds of the scorers."""
        return {getattr(entry, "origin", None) or entry.kind for entry in self.audit.scorers.values()}

    @cached_property
    def _mitigations(self) -> dict[str, dict[str, Any]]:
        return {
            name: {key: value for key, value in settings.model_dump(mode="json").items() if value is not None}
            for name, settings in self.audit.mitigations.items()
        }

    def protocol(self, model: str, dataset: str, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Return how this audit makes the number of a published cell, in the keys of the papers' protocols.

        Of a mitigation its settings, `fit_on` (the reader of the dataset that it is fitted on), `pairs` (of images
        and texts; `labels`: captions are made of labels) and `artefacts` (`the authors'`, where the file gives
        parameters or pairs of prompts, or `Plumbline's`). Of generated texts the decoding, the number of `seeds`, and
        `sets`: all, or a sample.
        """
        condition = str(cell.get("condition"))
        if condition in self._mitigations:
            settings = self._mitigations[condition]
            given = "from" in settings
            untrained = settings["method"] == "bias_prompts"
            trained_on = {} if given or untrained else self._trained_on(settings, dataset)
            given |= untrained and "pairs" in settings
            return {**settings, **trained_on, "artefacts": "the authors'" if given else "Plumbline's"}
        if cell.get("suite") != GENERATION:
            return {}
        decoding = {**self.audit.generation.decoding.values, **self.audit.lvlms[model].decoding.values}
        entries = [e for e in self.audit.designs.get((model, dataset), ()) if _asks(e, cell)]
        seeds = {seed for entry in entries for seed in entry.seeds}
        sampled = all(e.occupations is not None or e.sets_per_occupation is not None for e in entries)
        endpoint = self.audit.lvlms[model].endpoint
        return {
            "temperature": None if endpoint and endpoint.defaults else decoding.get("temperature", 0.75),
            "max_new_tokens": decoding.get("max_new_tokens", 512),
            "seeds": len(seeds),
            "sets": "a sample" if sampled else "all",
        }

    def _trained_on(self, settings: Mapping[str, Any], dataset: str) -> dict[str, str]:
        pairs, fitted_on = settings.get("pairs"), settings.get("fit_on", dataset)
        if settings["method"] == "saner" and pairs is not None:  # it reads captions alone
            return {"pairs": self.datasets.get(pairs, pairs)}
        return {
            "fit_on": self.datasets.get(fitted_on, fitted_on),
            "pairs": "labels" if pairs is None else self.datasets.get(pairs, pairs),
        }

    def why_not(self, model: str, dataset: str, cell: Mapping[str, Any]) -> State | None:
        """Return why this audit does not measure a published cell by one model on one dataset; None where it does."""
        audit, suite, condition = self.audit, cell["suite"], str(cell["condition"])
        if suite == GENERATION:
            return self._why_not_generated(model, dataset, cell)
        if dataset == TEXT:
            return None if model in audit.used_encoders else State("cannot", "its checkpoint is asked nothing")
        suites = audit.cells.get((dataset, model))
        if suites is None:
            return State("cannot", "its dataset is not asked of its checkpoint")
        needed = TASKS if suite == OUTCOMES else (_MIXED.get(suite, suite),) if suite else ()
        if lacking := [name for name in needed if name not in suites]:
            return State("cannot", "suites not asked", lacking[0])
        if condition != "before" and condition not in audit.mitigated.get((dataset, model), {}):
            return State("cannot", "mitigations not tried", condition)
        return None

    def _why_not_generated(self, model: str, dataset: str, cell: Mapping[str, Any]) -> State | None:
        audit, metric = self.audit, str(cell["metric"])
        if not any(_asks(entry, cell) for entry in audit.designs.get((model, dataset), ())):
            return State("cannot", "its prompt is not asked of its checkpoint about its dataset")
        if cell["scorer"] is not None and cell["scorer"] not in self.scorer_kinds:
            return State("cannot", "no scores of the kind", cell["scorer"])
        if metric in _ANNOTATED and audit.language.annotations is None:
            return State("cannot", "no annotations by people")
        if metric.startswith("base_llm") and audit.lvlms[model].base_llm is None:
            return State("cannot", "its language model is not asked")
        return None


def _asks(entry: Any, cell: Mapping[str, Any]) -> bool:
    prompt, instruction = cell.get("prompt"), cell.get("instruction") or NO_INSTRUCTION
    attribute = cell.get("attribute")
    subset = entry.subsets == "all" or attribute not in _SUBSETS or attribute in entry.subsets
    return subset and (prompt is None or prompt in entry.prompt_ids) and instruction in entry.instructions


_SUBSETS = ("race_gender", "physical_gender", "physical_race")


def run_of(audit: Audit, addresses: Mapping[str, str]) -> Run:
    """Return what an audit file runs; a planted folder is laid out like the real dataset, and is not it."""
    datasets = {
        name: entry.published or entry.reader
        for name, entry in audit.datasets.items()
        if not entry.root.startswith(PLANTED)
    }
    return Run(audit, addresses, datasets)


def reproduction(run: Run) -> pl.DataFrame:
    """Say of every table of every paper of which an audit measures anything how far it is reproduced.

    Returns
    -------
    DataFrame
        In `REPRODUCTION_SCHEMA`, in the order of the papers. Nothing needs to have been computed.
    """
    values, words = published_values(), published_words()
    mine = pl.col("checkpoint").is_in(list(run.models))
    papers = {*values.filter(mine)["paper"], *words.filter(mine)["paper"]}
    rows = []
    for (paper, table), (title, here) in published_tables().items():
        if paper not in papers:
            continue
        cells = values.filter(paper=paper, table=table)
        states = [_state(run, cell) for cell in cells.iter_rows(named=True)]
        if cells.is_empty():
            lists = words.filter(paper=paper, table=table).unique(["row", "column"])
            states = [_state_of_words(run, one) for one in lists.iter_rows(named=True)]
        of = [sum(state.how == how for state in states) for how in _HOW]
        rows.append((paper, table, title, len(states), *of, here or _told(states)))
    tables = pl.DataFrame(rows, schema=REPRODUCTION_SCHEMA, orient="row")
    return tables.filter((pl.col("reproduced") + pl.col("other_protocol")).sum().over("paper") > 0)


_HOW = ("reproduced", "other_protocol", "cannot")


def _told(states: Sequence[State]) -> str | None:
    """Return the reasons of some states with their numbers: `suites not asked: communion, agency (6)`."""
    by_reason: dict[str, Counter[str | None]] = {}
    for state in states:
        if state.reason is not None:
            by_reason.setdefault(state.reason, Counter())[state.about] += 1
    parts = []
    for reason, of in sorted(by_reason.items(), key=lambda item: -item[1].total()):
        about = ", ".join(name for name, _ in of.most_common() if name)
        parts.append(f"{reason}{': ' if about else ''}{about} ({of.total()})")
    return "; ".join(parts) or None


def _state(run: Run, cell: Mapping[str, Any]) -> State:
    """Return how far one published cell is reproduced, where it comes nearest, and why no further."""
    if cell["status"] in _UNPUBLISHED:
        about = str(cell["note"]).partition("; ")[0] if cell["status"] == "not_comparable" else None
        return State("cannot", _UNPUBLISHED[cell["status"]], about)
    states = [_state_of(run, model, dataset, cell) for model, dataset in _places(run, cell)]
    return min(states, key=lambda state: _HOW.index(state.how), default=_nowhere(run, cell))


def _state_of(run: Run, model: str, dataset: str, cell: Mapping[str, Any]) -> State:
    if why := run.why_not(model, dataset, cell):
        return why
    published = json.loads(cell["protocol"]) if cell["protocol"] else {}
    differing = differences(published, run.protocol(model, dataset, cell))
    return State("other_protocol", "other protocol", differing) if differing else State("reproduced")


def _places(run: Run, cell: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    datasets = (
        [TEXT] if cell["dataset"] == TEXT else [n for n, reader in run.datasets.items() if reader == cell["dataset"]]
    )
    others = cell["reference_checkpoint"]
    if others is not None and others not in run.models:
        return
    every = [model for models in run.models.values() for model in models]
    for model in every if cell["checkpoint"] is None else run.models.get(cell["checkpoint"], ()):
        for dataset in datasets:
            yield model, dataset


def _nowhere(run: Run, cell: Mapping[str, Any]) -> State:
    lacking = [name for name in (cell["checkpoint"], cell["reference_checkpoint"]) if name and name not in run.models]
    return State("cannot", "not in this audit", lacking[0] if lacking else cell["dataset"])


def _state_of_words(run: Run, one: Mapping[str, Any]) -> State:
    if one["checkpoint"] is None:
        return State("cannot", "the text at hand has lost whose list it is")
    cell = {"suite": GENERATION, "attribute": one["attribute"], "metric": "stereotype_words", "scorer": None}
    datasets = [name for name, reader in run.datasets.items() if reader == "socialcounterfactuals"]
    models = run.models.get(one["checkpoint"], [])
    if not models:
        return State("cannot", "not in this audit", one["checkpoint"])
    if all(run.why_not(model, dataset, {**cell, "condition": "before"}) for model in models for dataset in datasets):
        return State("cannot", "its prompts are not asked")
    return State("cannot", "no judge of stereotypes") if run.audit.language.judge is None else State("reproduced")
