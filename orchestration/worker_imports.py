"""What work with models imports, once for all processes that are forked from this one: three quarters of its start.

No thread that this starts is in the way of a fork: they are those of allocators, which know of forks.
"""

import importlib

from plumbline.checkpoints.operators import declare_missing_operators

LIBRARIES = (
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_workspace_store", "mlflow.tracking", "open_clip", "scipy.stats",
    "statsmodels.api", "transformers",
)  # fmt: skip

declare_missing_operators()
for _library in LIBRARIES:
    importlib.import_module(_library)
