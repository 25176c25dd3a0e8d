"""Lets torchvision be imported beside a torch that its compiled operators are not for.

torchvision from PyPI is built against CUDA. Beside a torch that is not, its extension cannot be loaded and its import
stops with ``operator torchvision::nms does not exist``, though open_clip and transformers use only its PIL transforms.

`python -m plumbline.checkpoints.operators`, which `make` runs where that is so, writes a `.pth` file beside the
libraries: from then on `import open_clip` works in that environment, whoever imports it. It goes with the environment.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# A torch Library takes its declarations back when it is collected.
_declared: list[Any] = []


class _Import(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torchvision":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Declaring(spec.loader)
        return spec


class _Declaring(Loader):
    """The loader of torchvision, which declares its operators and tries again where they are not there."""

    def __init__(self, real: Loader) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            self._real.exec_module(module)
        except RuntimeError:
            import torch

            if _declared:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")
            for schema in _SCHEMAS:
                library.define(schema)
            _declared.append(library)
            self._real.exec_module(module)


def declare_missing_operators() -> None:
    """Let a later `import torchvision` declare those of its operators that are not there; where all are, nothing."""
    if not any(isinstance(finder, _Import) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Import())


def write_beside(libraries: Path) -> None:
    """Write a copy of this module, and a `.pth` file that has it run by every Python of an environment.

    A copy: were it imported from here, every program would have this package loaded, from where it is installed, before
    it could say which one it means.
    """
    (libraries / f"{_NAME}.py").write_text(Path(__file__).read_text("utf-8"), "utf-8")
    (libraries / f"{_NAME}.pth").write_text(f"import {_NAME}; {_NAME}.declare_missing_operators()\n", "utf-8")


_NAME = "torchvision_operators"

if __name__ == "__main__":
    write_beside(Path(sysconfig.get_path("purelib")))
