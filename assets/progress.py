"""Progress of long steps in the terminal: rate and time left, quiet where there is no terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LOG_EVERY_S = 10.0


@contextmanager
def progress_of(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for one step and give the function that moves it: called with (done, in all).

    Without a terminal (a log file, CI) a line with rate and time left is printed every ten seconds instead.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, console)
        return
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task, start = bar.add_task(title, total=None, rate=""), time.monotonic()

        def move(done: int, total: int) -> None:
            rate = done / max(time.monotonic() - start, 1e-9)
            bar.update(task, completed=done, total=total, rate=f"{rate:,.0f}/s")

        yield move


def _lines(title: str, console: Console) -> Callable[[int, int], None]:
    start = last = time.monotonic()

    def move(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LOG_EVERY_S:
            last, rate = now, done / (now - start)
            console.print(f"{title}: {done:,} of {total:,}, {rate:,.0f}/s, {(total - done) / rate:,.0f} s left")

    return move
