"""Ctrl-C is answered at once, also while a model computes."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_OVER, _AGAIN = 0, 255
_INTERRUPTED = ("KeyboardInterrupt", "DagsterExecutionInterruptedError")


@contextmanager
def interrupt_told(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` on the first SIGINT that arrives inside, from a thread; how runs are ended is left as it is.

    Python and Dagster act on the signal when code comes back to Python, which may be seconds later. That it arrived is
    written to a pipe at once. Only the main thread of a process hears of signals: elsewhere nothing is said.

    Where Python acts on it within a callback of the garbage collector or of a weak reference, the exception is printed
    and lost, and the audit would go on: it is raised once more, outside of that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    thread = threading.Thread(target=_listen, args=(read, say), name="interrupt", daemon=True)
    thread.start()
    print_lost = sys.unraisablehook

    def raise_again(lost: "sys.UnraisableHookArgs") -> None:
        if lost.exc_type.__name__ in _INTERRUPTED:
            os.write(write, bytes([_AGAIN]))
        else:
            print_lost(lost)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = print_lost
        signal.set_wakeup_fd(before)
        # Not by closing: a process that was forked may hold the other end.
        os.write(write, bytes([_OVER]))
        thread.join()
        os.close(read)
        os.close(write)


def _listen(pipe: int, say: Callable[[], None]) -> None:
    warned = False
    while (number := os.read(pipe, 1)[0]) != _OVER:
        if number == signal.SIGINT and not warned:
            warned = True
            say()
        if number == _AGAIN:
            time.sleep(_OUTSIDE_S)
            os.kill(os.getpid(), signal.SIGINT)


_OUTSIDE_S = 0.05
"""Long enough for the callback in which an exception was lost to have ended."""
