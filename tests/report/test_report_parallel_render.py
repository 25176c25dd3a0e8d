"""A large report is drawn in several processes, and is the same to the byte."""

import multiprocessing
from multiprocessing.reduction import ForkingPickler

import pytest

from plumbline.report import parallel_render, render
from plumbline.report.chapters import CHAPTERS


def test_the_same_inputs_give_the_same_bytes_drawn_side_by_side_or_alone(table, inputs, page, monkeypatch):
    started = []
    pool = parallel_render.ProcessPoolExecutor
    monkeypatch.setattr(parallel_render, "LARGE", 0)
    monkeypatch.setattr(parallel_render, "usable_cores", lambda: 2)
    monkeypatch.setattr(parallel_render, "ProcessPoolExecutor", lambda *a, **k: started.append(a[0]) or pool(*a, **k))
    assert render(table, inputs) == page
    assert started == [2]


@pytest.fixture
def jobs(monkeypatch):
    """Let what is drawn be told instead of drawn, and any process be an error."""
    monkeypatch.setattr(parallel_render, "ProcessPoolExecutor", None)
    monkeypatch.setattr(parallel_render, "usable_cores", lambda: 2)
    monkeypatch.setattr(parallel_render, "_render", lambda table, inputs, job: job)


def test_a_small_report_starts_no_process(narrow, inputs, jobs):
    assert narrow.height < parallel_render.LARGE
    pages, parts = parallel_render.pages_and_parts(narrow, inputs)
    assert pages == [("page", 0), ("page", 1)] and parts == [("chapter", i) for i in range(len(CHAPTERS))]


def test_what_goes_through_the_pipe_of_a_new_process_fits_into_it(table, inputs, monkeypatch):
    """More would block for ever where the process ends before it has read: out of memory, say."""
    given = []

    class Stopped(Exception):
        pass

    def pool(*_, initargs, **__):
        given.append(len(ForkingPickler.dumps(initargs)))
        raise Stopped

    monkeypatch.setattr(parallel_render, "LARGE", 0)
    monkeypatch.setattr(parallel_render, "usable_cores", lambda: 2)
    monkeypatch.setattr(parallel_render, "ProcessPoolExecutor", pool)
    with pytest.raises(Stopped):
        parallel_render.pages_and_parts(table, inputs)
    assert len(ForkingPickler.dumps((table, inputs))) > 1 << 16 > 1 << 12 > given[0]


def test_a_process_that_may_have_none_of_its_own_draws_by_itself(narrow, inputs, jobs, monkeypatch):
    monkeypatch.setattr(parallel_render, "LARGE", 0)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    pages, parts = parallel_render.pages_and_parts(narrow, inputs)
    assert len(pages) == 2 and len(parts) == len(CHAPTERS)
