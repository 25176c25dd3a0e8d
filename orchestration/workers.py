"""Where the items of an audit are worked on: in this process, or in several beside each other, a device each.

A worker is a process that lives as long as the audit and keeps its model. It opens home and instance itself and gets
one item at a time through a pipe; what it computes lies in the lake, so that only what became of an item comes back.
All workers are forked from one process that has made the imports, which is started anew: no thread, database or device
of the audit is copied. A worker that is gone costs what its step had not yet kept: the item is tried once more.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from assets.progress import Told, tell_progress
from orchestration.audit_plan import AuditPlan, NextRun
from orchestration.executors import IN_PROCESS, VARIABLE, runs_at_once
from orchestration.instance import close_lost, opened, pool_slots
from orchestration.interrupt import interrupt_told
from orchestration.items import Done, Item, ItemRunner
from orchestration.parent_of_workers import PROCESSES, import_for_workers
from plumbline.checkpoints.device import visible_gpus
from plumbline.commands.terminal import say_warnings_plainly
from plumbline.concurrency import share_cores, usable_cores
from plumbline.config.audit import Audit
from plumbline.errors import PlumblineError
from resources.workspace import Workspace

MOST_ON_CORES = 4
"""Workers that share the cores of a machine without a GPU at most: each keeps a model in memory."""
POOL = "gpu"
_TRIES = 2


class Finished(NamedTuple):
    """An item with what became of it."""

    item: Item
    done: Done
    seconds: float
    """that it took"""


OutOfDate = Mapping[Item, dict[str, list[str]]]
"""Item -> asset -> why it is out of date."""


class WorkPlace(Protocol):
    """Works on items."""

    number: int
    """of items at once"""

    def run(
        self, items: OutOfDate, weights: Mapping[Item, float], *, meanwhile: Sequence[Callable[[], object]] = ()
    ) -> Iterator[Finished]:
        """Work on all of them, in whatever order, and yield each once it has ended.

        Parameters
        ----------
        items : mapping of Item to dict
            With what is out of date of each.
        meanwhile : sequence of callable
            What this process has to do beside it, in short steps that do not depend on the items.
        """
        ...


class ThisProcess:
    """Works on one item after the other, in this process."""

    number = 1

    def __init__(self, runner: ItemRunner) -> None:
        self._runner = runner

    def run(
        self, items: OutOfDate, weights: Mapping[Item, float], *, meanwhile: Sequence[Callable[[], object]] = ()
    ) -> Iterator[Finished]:
        """Work on the items, those of a model one after the other."""
        for step in meanwhile:
            step()
        waiting, held = list(items), None
        while waiting:
            item = next_item(waiting, weights, held=held)
            assert item is not None, "nobody else works here"
            waiting.remove(item)
            held, began = item.model, time.monotonic()
            done = self._runner.run(item, items[item])
            yield Finished(item, done, time.monotonic() - began)


def next_item(
    waiting: Sequence[Item],
    weights: Mapping[Item, float],
    *,
    held: str | None,
    elsewhere: Collection[str | None] = (),
    alone: Collection[str] = (),
) -> Item | None:
    """Return the item that a worker does next; None where what is waiting is for others.

    One of the model that it holds; else of the model with most to do that no other worker holds; else of the one with
    most to do. Of one model the first; among models with as much to do, the first too.

    Parameters
    ----------
    held : str, optional
        The model that the worker holds.
    elsewhere : collection of str
        Models that other workers hold.
    alone : collection of str
        Models that one worker asks at a time: how many requests are under way at an endpoint is said of one.
    """
    waiting = [item for item in waiting if item.model not in alone or item.model not in elsewhere]
    if not waiting:
        return None
    if mine := [item for item in waiting if item.model == held and held is not None]:
        return mine[0]
    to_do: dict[str | Item, float] = {}
    for item in waiting:
        name = item.model or item
        to_do[name] = to_do.get(name, 0.0) + weights.get(item, 1.0)
    free = {name: weight for name, weight in to_do.items() if name not in elsewhere} or to_do
    most = max(free, key=free.__getitem__)
    return next(item for item in waiting if (item.model or item) == most)


@dataclass
class _Worker:
    """A process, its end of the pipe, and what it is doing."""

    number: int
    process: Any
    pipe: Connection
    model: str | None = None
    item: Item | None = None


@dataclass
class Workers:
    """Processes that work on items side by side; use it as a context.

    Parameters
    ----------
    runner : ItemRunner
        Of this process: learns what the workers did.
    number : int
        Of processes at most: they are started when there are as many items.
    at_once : int
        How many are started at once.
    tell : callable, optional
        Is told of the progress of long steps; without it each worker prints a line now and then.
    """

    runner: ItemRunner
    number: int
    at_once: int = 0
    tell: Told | None = None
    _workers: list[_Worker] = field(default_factory=list)

    def __enter__(self) -> "Workers":
        self._gpus = visible_gpus() if _here() and self.runner.workspace.audit.device != "cpu" else ()
        if min(self.at_once, self.number) > 1:
            import_for_workers()  # while this process looks at sources
        return self

    def _start_for(self, items: int) -> None:
        """Start as many more processes as there are items for; for one item alone none."""
        if items < 2:
            return
        for number in range(len(self._workers), min(items, self.number)):
            self._workers.append(self._start(number))

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for worker in self._workers:
            if worker.item is not None and error is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGINT)
            worker.pipe.close()  # it ends when it wants the next item
        try:
            for worker in self._workers:
                worker.process.join()
        except KeyboardInterrupt:  # the second
            for worker in self._workers:
                _kill(worker.process.pid)
            raise

    def _start(self, number: int) -> _Worker:
        ours, theirs = PROCESSES.Pipe()
        gpu = self._gpus[number % len(self._gpus)] if self._gpus else None
        given = _Given(
            self.runner.workspace.audit_path,
            self.runner.workspace.home,
            tuple(self.runner.plan.forced),
            gpu,
            self.tell is not None,
        )
        process = PROCESSES.Process(target=_work, args=(theirs, given), name=f"worker {number}")
        process.start()
        theirs.close()
        return _Worker(number, process, ours)

    def run(
        self, items: OutOfDate, weights: Mapping[Item, float], *, meanwhile: Sequence[Callable[[], object]] = ()
    ) -> Iterator[Finished]:
        """Work on the items; those of a model in one worker as far as the others have something to do.

        Raises
        ------
        PlumblineError
            That a worker met outside of a step, such as a disk that is full.
        """
        self._start_for(max(len(items), self.at_once))
        if not self._workers:
            yield from ThisProcess(self.runner).run(items, weights, meanwhile=meanwhile)
            return
        beside = list(reversed(meanwhile))
        waiting, tries, began = list(items), dict.fromkeys(items, 0), dict[Item, float]()
        endpoints = {name for name, entry in self.runner.workspace.audit.lvlms.items() if entry.endpoint}
        cores = max(1, usable_cores() // min(self.number, len(items)))
        while waiting or any(worker.item for worker in self._workers):
            for worker in self._workers:
                if worker.item is None and waiting:
                    elsewhere = {other.model for other in self._workers if other is not worker}
                    item = next_item(waiting, weights, held=worker.model, elsewhere=elsewhere, alone=endpoints)
                    if item is None:
                        continue
                    waiting.remove(item)
                    tries[item] += 1
                    began[item] = time.monotonic()
                    worker.item, worker.model = item, item.model
                    with suppress(BrokenPipeError):  # it is gone, and noticed below
                        # One that is tried again may have been computed in part.
                        known = items[item] if tries[item] == 1 else None
                        worker.pipe.send(_Order(item, known, frozenset(self.runner.plan.anew), cores))
            busy = {worker.pipe: worker for worker in self._workers if worker.item}
            answered = wait(list(busy), timeout=0 if beside else None)
            if not answered:
                beside.pop()()
            for ready in answered:
                worker = busy[ready]
                item = worker.item
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    self._replace(worker)
                    if tries[item] < _TRIES:
                        waiting.insert(0, item)
                    else:
                        done = Done(failure=_gone(worker.process.exitcode))
                        yield Finished(item, done, time.monotonic() - began[item])
                    continue
                if isinstance(message, _Progress):
                    if self.tell:
                        self.tell(*message)
                    continue
                if isinstance(message, NextRun):
                    self.runner.plan.did(message, item.key)
                    continue
                worker.item = None
                if isinstance(message, BaseException):
                    raise message
                yield Finished(item, message, time.monotonic() - began[item])
        while beside:
            beside.pop()()

    def _replace(self, worker: _Worker) -> None:
        """Start another process in the place of one that is gone, and end its run."""
        worker.pipe.close()
        worker.process.join()
        close_lost(self.runner.instance)
        self._workers[self._workers.index(worker)] = self._start(worker.number)


def _gone(exitcode: int | None) -> str:
    name = signal.Signals(-exitcode).name if exitcode is not None and exitcode < 0 else f"exit status {exitcode}"
    message = f"its process was gone before it was done, {_TRIES} times ({name}). What is finished is kept"
    if exitcode == -signal.SIGKILL:
        message += ". It is what the system does when memory runs out: ask for fewer `devices` in the audit file"
    return message


@contextmanager
def work_place(runner: ItemRunner, *, at_once: int, tell: Told | None = None) -> Iterator[WorkPlace]:
    """Give where the items of an audit are worked on.

    Parameters
    ----------
    at_once : int
        The most items that are known now to be worked on side by side; others may follow from them.
    """
    number = number_of_workers(runner.workspace.audit)
    if number < 2:
        yield ThisProcess(runner)
        return
    if tell:
        tell_progress(tell)  # what is done in this process too
    slots: AbstractContextManager[None] = pool_slots(runner.instance, POOL, number) if _here() else nullcontext()
    with slots, Workers(runner, number, at_once, tell) as workers:
        yield workers


def _here() -> bool:
    """Return whether steps are executed in the processes of the audit."""
    return os.environ.get(VARIABLE, IN_PROCESS) == IN_PROCESS


def number_of_workers(audit: Audit) -> int:
    """Return how many items of an audit are worked on at once at most.

    On a Dask cluster one for each of its workers; where another executor was chosen, one. In processes of this
    machine: as many as `devices` says; by default one for each GPU; without a GPU as many as there are cores, four at
    most, which share the cores.
    """
    if not _here():
        room = runs_at_once()
        return room if audit.devices == "auto" else min(room, audit.devices)
    if audit.devices != "auto":
        return audit.devices
    if audit.device != "cpu" and (gpus := visible_gpus()):
        return len(gpus)
    return min(MOST_ON_CORES, usable_cores())


class _Given(NamedTuple):
    """What a worker is told when it starts."""

    audit_path: Path
    home: Path
    forced: tuple[str, ...]
    gpu: str | None
    tells: bool


class _Order(NamedTuple):
    """An item for a worker, with what is out of date of it, what this audit has made so far, and the cores to use."""

    item: Item
    stale: dict[str, list[str]] | None
    anew: frozenset[tuple[str, str]]
    cores: int


class _Progress(NamedTuple):
    title: str
    done: int | None
    total: int | None


def _work(pipe: Connection, given: _Given) -> None:
    """Work on the items that come through the pipe until it is closed: what a worker's process does."""
    with suppress(PermissionError):
        os.setsid()  # Ctrl-C is for the audit, which passes it on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_the_audit, name="audit", daemon=True).start()
    if given.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = given.gpu
    if given.tells:
        tell_progress(partial(_tell, pipe))
    os.environ |= {"PLUMBLINE_AUDIT": str(given.audit_path), "PLUMBLINE_HOME": str(given.home)}
    try:
        from orchestration.definitions import defs

        say_warnings_plainly()
        workspace = Workspace(audit_path=given.audit_path, home=given.home)
        plan = AuditPlan(defs, workspace, forced=given.forced, keeps=False)
        with opened(workspace) as instance:
            runner = ItemRunner(defs, instance, workspace, plan, did=pipe.send)
            with interrupt_told(lambda: None):  # the audit has said it
                while True:
                    order = pipe.recv()
                    share_cores(order.cores)
                    plan.look_again()
                    plan.anew = set(order.anew)
                    pipe.send(runner.run(order.item, order.stale))
    except (EOFError, KeyboardInterrupt, ConnectionError):
        pass
    except PlumblineError as error:
        with suppress(OSError):  # another has said it, and the audit is over
            pipe.send(error)


def _tell(pipe: Connection, *told: Any) -> None:
    with suppress(OSError):  # the audit is ending
        pipe.send(_Progress(*told))


def _end_with_the_audit() -> None:
    """End this process at once when the audit's is gone; runs that it leaves are closed by the next audit."""
    audit = multiprocessing.parent_process()
    if audit is not None:
        wait([audit.sentinel])
        _kill(os.getpid())


def _kill(worker: int) -> None:
    """End a worker at once, with the processes that it started."""
    with suppress(ProcessLookupError):
        if os.getsid(worker) == worker:
            os.killpg(worker, signal.SIGKILL)
        else:
            os.kill(worker, signal.SIGKILL)
