"""A checkpoint folder of open_clip: the one weights file that is loaded, and nothing from anywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plumbline.encoders.folder_contents import (
    FolderContents,
    model_files,
    no_safetensors,
    read_configuration,
)
from plumbline.errors import CheckpointError

CONFIG = "open_clip_config.json"
# In a folder, open_clip takes the first of these names, then any safetensors file, then any other, by name.
_PREFERENCE = (
    "open_clip_model.safetensors", "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin", "open_clip_pytorch_model.pth",
    "model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth",
)  # fmt: skip
_OWN_NAMES = _PREFERENCE[:2]


def open_clip_contents(folder: Path, encoder: str) -> FolderContents:
    """Return what decides an open_clip checkpoint.

    Raises
    ------
    CheckpointError
        If it has no safetensors weights or several, open_clip would load another file than that one, or the
        configuration asks for parts that are not on disk.
    """
    weights = _weights(folder, encoder)
    text_folder = _require_local_parts(folder / CONFIG)
    deciding = {p.name: p for p in (weights, *model_files(folder))}
    if text_folder is not None:
        deciding |= {f"hf_model_name/{p.name}": p for p in model_files(text_folder)}
    return FolderContents(weights, deciding)


def chosen_by_open_clip(folder: Path) -> Path | None:
    """Return the weights file that open_clip 3 loads from a folder, or None where it finds none."""
    found = [p for kind in ("*.safetensors", "*.bin", "*.pth") for p in folder.glob(kind)]

    def rank(path: Path) -> tuple[int, bool, str]:
        known = _PREFERENCE.index(path.name) if path.name in _PREFERENCE else len(_PREFERENCE)
        return known, path.suffix != ".safetensors", path.name

    return min(found, key=rank, default=None)


def _weights(folder: Path, encoder: str) -> Path:
    found = sorted(p for p in folder.glob("*.safetensors") if p.is_file())
    if not found:
        raise no_safetensors(folder, encoder, expected=_OWN_NAMES[0])
    own = [folder / name for name in _OWN_NAMES if folder / name in found]
    if not own and len(found) > 1:
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` has several weights, and none is named as open_clip names its own",
            where=folder,
            found=", ".join(p.name for p in found),
            expected=f"one of {' and '.join(_OWN_NAMES)}, or a single safetensors file",
            hint="keep one file, or rename the one to audit",
        )
    weights = (own or found)[0]
    if (loaded := chosen_by_open_clip(folder)) is not None and loaded != weights:
        raise CheckpointError(
            f"open_clip would load other weights for encoder `{encoder}` than the safetensors file",
            where=folder,
            found=loaded.name,
            expected=weights.name,
            hint=f"remove {loaded.name} from the folder",
        )
    return weights


def _require_local_parts(path: Path) -> Path | None:
    """Refuse a configuration that would download or run something; return the folder of its text model, if any."""
    content = read_configuration(path)
    text, vision = (_part(content, "model_cfg", key) for key in ("text_cfg", "vision_cfg"))
    name = text.get("hf_model_name")
    parts = {
        "text_cfg.hf_model_name": name if name and not Path(str(name)).is_dir() else None,
        "vision_cfg.timm_model_name": vision.get("timm_model_name")
        if ":" in str(vision.get("timm_model_name"))
        else None,
        "text_cfg.tokenizer_kwargs": "trust_remote_code"
        if "trust_remote_code" in _part(text, "tokenizer_kwargs")
        else None,
    }
    for key, found in parts.items():
        if found is not None:
            raise CheckpointError(
                "this checkpoint needs parts that are not in its folder, and nothing is downloaded in a run",
                where=path,
                found=f"model_cfg.{key}: {found}",
                expected="an architecture of open_clip or timm, or for the text model the path of a folder on disk",
            )
    return Path(str(name)) if name else None


def _part(content: Any, *keys: str) -> dict[str, Any]:
    """Return a nested mapping, empty where the file has something else: open_clip says what it lacks."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}
