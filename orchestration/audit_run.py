"""The driver of `plumbline audit`: every stage and cell as a Dagster run of its own, all in one process."""

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg
from rich.console import Console

from assets.asked_cells import cell_suites, require_mitigations
from assets.partitions import answers_key, cell_key
from assets.plans import images_of, plan_generation, recorded
from assets.slices import asked_slices
from assets.sources import report_sources
from orchestration.instance import audit_lock, close_orphans, register_partitions, register_slices
from orchestration.job_run import JobRun, run_job
from orchestration.watched_folder import find_checkpoints
from plumbline.catalog.suites import load_suite
from plumbline.config.audit import Audit
from plumbline.encoders.families import FAMILIES, require_suites
from plumbline.errors import PlumblineError
from resources.lvlms import require_askable
from resources.workspace import Workspace


@dataclass(frozen=True)
class Work:
    """The items of a stage, in order, each with how much work it is beside the others."""

    weights: Sequence[float]

    @classmethod
    def of(cls, weights: Sequence[float | None]) -> "Work":
        """Return the items; all alike where something is not known of one of them."""
        known = [weight for weight in weights if weight]
        return cls(known if len(known) == len(weights) else [1.0] * len(weights))

    def left(self, *, ended: int, done: Mapping[int, float]) -> float | None:
        """Return how many seconds are left after the first `ended` items; None where nothing is known, or nothing left.

        Parameters
        ----------
        done : mapping of int to float
            Position of each item that was done -> its seconds; one that failed at once says nothing of the others.
        """
        if ended >= len(self.weights) or not done:
            return None
        pace = sum(done.values()) / sum(self.weights[i] for i in done)
        return pace * sum(self.weights[ended:])


def dataset_weight(workspace: Workspace, dataset: str) -> float | None:
    """Return how many images a dataset lists: as recorded, else as its folder does."""
    try:
        committed = recorded(workspace, dataset)
        return float(committed.details["listed"]) if committed else float(images_of(workspace, dataset))
    except (PlumblineError, OSError):
        return None


def cell_weight(workspace: Workspace, cell: str) -> float | None:
    """Return how much a model has to look at: the images, or image × prompt where it must see both together."""
    dataset, model = cell.split("|")
    try:
        images, family = images_of(workspace, dataset), FAMILIES[workspace.checkpoint(model).family]
        if family.logit != "pair":
            return float(images)
        texts = {text for suite in cell_suites(workspace, dataset, model, family=family) for text in suite.texts}
        return float(images * len(texts))
    except (PlumblineError, OSError):
        return None


# Objects until a collection of each generation: rarer than Python's own, which walks all of an audit's again and again.
_COLLECT_AFTER = (20_000, 20, 50)
_JOINED = "findings"
# Whose warnings are told here; those of cells and answers stand in the report.
_WARNED = ("datasets", _JOINED)


@dataclass
class Outcome:
    """What an audit did.

    Attributes
    ----------
    failures : dict of str to str
        Step to the reason, for every run that did not succeed.
    forward_passes : int
        Batches that went through a model.
    generated : int
        Answers of generative models that were made now.
    undelivered : list of str
        Cells and generative models whose MLflow run could not be written.
    """

    failures: dict[str, str] = field(default_factory=dict)
    forward_passes: int = 0
    generated: int = 0
    undelivered: list[str] = field(default_factory=list)


class AuditRun:
    """One audit of everything that the audit file names.

    Parameters
    ----------
    definitions : Definitions
    instance : DagsterInstance
    console : Console
        Where progress is shown.
    """

    def __init__(
        self, definitions: dg.Definitions, instance: dg.DagsterInstance, workspace: Workspace, *, console: Console
    ) -> None:
        self._definitions = definitions
        self._instance = instance
        self._workspace = workspace
        self._console = console
        self._warnings: list[str] = []
        self.outcome = Outcome()

    def execute(self) -> Outcome:
        """Run all stages; a cell that fails is reported and the others go on.

        Raises
        ------
        PlumblineError
            Before anything runs: a checkpoint that is not on disk, another audit in this home, a GPU pool that is
            held by another run.
        """
        if self._workspace.audit.watch is not None:
            self._console.print(
                f"watched folder: {find_checkpoints(self._workspace).summary}", highlight=False, markup=False
            )
        audit = self._workspace.audit
        self._preflight(audit)
        with audit_lock(self._workspace):
            if closed := close_orphans(self._instance):
                self._console.print(f"closed {closed} run(s) whose process was gone; finished work is kept")
            register_partitions(self._instance, self._workspace)
            report_sources(self._instance, self._workspace)
            self._stage(
                "read datasets" + (", label genders" if audit.labeller else ""), "datasets", audit.used_datasets
            )
            slices = self._asked()
            self._stage("embed prompts", "encoders", audit.used_encoders)
            self._stage("audit cells", "cells", [cell_key(*cell) for cell in audit.cells])
            if slices:
                self._generate(slices)
            self._stage("join findings, write the report", _JOINED, [None])
            self._say_first_failure()
        return self.outcome

    def _asked(self) -> dict[str, list[str]]:
        """Return generative model -> slices that it is asked about, of the datasets that could be read.

        Raises
        ------
        ConfigError
            If more is asked than the audit file's limit allows: before anything is generated or embedded.
        """
        workspace, asked = self._workspace, {}
        for model in workspace.audit.asked_models:
            try:
                asked[model] = list(asked_slices(workspace, model))
            except PlumblineError as error:
                self._failed(f"slices of {model}", str(error))
        if asked:
            register_slices(self._instance, dict.fromkeys(s for names in asked.values() for s in names))
            plan = plan_generation(workspace, list(asked))
            plan.require(workspace.audit.generation.limit)
            self._console.print(f"to generate: {plan.summary}", highlight=False)
        return asked

    def _generate(self, slices: dict[str, list[str]]) -> None:
        self._stage("list who is pictured", "slices", dict.fromkeys(s for names in slices.values() for s in names))
        keys = {model: [answers_key(model, name) for name in names] for model, names in slices.items()}
        self._stage("ask generative models, score answers", "answers", [k for names in keys.values() for k in names])
        failed = {
            model: [k for k in names if _step("answers", k) in self.outcome.failures] for model, names in keys.items()
        }
        self._stage("measure what they say of whom", "language", [m for m in slices if not failed[m]])
        for model, names in failed.items():
            if names:
                first, of = self._failure(_step("answers", names[0])), len(keys[model])
                reason = f"{model} is not measured: {len(names)} of its {of} slices failed, the first with {first}"
                self._failed(_step("language", model), reason)

    def _failed(self, step: str, reason: str) -> None:
        self._say(reason)
        self.outcome.failures[step] = reason

    def _say(self, reason: str) -> None:
        self._console.print(f"        {reason}", style="red", markup=False, highlight=False)

    def _say_first_failure(self) -> None:
        """Where findings could not be joined after other failures, say which was first: they follow from it."""
        first = next(iter(self.outcome.failures), _JOINED)
        if _JOINED in self.outcome.failures and first != _JOINED:
            self._say(f"first failure: {self._failure(first)}")

    def _failure(self, step: str) -> str:
        """Return a step that failed, with the first line of the reason."""
        return f"{step}: {self.outcome.failures[step].splitlines()[0]}"

    def _preflight(self, audit: Audit) -> None:
        """Refuse what could only fail later: a checkpoint that is not on disk, or cannot answer what it is asked."""
        labeller = [audit.labeller] if audit.labeller else []
        files = {
            encoder: self._workspace.checkpoint(encoder) for encoder in dict.fromkeys([*labeller, *audit.used_encoders])
        }
        for encoder in labeller:
            require_suites(files[encoder].family, [load_suite("gender_labels")])
        if audit.designs:
            require_askable(self._workspace)
        for dataset, model in audit.cells:
            family = FAMILIES[files[model].family]
            require_suites(family, cell_suites(self._workspace, dataset, model, family=family))
            require_mitigations(self._workspace, dataset, model, family=family)

    def _stage(self, title: str, job: str, partitions: Iterable[str | None]) -> None:
        keys, done = list(partitions), {}
        if not keys:
            return
        self._console.rule(f"[bold]{title}", align="left", style="dim")
        work = Work.of([self._weight(job, key) for key in keys] if len(keys) > 1 else [None])
        for i, key in enumerate(keys, start=1):
            began = time.monotonic()
            reason = self._run(job, key)
            if i == 1:
                # What the first run of a stage imports and defines stays: to walk all of it again and again took
                # the collector some hundredths of an audit.
                gc.collect()
                gc.freeze()
                gc.set_threshold(*_COLLECT_AFTER)
            took = time.monotonic() - began
            if reason is None:
                done[i - 1] = took
            left = work.left(ended=i, done=done)
            mark = "[green]done[/]" if reason is None else "[red]failed[/]"
            self._console.print(
                f"  {i:>2}/{len(keys)} {mark} {key or job}  {took:.1f} s"
                + (f", about {left:.0f} s left" if left is not None else ""),
                highlight=False,
            )
            if reason is not None:
                self._failed(_step(job, key), reason)
            for warning in self._warnings:
                self._console.print(f"        {warning}", style="yellow", markup=False, highlight=False)

    def _run(self, job: str, key: str | None) -> str | None:
        """Execute one run and account for it; return why it failed."""
        run = run_job(self._definitions, self._instance, job, key)
        self._account(run, key)
        self._warnings = list(run.warnings) if run.failure is None and job in _WARNED else []
        return run.failure

    def _weight(self, job: str, key: str | None) -> float | None:
        """Return how much work an item is beside the others of its stage; None where that is not known."""
        weigh = {"datasets": dataset_weight, "cells": cell_weight}.get(job)
        return None if weigh is None or key is None else weigh(self._workspace, key)

    def _account(self, run: JobRun, partition: str | None) -> None:
        for asset, metadata in run.materialised:
            # The table of provenance adds up what was counted where it was done.
            if asset != "provenance":
                self.outcome.forward_passes += int(metadata.get("forward_passes", 0))
            self.outcome.generated += int(metadata.get("generated", 0))
        if run.refusal is not None:
            self.outcome.undelivered.append(str(partition))


def _step(job: str, key: str | None) -> str:
    return f"{job} {key or ''}".strip()
