"""Which items of an audit are worked on where, and by how many."""

from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import dagster as dg
import pytest

from orchestration import workers
from orchestration.instance import pool_slots
from orchestration.items import Done, Item
from orchestration.parent_of_workers import PROCESSES
from orchestration.workers import next_item, number_of_workers
from plumbline.config.audit import Audit

A1, B1, A2, C1 = (Item("cells", f"{dataset}|{model}") for dataset, model in ("1a", "1b", "2a", "1c"))


def test_those_of_the_model_that_is_loaded_come_first():
    assert next_item([B1, C1, A2], {}, held="a", elsewhere=()) == A2
    assert next_item([B1, C1, A2], {}, held=None, elsewhere=()) == B1


def test_a_model_is_loaded_where_no_other_worker_has_it_and_most_is_to_do():
    waiting = [A1, B1, A2, C1]
    assert next_item(waiting, {C1: 9.0}, held="gone", elsewhere=()) == C1
    assert next_item(waiting, {}, held=None, elsewhere={"a"}) == B1
    assert next_item([A1, A2], {}, held="b", elsewhere={"a"}) == A1, "nobody is idle while there is something to do"


def test_items_without_a_model_are_each_their_own():
    datasets = [Item("datasets", "small"), Item("datasets", "large")]
    assert next_item(datasets, {datasets[1]: 5.0}, held=None, elsewhere={None}) == datasets[1]


def test_an_endpoint_is_asked_by_one_alone():
    slices = [Item("answers", "served|one"), Item("answers", "served|two")]
    assert next_item(slices, {}, held=None, elsewhere={"served"}, alone={"served"}) is None
    assert next_item([*slices, B1], {}, held=None, elsewhere={"served"}, alone={"served"}) == B1
    assert next_item(slices, {}, held="served", elsewhere=(), alone={"served"}) == slices[0]


def audit(**settings):
    return Audit.model_validate({"datasets": {}, **settings})


@pytest.mark.parametrize(
    ("settings", "gpus", "number"),
    [({}, ("0", "1", "2"), 3), ({}, (), 4), ({"device": "cpu"}, ("0", "1", "2"), 4), ({"devices": 7}, ("0",), 7)],
    ids=["every GPU", "cores, up to four", "a GPU that is not wanted", "as asked"],
)
def test_there_are_as_many_as_devices(monkeypatch, settings, gpus, number):
    monkeypatch.delenv("PLUMBLINE_EXECUTOR", raising=False)
    monkeypatch.setattr(workers, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(workers, "usable_cores", lambda: 16)
    assert number_of_workers(audit(**settings)) == number


def test_elsewhere_the_executor_says_how_many(monkeypatch):
    monkeypatch.setenv("PLUMBLINE_EXECUTOR", "multiprocess")
    assert number_of_workers(audit(devices=4)) == 1


@pytest.mark.parametrize("before", [None, 3])
def test_the_pool_has_a_slot_for_each_and_then_its_own_limit_again(before):
    with dg.instance_for_test(overrides={"concurrency": {"pools": {"default_limit": 1}}}) as instance:
        storage = instance.event_log_storage
        if before:
            storage.set_concurrency_slots("gpu", before)
        with pool_slots(instance, "gpu", 2):
            assert all(storage.claim_concurrency_slot("gpu", f"run{i}", "step").is_claimed for i in (1, 2))
            assert not storage.claim_concurrency_slot("gpu", "run3", "step").is_claimed
            for i in (1, 2, 3):
                storage.free_concurrency_slots_for_run(f"run{i}")
        assert {pool.name: pool.limit for pool in storage.get_pool_limits()} == ({"gpu": before} if before else {})


def test_after_an_audit_that_was_killed_the_pool_has_its_own_limit_again():
    with dg.instance_for_test(overrides={"concurrency": {"pools": {"default_limit": 1}}}) as instance:
        storage, kept = instance.event_log_storage, Path(instance.root_directory) / "limit-of-gpu.json"
        with pool_slots(instance, "gpu", 4):
            left = kept.read_bytes()
        storage.set_concurrency_slots("gpu", 4)  # what a killed one leaves
        kept.write_bytes(left)
        with pool_slots(instance, "gpu", 2):
            assert kept.read_bytes() == left
        assert storage.get_pool_limits() == [] and not kept.exists()
        kept.write_bytes(b"")  # damaged since
        with pool_slots(instance, "gpu", 2):
            pass
        assert storage.get_pool_limits() == [] and not kept.exists()


class Runner:
    """Stands in for what computes items; takes note of the order."""

    def __init__(self, log):
        self.log = log
        self.workspace = SimpleNamespace(audit=SimpleNamespace(lvlms={}, device="cpu"))
        self.plan = SimpleNamespace(anew=set(), did=None)

    def run(self, item, stale=None):
        self.log.append(item.key)
        return Done()


class AnsweringWorkers(workers.Workers):
    """Workers that are threads of this process and do nothing."""

    def _start(self, number):
        ours, theirs = PROCESSES.Pipe()

        def work():
            with suppress(EOFError):
                while True:
                    self.runner.run(theirs.recv().item)
                    theirs.send(Done())

        thread = Thread(target=work)
        thread.start()
        return workers._Worker(number, thread, ours)


@pytest.mark.parametrize("place", [workers.ThisProcess, partial(AnsweringWorkers, number=2)], ids=["one", "several"])
@pytest.mark.parametrize("steps", [0, 2, 40])
def test_what_is_to_be_done_meanwhile_is_done_once_and_in_order(place, steps):
    log, done = [], []
    worked = place(Runner(log))
    with worked if isinstance(worked, workers.Workers) else nullcontext():
        beside = [partial(done.append, i) for i in range(steps)]
        finished = [*worked.run({A1: {}, B1: {}, C1: {}}, {}, meanwhile=beside)]
    assert {each.item for each in finished} == {A1, B1, C1} and len(log) == 3
    assert done == [*range(steps)]
