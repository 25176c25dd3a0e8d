"""Whether a safetensors file is there to its end: a copy that is still under way is shorter than its header says."""

from __future__ import annotations

import json
from pathlib import Path

from plumbline.errors import CheckpointError

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000
"""The format's own limit."""


def require_complete(path: Path) -> None:
    """Refuse a safetensors file that is not as long as its header says; the tensors are not read.

    Raises
    ------
    CheckpointError
        With both lengths.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = file.read(length) if length <= _LONGEST_HEADER else b""
    try:
        tensors = json.loads(header)
        ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"]
        expected = _LENGTH_BYTES + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        expected = -1
    if size != expected:
        raise CheckpointError(
            "the weights are not complete",
            where=path,
            found=f"{size} bytes",
            expected=f"{expected} bytes, as its header says" if expected >= 0 else "a whole safetensors file",
            hint="wait until the copy is done",
        )
