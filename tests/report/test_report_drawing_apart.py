"""A large report is drawn in several processes, and is the same to the byte."""

import multiprocessing
from multiprocessing.reduction import ForkingPickler

import pytest

from plumbline.report import drawing_apart, render


@pytest.fixture(scope="module")
def narrow_page(narrow, inputs):
    return render(narrow, inputs)


def test_a_report_drawn_side_by_side_is_the_same(narrow, inputs, narrow_page, monkeypatch):
    started = []
    pool = drawing_apart.ProcessPoolExecutor
    monkeypatch.setattr(drawing_apart, "LARGE", 0)
    monkeypatch.setattr(drawing_apart, "usable_cores", lambda: 2)
    monkeypatch.setattr(drawing_apart, "ProcessPoolExecutor", lambda *a, **k: started.append(a[0]) or pool(*a, **k))
    assert render(narrow, inputs) == narrow_page
    assert started == [2]


def test_a_small_report_starts_no_process(narrow, inputs, narrow_page, monkeypatch):
    monkeypatch.setattr(drawing_apart, "ProcessPoolExecutor", None)
    assert narrow.height < drawing_apart.LARGE and render(narrow, inputs) == narrow_page


def test_what_goes_through_the_pipe_of_a_new_process_fits_into_it(table, inputs, monkeypatch):
    """More would block for ever where the process ends before it has read: out of memory, say."""
    given = []

    class Stopped(Exception):
        pass

    def pool(*_, initargs, **__):
        given.append(len(ForkingPickler.dumps(initargs)))
        raise Stopped

    monkeypatch.setattr(drawing_apart, "LARGE", 0)
    monkeypatch.setattr(drawing_apart, "usable_cores", lambda: 2)
    monkeypatch.setattr(drawing_apart, "ProcessPoolExecutor", pool)
    with pytest.raises(Stopped):
        drawing_apart.pages_and_parts(table, inputs)
    assert len(ForkingPickler.dumps((table, inputs))) > 1 << 16 > 1 << 12 > given[0]


def test_a_process_that_may_have_none_of_its_own_draws_by_itself(narrow, inputs, narrow_page, monkeypatch):
    monkeypatch.setattr(drawing_apart, "LARGE", 0)
    monkeypatch.setattr(drawing_apart, "usable_cores", lambda: 2)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert render(narrow, inputs) == narrow_page
