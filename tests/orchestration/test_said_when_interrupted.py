"""Ctrl-C is answered before the code that is interrupted comes to an end."""

import signal
import threading
import time

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
