"""Two operator schemas that a torchvision built for another torch fails to register."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# A torch Library takes its declarations back when it is collected.
_declared: list[Any] = []


def declare_missing_operators() -> bool:
    """Make `import torchvision` work where its compiled operators do not load.

    torchvision from PyPI is built against CUDA. Beside a torch that is not, its extension cannot be loaded
    and its import stops with ``operator torchvision::nms does not exist``, though open_clip and transformers
    use only its PIL transforms. Call this before the first import of torchvision, open_clip or transformers'
    image processors. Nothing is declared where the real operators load, and a second call does nothing.

    Returns
    -------
    bool
        Whether the schemas had to be declared, by this call or an earlier one.
    """
    import torch

    if _declared:
        return True
    if _operators_exist() or _extension_loads():
        return False
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        library.define(schema)
    _declared.append(library)
    return True


def _operators_exist() -> bool:
    import torch

    return hasattr(torch.ops.torchvision, "nms")


def _extension_loads() -> bool:
    # find_spec of a top-level package does not import it, so the extension can be tried first.
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    libraries = sorted(Path(spec.origin).parent.glob("_C.*"))
    for library in libraries:
        try:
            torch.ops.load_library(str(library))
        except (OSError, ImportError):
            continue
        if _operators_exist():
            return True
    return False
