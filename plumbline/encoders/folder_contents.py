"""What is read in a checkpoint folder, whatever library wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.errors import CheckpointError

# Beside the weights these decide what a checkpoint computes; read-me files and licences do not.
_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.bpe", "*.codes", "*.spm", "*.tiktoken")
_NOTES = ("training.json", "fetched.json")


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
