"""Work in threads whose results come in the order of what went in."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from plumbline.cores import usable_cores

Progress = Callable[[int, int], None]

# Large enough that handing work to a thread costs little beside the work, small enough that progress is seen.
_CHUNK = 32
_CHUNKS_AHEAD = 4
# An item that takes less is Python from end to end: several threads would only hand its lock to and fro.
_QUICK_SECONDS = 150e-6

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _Worked(NamedTuple, Generic[_Result]):
    """What was made of some items, and the seconds that it took."""

    results: list[_Result]
    seconds: float


def in_order(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    workers: int | None,
    progress: Progress | None = None,
) -> Iterator[_Result]:
    """Yield `work(item)` in the order of the items, with a bounded number of them under way.

    Parameters
    ----------
    workers : int or None
        Threads; with None as many as pay, which is found out on the way.
    progress : callable, optional
        Called with (items done, items in all) in this thread.
    """
    threads = workers or usable_cores()
    pending: deque[Future[_Worked[_Result]]] = deque()
    chunks = _chunks(items)
    done, ahead = 0, threads * _CHUNKS_AHEAD if workers else 1
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        try:
            while True:
                wanted = max(0, ahead - len(pending))
                pending.extend(pool.submit(_work_through, work, chunk) for chunk in islice(chunks, wanted))
                if not pending:
                    return
                results, seconds = pending.popleft().result()
                if not workers:
                    ahead = 1 if seconds < _QUICK_SECONDS * len(results) else threads * _CHUNKS_AHEAD
                yield from results
                done += len(results)
                if progress is not None:
                    progress(done, len(items))
        finally:
            # Reached early only when the caller or a file system gives up; what has not begun need not begin.
            for future in pending:
                future.cancel()


def _chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))


def _work_through(work: Callable[[_Item], _Result], chunk: Iterable[_Item]) -> _Worked[_Result]:
    start = time.perf_counter()
    return _Worked([work(item) for item in chunk], time.perf_counter() - start)
