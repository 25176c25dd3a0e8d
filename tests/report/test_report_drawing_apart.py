"""A large report is drawn in several processes, and is the same to the byte."""

import os
import shutil
import signal
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import spawn

import pytest

from plumbline.report import drawing_apart, render


def test_a_report_drawn_side_by_side_is_the_same(table, inputs, page, monkeypatch):
    started = []
    pool = drawing_apart.ProcessPoolExecutor
    monkeypatch.setattr(drawing_apart, "LARGE", 0)
    monkeypatch.setattr(drawing_apart, "usable_cores", lambda: 2)
    monkeypatch.setattr(
        drawing_apart, "ProcessPoolExecutor", lambda *a, **k: started.append(a[0]) or pool(*a, **k)
    )
    assert render(table, inputs) == page
    assert started == [2]


def test_a_small_report_starts_no_process(table, inputs, page, monkeypatch):
    monkeypatch.setattr(drawing_apart, "ProcessPoolExecutor", None)
    assert table.height < drawing_apart.LARGE and render(table, inputs) == page


def test_processes_that_end_at_once_are_an_error_and_not_waited_for(table, inputs, monkeypatch):
    monkeypatch.setattr(drawing_apart, "usable_cores", lambda: 2)
    monkeypatch.setattr(drawing_apart, "LARGE", 0)
    # What a process does that runs out of memory, or cannot import, before it has read a word.
    monkeypatch.setattr(spawn, "_python_exe", os.fsencode(shutil.which("false")))

    def too_late(*_):
        raise TimeoutError("waited for a process that is gone")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(60)
    try:
        with pytest.raises(BrokenProcessPool):
            drawing_apart.pages_and_parts(table, inputs)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
