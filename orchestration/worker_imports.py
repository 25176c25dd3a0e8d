"""What workers import, once for all processes that are forked from this one: three quarters of their start.

No thread that this starts is in the way of a fork: they are those of allocators, which know of forks.
"""

import ctypes
import gc
import importlib
import signal

_PR_SET_PDEATHSIG = 1
# It ends with the audit, at once: taking all its modules apart would take seconds, for which a pipe would stay open.
ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

from plumbline.checkpoints.operators import declare_missing_operators  # noqa: E402

LIBRARIES = (
    "orchestration.definitions",
    "open_clip",
    "transformers",
    "mlflow.tracking",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_workspace_store",
)

gc.disable()  # a quarter of the imports' time went into collections that found nothing
declare_missing_operators()
for _library in LIBRARIES:
    importlib.import_module(_library)
gc.freeze()  # a worker's collector does not walk what all share, which would also copy it
gc.enable()
