"""Progress of long steps in the terminal: rate and time left, quiet where there is no terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_LOG_EVERY_S, _TELL_EVERY_S = 10.0, 0.2

Told = Callable[[str, int | None, int | None], None]
"""Is told of a step's title, how much is done, of how much; None and None once it is over."""

_told: Told | None = None


def tell_progress(told: Told) -> None:
    """Tell of all steps of this process from now on, instead of showing bars: another process shows them."""
    global _told
    _told = told


@contextmanager
def progress_of(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for one step and give the function that moves it: called with (done, in all).

    Without a terminal (a log file, CI) a line with rate and time left is printed every ten seconds instead.
    """
    console = Console(stderr=True)
    if _told is not None:
        try:
            yield _telling(title, _told)
        finally:
            _told(title, None, None)
    elif not console.is_terminal:
        yield _lines(title, console)
    else:
        with Bars(console) as bars:
            yield lambda done, total: bars.show(title, done, total)


class Bars:
    """Bars of steps in a terminal, which go when they are over; use it as a context."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("[progress.description]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._begun: dict[str, tuple[TaskID, float]] = {}

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, title: str, done: int | None, total: int | None) -> None:
        """Move the bar of a step; without how much is done it goes."""
        if done is None:
            if title in self._begun:
                self._progress.remove_task(self._begun.pop(title)[0])
            return
        if title not in self._begun:
            self._begun[title] = self._progress.add_task(title, total=None, rate=""), time.monotonic()
        task, start = self._begun[title]
        rate = done / max(time.monotonic() - start, 1e-9)
        self._progress.update(task, completed=done, total=total, rate=f"{rate:,.0f}/s")


def _telling(title: str, told: Told) -> Callable[[int, int], None]:
    last = 0.0

    def move(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _TELL_EVERY_S:
            last = now
            told(title, done, total)

    return move


def _lines(title: str, console: Console) -> Callable[[int, int], None]:
    start = last = time.monotonic()

    def move(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LOG_EVERY_S:
            last, rate = now, done / (now - start)
            console.print(f"{title}: {done:,} of {total:,}, {rate:,.0f}/s, {(total - done) / rate:,.0f} s left")

    return move
