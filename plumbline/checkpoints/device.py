"""Devices: where a model runs, and what to do when its memory is full."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from plumbline.errors import ConfigError

# What torch, its allocators and its libraries say when memory runs out, beside torch.OutOfMemoryError.
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether an error of torch means that memory ran out, on a device or on the CPU."""
    import torch

    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or any(word in words for word in _MEMORY_WORDS)


def release_device_memory() -> None:
    """Free GPU memory after an out-of-memory error; call once the exception is released."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@dataclass(frozen=True)
class Placement:
    """Where and how a model runs.

    Attributes
    ----------
    device : str
        `cpu`, `cuda` or `cuda:N`.
    dtype : str
        Of the weights and of what passes through them: `float32` or `bfloat16`; results are float32 either way.
    compiled : bool
        Whether the towers go through `torch.compile`.
    """

    device: str = "cpu"
    dtype: str = "float32"
    compiled: bool = False

    @property
    def device_kind(self) -> str:
        """Return `cpu` or `cuda`: which of several devices it is moves no number."""
        return self.device.split(":")[0]

    @classmethod
    def choose(cls, *, device: str = "auto", dtype: str = "auto", compiled: bool = False) -> Placement:
        """Fill in what is `auto`: the GPU where there is one; bfloat16 on a GPU, float32 on a CPU.

        Raises
        ------
        ConfigError
            If `device` is a GPU that is not there.
        """
        if device == "auto":
            device = "cuda" if _has_gpu() else "cpu"
        elif device != "cpu":
            _require_gpu(device)
        if dtype == "auto":
            dtype = "float32" if device == "cpu" else "bfloat16"
        return cls(device, dtype, compiled)


def _has_gpu() -> bool:
    """Return whether torch can use a GPU of this machine; to load torch takes seconds, so that it is asked last."""
    if "torch" not in sys.modules and sys.platform == "linux" and not any(map(_is_of_a_gpu, Path("/dev").iterdir())):
        return False
    import torch

    return torch.cuda.is_available()


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, each as `CUDA_VISIBLE_DEVICES` names it."""
    if not _has_gpu():
        return ()
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbered = tuple(str(number) for number in range(torch.cuda.device_count()))
    return tuple(name.strip() for name in named.split(","))[: len(numbered)] if named else numbered


def _is_of_a_gpu(device: Path) -> bool:
    """Return whether a device file is that of a GPU: of a driver of NVIDIA, of a Jetson, of WSL, of AMD."""
    return device.name.startswith(("nvidia", "nvhost", "nvmap", "dxg", "kfd"))


def _require_gpu(device: str) -> None:
    import torch

    kind, _, number = device.partition(":")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind != "cuda" or int(number or 0) >= there:
        raise ConfigError(
            "this device is not on this machine, or torch was installed without it",
            found=f"device: {device}, with {there} GPU(s) that torch {torch.__version__} can use",
            expected="device: cpu or auto",
        )
