"""Weights that exist only as a pickle, turned into safetensors once, in a process of its own.

`torch.load(weights_only=True)` builds tensors and refuses every other object. The process around it is the second
wall and no sandbox: Python's calls that open a socket or start a program are refused, its memory and time are limited,
and what it writes is opened as safetensors only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from plumbline.datasets.records import printable
from plumbline.digests import digest_file
from plumbline.errors import CheckpointError
from plumbline.storage.files import move_into_place

SUFFIXES = (".bin", ".pt", ".pth")

_SECONDS = 3600
# Of address space, on a machine that has as much.
_MOST_MEMORY = 24 << 30
_FORBIDDEN = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "ctypes.dlopen",
)  # fmt: skip
# Training checkpoints hold the weights one level down, and data-parallel ones under this prefix.
_WRAPPERS, _PREFIX = ("state_dict", "model"), "module."
# Where safetensors itself keeps its notes.
_RESERVED = "__metadata__"


def convert_to_safetensors(source: Path, target: Path) -> dict[str, dict[str, str]]:
    """Write the tensors of a pickled checkpoint as safetensors.

    Every name gets a copy of its own, in order and contiguous: names that shared memory (tied weights, views) are
    equal in the file, which every library loads to the same model.

    Parameters
    ----------
    source : Path
        A file that `torch.save` wrote. It is not changed.
    target : Path
        Written whole or not at all.

    Returns
    -------
    dict
        `{"from": {"name", "sha256"}, "to": {"name", "sha256"}}`, for the record.

    Raises
    ------
    CheckpointError
        If the file holds anything but tensors, is damaged, or needs too much memory or time.
    """
    digest = digest_file(source)
    unfinished = target.with_name(f".{target.name}.unfinished")
    command = [sys.executable, "-I", "-m", "plumbline.checkpoints.conversion", str(source), str(unfinished)]
    environment = {key: value for key, value in os.environ.items() if key in ("PATH", "LD_LIBRARY_PATH", "TMPDIR")}
    try:
        done = subprocess.run(  # noqa: S603  (the interpreter and this module)
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode != 0 or not unfinished.is_file():
            lines = done.stderr.strip().splitlines()
            _refuse(source, lines[-1] if lines else _ending(done.returncode))
        if digest_file(source) != digest:
            _refuse(source, "the file changed while it was read")
        move_into_place(unfinished, target)
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(
            "the conversion to safetensors took too long",
            where=source.name,
            found=f"not done after {_SECONDS} s",
            expected="seconds for each GB of weights",
            hint="try again on a machine that does less at the same time, or ask the publisher for safetensors",
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return {"from": {"name": source.name, "sha256": digest}, "to": {"name": target.name, "sha256": digest_file(target)}}


def _refuse(source: Path, found: str) -> NoReturn:
    raise CheckpointError(
        "these weights were not converted to safetensors, and no other format is opened",
        where=source.name,
        found=printable(found),
        expected="a whole checkpoint of named dense tensors and nothing else, at its top or under "
        + " or ".join(f"`{wrapper}`" for wrapper in _WRAPPERS),
        hint="ask the publisher for safetensors; do not open this file by other means",
    )


def _ending(code: int) -> str:
    if code >= 0:
        return f"the converting process ended with {code} and said nothing"
    return f"the system ended the converting process by {signal.Signals(-code).name}, perhaps for its memory"


def _convert(source: Path, target: Path) -> None:
    import torch
    from safetensors.torch import save_file

    loaded = torch.load(source, map_location="cpu", weights_only=True)
    tensors = _tensors(loaded)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    limit = 4 * source.stat().st_size + (1 << 20)
    if size > limit:
        raise ValueError(f"tensors of {size} bytes in a file that can hold {limit} at most")
    copies = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    save_file(copies, target, metadata={"format": "pt"})


def _tensors(loaded: Any) -> dict[str, Any]:
    if isinstance(loaded, Mapping):
        # One level: what lies beside a wrapper is the training's, what lies beside the weights would be weights.
        inner = (loaded.get(wrapper) for wrapper in _WRAPPERS)
        loaded = next((content for content in inner if isinstance(content, Mapping)), loaded)
    if not isinstance(loaded, Mapping) or not loaded:
        raise ValueError(f"{type(loaded).__name__} instead of names with tensors")
    for name, value in loaded.items():
        if not isinstance(name, str) or name == _RESERVED:
            raise ValueError(f"the name {name!r}, which no tensor can have in safetensors")
        if (kind := _other_than_dense(value)) is not None:
            raise ValueError(f"{kind} under {name!r} instead of a dense tensor")
    if all(name.startswith(_PREFIX) for name in loaded):
        return {name.removeprefix(_PREFIX): tensor for name, tensor in loaded.items()}
    return dict(loaded)


def _other_than_dense(value: Any) -> str | None:
    """Say what a value is that safetensors cannot hold as it is; None for a dense tensor of plain numbers."""
    import torch

    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    kinds = {
        "a sparse tensor": value.layout != torch.strided,
        "a quantised tensor": value.is_quantized,
        "a tensor without content": value.is_meta,
        "a complex tensor": value.is_complex(),
    }
    return next((kind for kind, it_is in kinds.items() if it_is), None)


def _memory_limit() -> int:
    """Return how many bytes the conversion may take: what the machine has, and never more than any needs."""
    return min(_MOST_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _build_walls() -> None:
    """Limit this process for good, and have the interpreter refuse what opens sockets and starts programs."""
    import _posixsubprocess
    import resource

    for kind, limit in (
        (resource.RLIMIT_AS, _memory_limit()),
        (resource.RLIMIT_CPU, _SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(kind)
        least = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (least, least))

    def refuse(event: str, _: tuple[Any, ...]) -> None:
        if event.startswith(_FORBIDDEN):
            raise PermissionError(f"{event} is not allowed while weights are converted")

    sys.addaudithook(refuse)

    def fork_exec(*_: Any) -> NoReturn:
        raise PermissionError("fork_exec is not allowed while weights are converted")

    # The one call that starts programs and raises no event.
    for module in (_posixsubprocess, subprocess):
        for name in ("fork_exec", "_fork_exec"):
            if hasattr(module, name):
                setattr(module, name, fork_exec)


def _reason(error: BaseException) -> str:
    """Return the one line of an error that says what was met; torch puts advice to lower the guard around it."""
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return f"it needs more memory than the {_memory_limit() / 1e9:.0f} GB that a conversion may take here"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "unsupported" in line.lower()]
    # The project's own words need no type in front.
    kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
    return f"{kind}{(telling or lines or ['it holds nothing that reads as weights'])[0]}"


if __name__ == "__main__":
    # Before the walls: importing opens libraries.
    import safetensors.torch  # noqa: F401

    _build_walls()
    try:
        _convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as error:
        print(_reason(error), file=sys.stderr)
        sys.exit(3)
