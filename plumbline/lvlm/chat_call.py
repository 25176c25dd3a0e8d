"""A coroutine that works in a thread of its own while a plain iterator hands out what it finishes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")

STOP_S = 10.0
"""How long a stopped call may take to close its connections before its thread is left behind."""

GLANCE_S = 0.5
"""How often who waits looks up: a Ctrl-C that comes just as the wait begins does not end it by itself."""


class _End:
    """Stands last in the queue."""


class Call(Generic[_Item]):
    """One run of a coroutine, whose results are taken from another thread.

    Parameters
    ----------
    work : callable
        Takes a function that hands out one item, and gives the coroutine. Whatever it raises is raised by `items`.
    """

    def __init__(self, work: Callable[[Callable[[_Item], None]], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._finished: SimpleQueue[_Item | _End] = SimpleQueue()
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="plumbline-endpoint-call", daemon=True)

    def items(self) -> Iterator[_Item]:
        """Start, and yield items as they are finished; an error comes after all that was finished before it."""
        self._thread.start()
        while not isinstance(item := self._next(), _End):
            yield item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Abandon what is under way; does nothing where all is done."""
        self._stopped = True
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._cancel)
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        elif not self._loop.is_closed():
            self._loop.close()

    def left(self) -> Iterator[_Item]:
        """Yield what is finished and was not taken; after `stop`."""
        while True:
            try:
                item = self._finished.get_nowait()
            except Empty:
                return
            if not isinstance(item, _End):
                yield item

    def _next(self) -> _Item | _End:
        while True:
            try:
                return self._finished.get(timeout=GLANCE_S)
            except Empty:
                continue

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._finished.put(_End())

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        if not self._stopped:
            await self._work(self._finished.put)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
