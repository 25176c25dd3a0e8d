"""Weights that exist only as a pickle, turned into safetensors once, in a process of its own.

`torch.load(weights_only=True)` builds tensors and refuses every other object. The process around it is the second
wall: it may open no socket and start no program, its memory and time are limited, and what it writes is opened as
safetensors only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from plumbline.datasets.records import printable
from plumbline.digests import digest_file
from plumbline.errors import CheckpointError

SUFFIXES = (".bin", ".pt", ".pth")

_SECONDS = 3600
_MEMORY_BYTES = 24 << 30
_FORBIDDEN = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "ctypes.dlopen",
)  # fmt: skip
# Training checkpoints hold the weights one level down, and data-parallel ones under this prefix.
_WRAPPERS, _PREFIX = ("state_dict", "model"), "module."


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
    command = [sys.executable, "-I", "-m", "plumbline.bin_conversion", str(source), str(unfinished)]
    environment = {
        key: value for key, value in os.environ.items() if key in ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
    }
    try:
        done = subprocess.run(  # noqa: S603  (the interpreter and this module)
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode != 0 or not unfinished.is_file():
            said = done.stderr.strip().splitlines()
            _refuse(source, said[-1] if said else f"the process ended with {done.returncode}")
        if digest_file(source) != digest:
            _refuse(source, "the file changed while it was read")
        unfinished.replace(target)
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(
            "the conversion to safetensors took too long", where=source, found=f"{_SECONDS} s"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return {
        "from": {"name": source.name, "sha256": digest},
        "to": {"name": target.name, "sha256": digest_file(target)},
    }


def _refuse(source: Path, found: str) -> NoReturn:
    raise CheckpointError(
        "these weights were not converted to safetensors, and no other format is opened",
        where=source.name,
        found=printable(found),
        expected="a checkpoint of tensors only",
        hint="ask the publisher for safetensors; do not open this file by other means",
    )


def _convert(source: Path, target: Path) -> None:
    import torch
    from safetensors.torch import save_file

    loaded = torch.load(source, map_location="cpu", weights_only=True)
    tensors = _tensors(loaded)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    limit = 4 * source.stat().st_size + (1 << 20)
    if size > limit:
        raise ValueError(f"the tensors would take {size} bytes, expected at most {limit}")
    own = {
        name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    save_file(own, target, metadata={"format": "pt"})


def _tensors(loaded: Any) -> dict[str, Any]:
    import torch

    for wrapper in _WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapper), Mapping):
            loaded = loaded[wrapper]
    if not isinstance(loaded, Mapping) or not loaded:
        raise ValueError(f"found {type(loaded).__name__}, expected names with tensors")
    for name, tensor in loaded.items():
        if (
            not isinstance(name, str)
            or not isinstance(tensor, torch.Tensor)
            or tensor.layout != torch.strided
        ):
            raise ValueError(f"found {type(tensor).__name__} under {name!r}, expected a dense tensor")
    if all(name.startswith(_PREFIX) for name in loaded):
        return {name.removeprefix(_PREFIX): tensor for name, tensor in loaded.items()}
    return dict(loaded)


def _build_walls() -> None:
    """Limit this process, and have the interpreter refuse network and programs; neither can be undone from inside."""
    import resource

    for kind, limit in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
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


def _reason(error: BaseException) -> str:
    """Return the one line of an error that says what was met; torch puts advice to lower the guard around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "unsupported" in line.lower()]
    return f"{type(error).__name__}: {(telling or lines or ['it holds nothing that reads as weights'])[0]}"


if __name__ == "__main__":
    # Before the walls: importing opens libraries.
    import safetensors.torch  # noqa: F401

    _build_walls()
    try:
        _convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as error:
        print(_reason(error), file=sys.stderr)
        sys.exit(3)
