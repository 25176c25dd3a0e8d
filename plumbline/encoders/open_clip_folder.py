"""A checkpoint folder of open_clip: the one weights file that is loaded, and nothing from anywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plumbline.encoders.folder_contents import (
    FolderContents,
    model_files,
    no_safetensors,
    read_configuration,
    refuse_code,
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
# How texts are cleaned, which end token is dropped, and which language they are in. Others of open_clip's two
# tokenizers open files outside the folder, draw at random what is cut, or go on to transformers as they are.
_TOKENIZER_OPTIONS = frozenset({"clean", "strip_sep_token", "language"})


def open_clip_contents(folder: Path, encoder: str) -> FolderContents:
    """Return what decides an open_clip checkpoint.

    Raises
    ------
    CheckpointError
        If it has no safetensors weights or several, open_clip would load another file than that one, or the
        configuration asks for parts that are not on disk or for code of its own.
    """
    weights = _weights(folder, encoder)
    text_folder = _text_folder(folder)
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


def _text_folder(folder: Path) -> Path | None:
    """Refuse a configuration that would download or run something; return the folder of its text model, if any."""
    content = read_configuration(folder / CONFIG)
    text, vision = (_part(content, "model_cfg", key) for key in ("text_cfg", "vision_cfg"))
    name, timm = text.get("hf_model_name"), str(vision.get("timm_model_name"))
    # A relative name would be looked for from where the process happens to run.
    local = not name or (Path(str(name)).is_absolute() and Path(str(name)).is_dir())
    unknown = sorted(_part(text, "tokenizer_kwargs").keys() - _TOKENIZER_OPTIONS)
    parts = {
        "text_cfg.hf_model_name": None if local else name,
        "vision_cfg.timm_model_name": timm if ":" in timm else None,
        "text_cfg.tokenizer_kwargs": ", ".join(unknown) or None,
    }
    for key, found in parts.items():
        if found is not None:
            raise CheckpointError(
                "this checkpoint needs parts that are not in its folder, and nothing is downloaded in a run",
                where=folder / CONFIG,
                found=f"model_cfg.{key}: {found}",
                expected="an architecture of open_clip or timm; for the text model the absolute path of a folder on "
                f"disk; of the tokenizer's options {', '.join(sorted(_TOKENIZER_OPTIONS))}",
            )
    if text.get("hf_tokenizer_name"):
        # open_clip takes this tokenizer from the checkpoint's own folder, whatever the name.
        refuse_code(folder)
    if name:
        refuse_code(Path(str(name)))
    return Path(str(name)) if name else None


def _part(content: Any, *keys: str) -> dict[str, Any]:
    """Return a nested mapping, empty where the file has something else: open_clip says what it lacks."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}
