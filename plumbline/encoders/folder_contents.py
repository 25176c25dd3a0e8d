"""What is read in a checkpoint folder, whatever library wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.errors import CheckpointError

# Beside the weights these decide what a checkpoint computes; read-me files and licences do not.
_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.bpe", "*.codes", "*.spm", "*.tiktoken")
_NOTES = ("training.json", "fetched.json")
# What transformers reads of a folder beside weights and vocabularies.
_SETTINGS = ("config.json", "preprocessor_config.json", "processor_config.json", "tokenizer_config.json")
# Any of these would have transformers run what it finds, fetch it, or load something else than the digested weights.
_CODE, _KERNEL = "code of its own", "attention or experts of its own"
_REFUSED = {
    "auto_map": _CODE,
    "custom_pipelines": _CODE,
    "trust_remote_code": _CODE,
    "transformers_weights": "weights in another file",
    "quantization_config": "a quantiser",
    "attn_implementation": _KERNEL,
    "_attn_implementation": _KERNEL,
    "_attn_implementation_internal": _KERNEL,
    "experts_implementation": _KERNEL,
    "_experts_implementation": _KERNEL,
    "_experts_implementation_internal": _KERNEL,
}
# Of attention, what transformers has itself; any other name may be that of a kernel on the hub.
_HARMLESS = {_KERNEL: (None, "eager", "sdpa"), "a quantiser": (None,)}


class FolderContents(NamedTuple):
    """The one weights file of a checkpoint folder, and everything that decides what the checkpoint computes.

    Attributes
    ----------
    weights : Path
        A safetensors file.
    deciding : dict of name to Path
        Weights included.
    """

    weights: Path
    deciding: dict[str, Path]


def model_files(folder: Path) -> list[Path]:
    """Return configuration and tokenizer files of a folder, by name."""
    found = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.name not in _NOTES}
    return sorted(path for path in found if path.is_file())


def read_configuration(path: Path) -> dict[str, Any]:
    """Return a JSON object of a checkpoint folder, empty where the file has something else than an object.

    Raises
    ------
    CheckpointError
        If it is not JSON.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError("this configuration is not JSON", where=path, found=error) from error
    return content if isinstance(content, dict) else {}


def refuse_code(folder: Path) -> None:
    """Refuse a folder whose settings would have transformers run, fetch or load what was not digested.

    Raises
    ------
    CheckpointError
        With the file and the key, at whatever depth it lies.
    """
    for path in (folder / name for name in _SETTINGS):
        if not path.is_file():
            continue
        for key, value in _pairs(read_configuration(path)):
            what = _REFUSED.get(key)
            if what is not None and value not in _HARMLESS.get(what, ()):
                raise CheckpointError(
                    f"this checkpoint asks for {what}, and only transformers' own classes are used",
                    where=path,
                    found=f"{key}: {value}",
                    expected="a checkpoint of one of transformers' own architectures, in plain float weights",
                )


def _pairs(content: Any) -> Iterator[tuple[str, Any]]:
    """Return every key and value of a configuration: settings of a part may lie any number of levels down."""
    if isinstance(content, dict):
        yield from content.items()
        content = list(content.values())
    if isinstance(content, list):
        for part in content:
            yield from _pairs(part)


def no_safetensors(folder: Path, encoder: str, *, expected: str) -> CheckpointError:
    """Return the error for a folder without safetensors weights; names what is there instead."""
    others = sorted(p.name for kind in ("*.bin", "*.pt", "*.pth") for p in folder.glob(kind))
    return CheckpointError(
        f"the checkpoint of encoder `{encoder}` has no safetensors weights, and no other format is opened",
        where=folder,
        found=", ".join(others) or "no weights",
        expected=expected,
        hint=f"`plumbline fetch {encoder}` converts a hub checkpoint that has only .bin weights"
        if others
        else None,
    )
