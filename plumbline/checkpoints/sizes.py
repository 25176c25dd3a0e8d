"""Whether the weights of a checkpoint have the sizes that its configuration says, before any of them is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from upath import UPath

from plumbline.checkpoints.folders import file_digest, model_files
from plumbline.digests import digest_json
from plumbline.errors import CheckpointError, StorageError
from plumbline.storage.files import commit_bytes

if TYPE_CHECKING:
    import torch

_LIBRARIES = ("torch", "transformers", "open_clip_torch", "timm")
_SHOWN = 5
_MOVED = ("model", "language_model")
"""Parts of names that are elsewhere in a later release: `language_model.model.norm`, `model.language_model.norm`."""

Sizes = dict[str, list[int]]
"""Name of a weight -> its shape."""


def require_sizes(
    folder: Path,
    weights: Sequence[Path],
    architecture: Callable[[], torch.nn.Module],
    *,
    configuration: str,
    kept: Path,
) -> None:
    """Refuse weights whose sizes are not those that a model of this configuration has.

    Of weights that the library renames in another way when it loads them, nothing is known before: loading finds those.

    Parameters
    ----------
    folder : Path
        Of the checkpoint.
    weights : sequence of Path
        Its safetensors files, of which only the headers are read.
    architecture : callable
        Builds the model without numbers, see `built_without_numbers`.
    configuration : str
        Name of the file that says the sizes, for the message.
    kept : Path
        Folder of what was found before: to build a model, its library is loaded.

    Raises
    ------
    CheckpointError
        With the weights, their sizes and those expected.
    """
    held = {name: shape for path in weights for name, shape in _sizes_in(path).items()}
    settings = {path.name: file_digest(path) for path in model_files(folder)}
    found_before = kept / digest_json([held, settings, {name: version(name) for name in _LIBRARIES}])
    if found_before.is_file():
        expected: Sizes = json.loads(found_before.read_text("utf-8"))
    else:
        expected = _other_sizes(held, architecture)
        with suppress(StorageError):  # a home that may only be read: it is found again the next time
            commit_bytes(UPath(found_before), json.dumps(expected).encode())
    if expected:
        names = sorted(expected)[:_SHOWN]
        more = " …" if len(expected) > _SHOWN else ""
        raise CheckpointError(
            f"{len(expected)} weight(s) have another size than the configuration says",
            where=", ".join(str(path) for path in weights),
            found="; ".join(f"{name}: {_shown(held[name])}" for name in names) + more,
            expected="; ".join(_shown(expected[name]) for name in names) + f"{more}, as {configuration} says",
            hint="weights and configuration are of two checkpoints: fetch or copy them again, from one place",
        )


def built_without_numbers(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Build a model whose weights have shapes and take no memory."""
    import torch

    with torch.device("meta"):
        return build()


def _other_sizes(held: Sizes, architecture: Callable[[], torch.nn.Module]) -> Sizes:
    """Return the sizes that the model has, of the weights that differ from them."""
    try:
        model = architecture()
    except Exception:
        # Some models compute while they are built: what is wrong with such a one, loading says.
        return {}
    expected = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    of_core = _by_core(expected)
    differing: Sizes = {}
    for core, name in _by_core(held).items():
        known = expected.get(name) or expected.get(of_core.get(core, ""))
        if known is not None and known != held[name]:
            differing[name] = known
    return differing


def _by_core(sizes: Sizes) -> dict[str, str]:
    """Return the names of weights by what releases of transformers leave of them; those that are told apart by it."""
    core_of = {name: ".".join(part for part in name.split(".") if part not in _MOVED) for name in sizes}
    times = Counter(core_of.values())
    return {core: name for name, core in core_of.items() if times[core] == 1}


def _sizes_in(path: Path) -> Sizes:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            names = file.keys()
            return {name: list(file.get_slice(name).get_shape()) for name in names}
    except SafetensorError:
        return {}  # loading says what is wrong with it


def _shown(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "one number"
