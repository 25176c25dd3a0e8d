"""Memory of a device that ran out: how torch says so, and how what a failed pass held is given back."""

from __future__ import annotations

# What torch, its allocators and its libraries say when memory runs out, beside torch.OutOfMemoryError.
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether an error of torch means that memory ran out, on a device or on the CPU."""
    import torch

    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or any(word in words for word in _MEMORY_WORDS)


def release_device_memory() -> None:
    """Give back what a failed pass held; called when its error, which holds it too, is gone."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
