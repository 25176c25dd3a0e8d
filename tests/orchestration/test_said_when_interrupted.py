"""Ctrl-C is answered before the code that is interrupted comes to an end."""

import signal
import sys
import threading
import time
import weakref

import pytest

from orchestration.interrupt import interrupt_told


@pytest.fixture
def held():
    """Ignore the signal as Dagster holds it back within a step."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_is_told_at_once_and_once(held):
    said = threading.Event()
    times = []

    def say():
        times.append(time.monotonic())
        said.set()

    with interrupt_told(say):
        signal.raise_signal(signal.SIGINT)
        assert said.wait(10), "told while the code inside goes on"
        signal.raise_signal(signal.SIGINT)
    assert len(times) == 1
    assert signal.set_wakeup_fd(-1) == -1, "nothing is left behind"


def test_it_still_interrupts():
    said = []
    with pytest.raises(KeyboardInterrupt), interrupt_told(lambda: said.append(1)):
        signal.raise_signal(signal.SIGINT)
    assert said == [1]


def test_one_that_is_lost_in_a_callback_interrupts_after_it(capfd):
    """Python prints what is raised while a weak reference is told of an end, and goes on as if nothing had been."""

    class Thing:
        pass

    lost, ended, said = Thing(), [], []
    reference = weakref.ref(lost, lambda _: (signal.raise_signal(signal.SIGINT), ended.append(1)))
    with pytest.raises(KeyboardInterrupt), interrupt_told(lambda: said.append(1)):
        del lost
        assert not ended and reference() is None, "the callback was broken off, and what follows it is not"
        time.sleep(10)
    assert said == [1] and not capfd.readouterr().err


def test_what_else_is_lost_in_a_callback_is_printed_as_before(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(lost.exc_type))
    thing = type("Thing", (), {})()
    reference = weakref.ref(thing, lambda _: 1 / 0)
    with interrupt_told(lambda: None):
        del thing
    assert told == [ZeroDivisionError] and reference() is None


def test_other_signals_and_other_threads_say_nothing(monkeypatch):
    before, said = signal.signal(signal.SIGALRM, lambda *_: None), []
    try:
        with interrupt_told(lambda: said.append(1)):
            signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)

    def inside():
        with interrupt_told(lambda: said.append(1)):
            pass

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert said == []
