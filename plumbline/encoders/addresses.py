"""Where checkpoints are: addresses of the audit file, resolved to folders on this disk, never to a download."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.digests import digest_file, digest_json
from plumbline.errors import CheckpointError

CONFIG = "open_clip_config.json"
_HUB = re.compile(r"hf-hub:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?")
_TAGGED = re.compile(r"(?P<architecture>[\w.-]+)/(?P<tag>[\w.-]+)")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# In a folder, open_clip takes the first of these names, then any safetensors file, then any other, by name.
_PREFERENCE = (
    "open_clip_model.safetensors", "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin", "open_clip_pytorch_model.pth",
    "model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth",
)  # fmt: skip
_OWN_NAMES = _PREFERENCE[:2]
# Beside the weights these decide what a checkpoint computes; read-me files and licences do not.
_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.bpe", "*.codes", "*.spm", "*.tiktoken")
_NOTES = ("training.json", "fetched.json")


@dataclass(frozen=True)
class Address:
    """A parsed address: exactly one of `folder`, `repository` and `architecture` is set."""

    text: str
    folder: Path | None = None
    repository: str | None = None
    revision: str | None = None
    architecture: str | None = None
    tag: str | None = None

    @property
    def slug(self) -> str:
        """Return the folder name under which `plumbline fetch` keeps the checkpoint."""
        return re.sub(r"[^\w.-]+", "--", self.text.removeprefix("hf-hub:"))


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint on disk.

    Attributes
    ----------
    weights : Path
        The safetensors file that is loaded; the only one.
    weights_sha256 : str
        Of that file.
    digest : str
        Of every file that decides what the checkpoint computes: weights, configuration, tokenizer.
    """

    folder: Path
    weights: Path
    weights_sha256: str
    digest: str


def parse_address(text: str, *, project: Path) -> Address:
    """Parse `local-dir:PATH`, `hf-hub:ORG/NAME@COMMIT` or `ARCHITECTURE/TAG`.

    Parameters
    ----------
    project : Path
        Where relative paths start; `~` is the home folder.

    Raises
    ------
    CheckpointError
        If it is none of these, or a hub address names no commit: branches and tags move.
    """
    if text.startswith("local-dir:") and (path := text.removeprefix("local-dir:").strip()):
        return Address(text, folder=_folder(path, project))
    if hub := _HUB.fullmatch(text):
        if not _COMMIT.fullmatch(hub["revision"] or ""):
            raise CheckpointError(
                "a hub address must name a commit, so that the audit says what it audited",
                found=text,
                expected="hf-hub:ORG/NAME@COMMIT, a revision of 40 hexadecimal digits; branches and tags move",
                hint="take the commit from the repository's history",
            )
        return Address(text, repository=hub["repo"], revision=hub["revision"])
    if tagged := _TAGGED.fullmatch(text):
        return Address(text, architecture=tagged["architecture"], tag=tagged["tag"])
    raise CheckpointError(
        "this is not a checkpoint address",
        found=text,
        expected="local-dir:PATH, hf-hub:ORG/NAME@COMMIT or ARCHITECTURE/TAG such as ViT-B-32-quickgelu/openai",
    )


def locate(address: Address, *, fetched: Path, encoder: str) -> CheckpointFiles:
    """Return the files of a checkpoint that is on this disk, with their digests.

    Parameters
    ----------
    fetched : Path
        Folder in which `plumbline fetch` keeps what it got.
    encoder : str
        Id in the audit file, for the message.

    Raises
    ------
    CheckpointError
        If it is not on disk, has no safetensors weights or several, open_clip would load another file than the
        one that is digested, or the configuration asks for parts that are not on disk.
    """
    folder = address.folder or fetched / address.slug
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` is not on this disk",
            where=folder,
            found="no " + CONFIG,
            expected=f"the files of {address.text}",
            hint=f"run `plumbline fetch {encoder}`"
            if address.folder is None
            else "correct the path in the audit file",
        )
    weights = _weights(folder, encoder)
    text_folder = _require_local_parts(folder / CONFIG)
    shas = {p.name: digest_file(p) for p in (weights, *_model_files(folder))}
    weights_sha256 = shas[weights.name]
    if text_folder is not None:
        shas |= {f"hf_model_name/{p.name}": digest_file(p) for p in _model_files(text_folder)}
    return CheckpointFiles(folder, weights, weights_sha256, digest_json(shas))


def chosen_by_open_clip(folder: Path) -> Path | None:
    """Return the weights file that open_clip 3 loads from a folder, or None where it finds none."""
    found = [p for kind in ("*.safetensors", "*.bin", "*.pth") for p in folder.glob(kind)]

    def rank(path: Path) -> tuple[int, bool, str]:
        known = _PREFERENCE.index(path.name) if path.name in _PREFERENCE else len(_PREFERENCE)
        return known, path.suffix != ".safetensors", path.name

    return min(found, key=rank, default=None)


def _folder(path: str, project: Path) -> Path:
    try:
        return (project / Path(path).expanduser()).resolve()
    except RuntimeError as error:
        raise CheckpointError("this user has no home folder", found=path, expected="a path") from error


def _weights(folder: Path, encoder: str) -> Path:
    found = sorted(p for p in folder.glob("*.safetensors") if p.is_file())
    if not found:
        others = sorted(p.name for kind in ("*.bin", "*.pt", "*.pth") for p in folder.glob(kind))
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` has no safetensors weights, and no other format is opened",
            where=folder,
            found=", ".join(others) or "no weights",
            expected=_OWN_NAMES[0],
        )
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
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError("this configuration is not JSON", where=path, found=error) from error
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


def _model_files(folder: Path) -> list[Path]:
    found = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.name not in _NOTES}
    return sorted(path for path in found if path.is_file())
