"""What this process may compute on, and a way to use all of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

Result = TypeVar("Result")


_share: int | None = None


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if _share is not None:
        return _share
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def share_cores(number: int) -> None:
    """Use no more cores than that from now on, in this process: others beside it use the rest.

    Not for threads of torch: the last bits of what a model says depend on their number, which is therefore the same
    whoever else works.
    """
    from threadpoolctl import threadpool_limits

    global _share
    _share = number
    threadpool_limits(number, user_api="blas")


def run_threads(calls: Iterable[Callable[[], Result]]) -> list[Result]:
    """Return what the calls give, in their order; they run in threads, as many at once as there are cores.

    For work that numpy does outside Python's lock, such as drawing random numbers. The calls must share nothing that
    they change: no random generator above all, so that the results do not depend on the number of cores. The first
    error is raised, after those calls that had begun.
    """
    from threadpoolctl import threadpool_limits

    listed, cores = list(calls), usable_cores()
    # Each matrix product would else use all cores too, and BLAS's threads spin while they wait for one.
    each = max(1, cores // max(1, len(listed)))
    with threadpool_limits(each, user_api="blas"), ThreadPoolExecutor(cores) as pool:
        contexts = [copy_context() for _ in listed]
        return list(pool.map(lambda context, call: context.run(call), contexts, listed))
