"""The driver of `plumbline audit`: every stage and cell as a Dagster run of its own."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

import dagster as dg
from rich.console import Console

from assets.asked_cells import cell_suites
from assets.plans import images_of, plan_generation, recorded
from assets.progress import Bars
from assets.slices import asked_slices
from assets.sources import report_sources
from orchestration.audit_plan import FINDINGS, Stage
from orchestration.instance import close_orphans, register_partitions, register_slices, sweep_unfinished
from orchestration.items import Done, Item, ItemRunner
from orchestration.workers import WorkPlace, work_place
from plumbline.encoders.families import FAMILIES
from plumbline.errors import PlumblineError
from resources.workspace import Workspace

TOGETHER = (("datasets",), ("encoders", "slices"), ("cells", "answers"), ("language",), (FINDINGS,))
"""Jobs whose items are worked on side by side; each group needs what those before it made."""


class Work(NamedTuple):
    """How much an item is: of a kind, whose amounts are comparable; None where it is not known."""

    kind: str
    amount: float | None


@dataclass
class Pace:
    """How long items take, from those that have ended.

    Parameters
    ----------
    work : mapping of Item to Work
    at_once : int
        How many items are worked on side by side.
    """

    work: Mapping[Item, Work]
    at_once: int = 1
    _seconds: dict[Item, float] = field(default_factory=dict)
    _ended: set[Item] = field(default_factory=set)

    def ended(self, item: Item, seconds: float | None) -> None:
        """Take note of an item that has ended; of one that failed at once no seconds, which say nothing of others."""
        self._ended.add(item)
        if seconds is not None:
            self._seconds[item] = seconds

    def left(self) -> float | None:
        """Return how many seconds are left; None where nothing is known, or nothing is left."""
        left = [item for item in self.work if item not in self._ended]
        if not left or not self._seconds:
            return None
        return sum(map(self._expected, left)) / min(self.at_once, len(left))

    def _expected(self, item: Item) -> float:
        """Return the seconds of an item: by its amount from those of its kind; else the mean of all."""
        kind = self.work[item].kind
        alike = [other for other in self._seconds if self.work[other].kind == kind]
        if not alike:
            return sum(self._seconds.values()) / len(self._seconds)
        amounts = self.amounts
        return amounts[item] * sum(self._seconds[i] for i in alike) / sum(amounts[i] for i in alike)

    @cached_property
    def amounts(self) -> dict[Item, float]:
        """Return the amounts; 1 for all items of a kind of which one is not known."""
        unknown = {kind for kind, amount in self.work.values() if not amount}
        return {
            item: 1.0 if kind in unknown or amount is None else amount for item, (kind, amount) in self.work.items()
        }


def work_of(workspace: Workspace, item: Item) -> Work:
    """Return how much an item is: images of a dataset or cell; image × prompt where a model sees both together."""
    try:
        if item.job == "datasets":
            return Work(item.job, dataset_images(workspace, str(item.key)))
        if item.job == "cells":
            dataset, model = str(item.key).split("|")
            images, family = images_of(workspace, dataset), FAMILIES[workspace.checkpoint(model).family]
            if family.logit != "pair":
                return Work(item.job, float(images))
            suites = cell_suites(workspace, dataset, model, family=family)
            return Work("pairs", float(images * len({text for suite in suites for text in suite.texts})))
    except (PlumblineError, OSError):
        pass
    return Work(item.job, None)


def dataset_images(workspace: Workspace, dataset: str) -> float:
    """Return how many images a dataset lists: as recorded, else as its folder does."""
    committed = recorded(workspace, dataset)
    return float(committed.details["listed"]) if committed else float(images_of(workspace, dataset))


def clean_up(instance: dg.DagsterInstance, workspace: Workspace, console: Console) -> None:
    """Close runs and remove unfinished files of processes that were killed, and say so. Needs `audit_lock`."""
    if closed := close_orphans(instance):
        console.print(f"closed {closed} run(s) whose process was gone; finished work is kept")
    if swept := sweep_unfinished(workspace):
        console.print(f"removed {swept} unfinished file(s) of a process that was killed")


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
        Cells, generative models and `the findings` whose MLflow run could not be written.
    """

    failures: dict[str, str] = field(default_factory=dict)
    forward_passes: int = 0
    generated: int = 0
    undelivered: list[str] = field(default_factory=list)


class AuditRun:
    """One audit of everything that the audit file names.

    Parameters
    ----------
    runner : ItemRunner
        Computes items in this process.
    console : Console
        Where progress is shown.
    """

    def __init__(self, runner: ItemRunner, *, console: Console) -> None:
        self._runner = runner
        self._instance, self._workspace, self._plan = runner.instance, runner.workspace, runner.plan
        self._console = console
        self._left: list[Item] = []
        self.outcome = Outcome()

    def execute(self, stale: Mapping[tuple[str, str | None], Collection[str]]) -> Outcome:
        """Compute what is out of date; a cell that fails is reported and the others go on. Needs `audit_lock`.

        Parameters
        ----------
        stale : mapping
            (job, partition) -> the assets that are known to be out of date.

        Raises
        ------
        PlumblineError
            Before anything runs: a GPU pool that is held by another run, more to generate than is allowed.
        """
        with self._work_place(stale) as place:
            self._prepare()
            for jobs in TOGETHER:
                if "slices" in jobs and self._workspace.audit.asked_models:
                    self._require_generation()
                stages = [stage for stage in self._plan.stages() if stage.job in jobs]
                for waits in (False, True):
                    self._work_on([stage for stage in stages if stage.waits is waits], place)
        self._plan.clear_untold(but=self._left)
        self._say_first_failure()
        return self.outcome

    def _prepare(self) -> None:
        """Leave nothing of processes that are gone, and tell Dagster of partitions and sources."""
        clean_up(self._instance, self._workspace, self._console)
        register_partitions(self._instance, self._workspace)
        changed = report_sources(self._instance, self._workspace, ask=False, folders=self._plan.folders)
        sources = (source.partition(" ") for source in changed)
        self._plan.found_anew((name, partition) for name, _, partition in sources)

    @contextmanager
    def _work_place(self, stale: Mapping[tuple[str, str | None], Collection[str]]) -> Iterator[WorkPlace]:
        """Give where items are worked on; bars of several processes are shown by this one."""
        at_once = max(sum(job in jobs for job, _ in stale) for jobs in TOGETHER)
        bars = Bars(self._console)
        tell = bars.show if self._console.is_terminal else None
        with work_place(self._runner, at_once=at_once, tell=tell) as place:
            if tell is None or place.number == 1:  # a step in this process shows its own
                yield place
            else:
                with bars:
                    yield place

    def _require_generation(self) -> None:
        """Name the slices that models are asked about, of the datasets that could be read, and how much it is.

        Raises
        ------
        ConfigError
            If more is asked than the audit file's limit allows: before anything is generated or embedded.
        """
        workspace, slices_of = self._workspace, {}
        for model in workspace.audit.asked_models:
            try:
                slices_of[model] = list(asked_slices(workspace, model))
            except PlumblineError as error:
                self._failed(f"slices of {model}", str(error))
        if not slices_of:
            return
        names = dict.fromkeys(name for listed in slices_of.values() for name in listed)
        register_slices(self._instance, names)
        plan = plan_generation(workspace, list(slices_of))
        plan.require(workspace.audit.generation.limit)
        if any(self._plan.out_of_date("answers", f"{m}|{name}") for m, listed in slices_of.items() for name in listed):
            self._console.print(f"still to come: {plan.summary}", highlight=False)

    def _answered(self, models: Sequence[str | None]) -> list[str | None]:
        """Return the models none of whose slices failed; of the others say so."""
        kept = []
        for model in models:
            items = [Item("answers", f"{model}|{name}") for name in self._slices(model)]
            failed = [item.step for item in items if item.step in self.outcome.failures]
            if failed:
                reason = (
                    f"{model} is not measured: {len(failed)} of its {len(items)} slices failed, the first with "
                    f"{self._failure(failed[0])}"
                )
                self._left.append(Item("language", model))
                self._failed(Item("language", model).step, reason)
            elif items:
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

    def _work_on(self, stages: Sequence[Stage], place: WorkPlace) -> None:
        """Work on what is out of date of some stages, their items side by side."""
        items, titles, current = dict[Item, dict[str, list[str]]](), [], list[Callable[[], object]]()
        for stage in stages:
            keys = self._answered(stage.partitions) if stage.job == "language" else stage.partitions
            looked = {item: self._plan.out_of_date(*item) for item in (Item(stage.job, key) for key in keys)}
            current += [partial(self._runner.report_unchanged, item) for item, why in looked.items() if not why]
            stale = {item: why for item, why in looked.items() if why}
            titles += [stage.title] if stale else []
            items |= stale
        if not items:
            for report in current:
                report()
            return
        self._console.rule(f"[bold]{'; '.join(titles)}", align="left", style="dim")
        if current:
            number = len(current)
            self._console.print(f"  {number} of {number + len(items)} up to date", style="dim", highlight=False)
        pace = Pace({item: work_of(self._workspace, item) for item in items}, place.number)
        for number, finished in enumerate(place.run(items, pace.amounts, meanwhile=current), start=1):
            item, done = finished.item, finished.done
            pace.ended(item, finished.seconds if done.failure is None else None)
            mark, left = "[green]done[/]" if done.failure is None else "[red]failed[/]", pace.left()
            self._console.print(
                f"  {number:>2}/{len(items)} {mark} {item.key or item.job}  {finished.seconds:.1f} s"
                + (f", about {left:.0f} s left" if left is not None else ""),
                highlight=False,
            )
            self._account(item, done)
            if item.job == "datasets" and done.failure is None:
                self._say_refused(str(item.key))

    def _say_refused(self, dataset: str) -> None:
        """Say how many images of a dataset were refused."""
        committed = recorded(self._workspace, dataset)
        if committed is None:
            return
        refused = int(committed.details["listed"]) - committed.rows
        if refused:
            self._console.print(
                f"        {committed.rows:,} of {committed.rows + refused:,} images accepted, {refused:,} refused: the "
                "report lists them, and why",
                style="dim",
                highlight=False,
            )

    def _account(self, item: Item, done: Done) -> None:
        self.outcome.forward_passes += done.forward_passes
        self.outcome.generated += done.generated
        if done.undelivered:
            self.outcome.undelivered.append(item.key or f"the {item.job}")
        if done.failure is not None:
            self._plan.look_again()
            self._left.append(item)
            self._failed(item.step, done.failure)
        for warning in done.warnings:
            self._console.print(f"        {warning}", style="yellow", markup=False, highlight=False)
