"""A checkpoint folder of transformers: safetensors, a processor, a tokenizer, and no code of its own."""

from __future__ import annotations

from pathlib import Path

from plumbline.encoders.folder_contents import (
    TRANSFORMERS_ATTENTION,
    FolderContents,
    model_files,
    no_safetensors,
    refuse_code,
    require_files,
)
from plumbline.errors import CheckpointError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
IMAGE_PROCESSOR = (("preprocessor_config.json",), ("processor_config.json",))
"""Either holds the settings of an image processor."""

_TOKENIZER = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))


def transformers_contents(folder: Path, encoder: str) -> FolderContents:
    """Return what decides a transformers checkpoint.

    Raises
    ------
    CheckpointError
        If its weights are not one file `model.safetensors`, the image processor or the tokenizer is absent, or a
        configuration asks for code, weights, an attention or a quantisation of its own.
    """
    # Which attention computes is said when the model is loaded, whatever the configuration names.
    refuse_code(folder, attention=TRANSFORMERS_ATTENTION)
    refuse_adapter(folder)
    weights = _weights(folder, encoder)
    for part, choices in {"an image processor": IMAGE_PROCESSOR, "a tokenizer": _TOKENIZER}.items():
        lacking = f"the checkpoint of encoder `{encoder}` has no files of {part}"
        require_files(folder, choices, lacking=lacking)
    return FolderContents(weights, {p.name: p for p in (weights, *model_files(folder))})


def refuse_adapter(folder: Path) -> None:
    """Refuse a folder of an adapter; raises CheckpointError."""
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            "this checkpoint is an adapter, to be merged with weights that are elsewhere",
            where=folder,
            found="adapter_config.json",
            expected=f"merged weights in {WEIGHTS}",
        )


def _weights(folder: Path, encoder: str) -> Path:
    found = sorted(p.name for p in folder.glob("*.safetensors") if p.is_file())
    if not found:
        raise no_safetensors(folder, encoder, expected=WEIGHTS)
    if WEIGHTS not in found:
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` has "
            + ("several weights, and none" if len(found) > 1 else "weights, but not")
            + " under the name that transformers loads",
            where=folder,
            found=", ".join(found),
            expected=f"one file {WEIGHTS}",
            hint="merge the parts, or rename the one to audit",
        )
    return folder / WEIGHTS
