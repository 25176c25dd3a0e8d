"""The driver of `plumbline audit`: every stage and cell as a Dagster run of its own, all in one process."""

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg
from rich.console import Console

from assets.asked_cells import cell_suites
from assets.partitions import answers_key, cell_key
from assets.plans import images_of, plan_generation, recorded
from assets.slices import asked_slices
from assets.sources import report_sources
from orchestration.audit_plan import FINDINGS, AuditPlan, Stage
from orchestration.instance import close_orphans, register_partitions, register_slices
from orchestration.job_run import JobRun, run_job
from orchestration.unchanged import report_unchanged
from plumbline.encoders.families import FAMILIES
from plumbline.errors import PlumblineError
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
# Whose warnings are told here; those of cells and answers stand in the report.
_WARNED = ("datasets", FINDINGS)


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
    plan : AuditPlan
    console : Console
        Where progress is shown.
    """

    def __init__(
        self,
        definitions: dg.Definitions,
        instance: dg.DagsterInstance,
        workspace: Workspace,
        plan: AuditPlan,
        *,
        console: Console,
    ) -> None:
        self._definitions = definitions
        self._instance = instance
        self._workspace = workspace
        self._plan = plan
        self._console = console
        self._warnings: list[str] = []
        self._left: list[tuple[str, str | None]] = []
        self.outcome = Outcome()

    def execute(self) -> Outcome:
        """Compute what is out of date; a cell that fails is reported and the others go on. Needs `audit_lock`.

        Raises
        ------
        PlumblineError
            Before anything runs: a GPU pool that is held by another run, more to generate than is allowed.
        """
        workspace, audit = self._workspace, self._workspace.audit
        if closed := close_orphans(self._instance):
            self._console.print(f"closed {closed} run(s) whose process was gone; finished work is kept")
        register_partitions(self._instance, workspace)
        sources = (source.partition(" ") for source in report_sources(self._instance, workspace, ask=False))
        self._plan.found_anew((name, partition) for name, _, partition in sources)
        stages = self._plan.stages()
        for stage in stages:
            if stage.job == "encoders" and audit.asked_models:
                self._require_generation()
            if stage.job == "language":
                stage = stage._replace(partitions=self._answered(stage.partitions))
            self._stage(stage)
        self._plan.told(but=self._left)
        self._say_first_failure()
        return self.outcome

    def _require_generation(self) -> None:
        """Name the slices that models are asked about, of the datasets that could be read, and how much it is.

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
        if not asked:
            return
        names = dict.fromkeys(name for listed in asked.values() for name in listed)
        register_slices(self._instance, names)
        plan = plan_generation(workspace, list(asked))
        plan.require(workspace.audit.generation.limit)
        if any(self._plan.out_of_date("answers", f"{m}|{name}") for m, listed in asked.items() for name in listed):
            self._console.print(f"to generate: {plan.summary}", highlight=False)

    def _answered(self, models: Sequence[str | None]) -> list[str | None]:
        """Return the models none of whose slices failed; of the others say so."""
        kept = []
        for model in models:
            keys = [f"{model}|{name}" for name in self._slices(model)]
            failed = [key for key in keys if _step("answers", key) in self.outcome.failures]
            if failed:
                first = self._failure(_step("answers", failed[0]))
                reason = (
                    f"{model} is not measured: {len(failed)} of its {len(keys)} slices failed, the first with {first}"
                )
                self._left.append(("language", model))
                self._failed(_step("language", model), reason)
            elif keys:
                kept.append(model)
        return kept

    def _slices(self, model: str | None) -> list[str]:
        try:
            return list(asked_slices(self._workspace, str(model)))
        except PlumblineError:
            return []

    def _failed(self, step: str, reason: str) -> None:
        self._say(reason)
        self.outcome.failures[step] = reason

    def _say(self, reason: str) -> None:
        self._console.print(f"        {reason}", style="red", markup=False, highlight=False)

    def _say_first_failure(self) -> None:
        """Where findings could not be joined after other failures, say which was first: they follow from it."""
        first = next(iter(self.outcome.failures), FINDINGS)
        if FINDINGS in self.outcome.failures and first != FINDINGS:
            self._say(f"first failure: {self._failure(first)}")

    def _failure(self, step: str) -> str:
        """Return a step that failed, with the first line of the reason."""
        return f"{step}: {self.outcome.failures[step].splitlines()[0]}"

    def _stage(self, stage: Stage) -> None:
        job, done = stage.job, {}
        keys = [key for key in stage.partitions if self._plan.out_of_date(job, key)]
        for key in stage.partitions:
            if key not in keys:
                self._report_unchanged(job, key)
        if not keys:
            return
        self._console.rule(f"[bold]{stage.title}", align="left", style="dim")
        if current := len(stage.partitions) - len(keys):
            self._console.print(f"  {current} of {len(stage.partitions)} up to date", style="dim", highlight=False)
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
                self._left.append((job, key))
                self._failed(_step(job, key), reason)
            for warning in self._warnings:
                self._console.print(f"        {warning}", style="yellow", markup=False, highlight=False)

    def _run(self, job: str, key: str | None) -> str | None:
        """Compute what is out of date of one partition, and account for it; return why it failed.

        One run where all follows from what is known to have changed; else one after the other, each of what is out of
        date then.
        """
        self._warnings = []
        while stale := self._plan.out_of_date(job, key):
            if (refused := self._plan.refusal(job, key, stale)) is not None:
                return refused
            one = self._plan.next_run(job, key, stale)
            partition = cell_key(*key.split("|")) if job == "cells" else _answers_key(key) if job == "answers" else key
            run = run_job(self._definitions, self._instance, one.job, partition, assets=one.computed)
            self._account(run, key)
            if run.failure is not None:
                self._plan.look_again()
                return run.failure
            if job in _WARNED:
                self._warnings += run.warnings
            self._plan.did(one, key)
        self._report_unchanged(job, key)
        return None

    def _report_unchanged(self, job: str, key: str | None) -> None:
        """Tell Dagster of what is up to date though something that it is computed from was made anew."""
        plan, lake = self._plan, self._workspace.lake
        report_unchanged(self._instance, plan.graph, lake, plan.assets(job), key, anew=plan.anew)

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


def _answers_key(key: str | None) -> str:
    return answers_key(*str(key).split("|"))


def _step(job: str, key: str | None) -> str:
    return f"{job} {key or ''}".strip()
