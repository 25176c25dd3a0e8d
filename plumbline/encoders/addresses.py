"""Where checkpoints are: addresses of the audit file, resolved to folders on this disk, never to a download."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from plumbline.digests import digest_file, digest_json
from plumbline.errors import CheckpointError

CONFIG = "open_clip_config.json"
_HUB = re.compile(r"hf-hub:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?")
_TAGGED = re.compile(r"(?P<architecture>[\w.-]+)/(?P<tag>[\w.-]+)")
# Files that decide what a checkpoint computes; read-me files and licences do not.
_MODEL_FILES = ("*.safetensors", "*.json", "*.txt", "*.model")
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
    weights_sha256 : str
        Of the safetensors file (of all, in name order, if it is split).
    digest : str
        Of every file that decides what the checkpoint computes: weights, configuration, tokenizer.
    """

    folder: Path
    weights: tuple[Path, ...]
    weights_sha256: str
    digest: str


def parse_address(text: str, *, project: Path) -> Address:
    """Parse `local-dir:PATH`, `hf-hub:ORG/NAME@REVISION` or `ARCHITECTURE/TAG`.

    Raises
    ------
    CheckpointError
        If it is none of these, or a hub address names no revision.
    """
    if text.startswith("local-dir:"):
        return Address(text, folder=(project / text.removeprefix("local-dir:")).resolve())
    if hub := _HUB.fullmatch(text):
        if not hub["revision"]:
            raise CheckpointError(
                "a hub address must name its revision, so that the audit says what it audited",
                found=text,
                expected="hf-hub:ORG/NAME@REVISION",
                hint="take the commit from the repository's history",
            )
        return Address(text, repository=hub["repo"], revision=hub["revision"])
    if tagged := _TAGGED.fullmatch(text):
        return Address(text, architecture=tagged["architecture"], tag=tagged["tag"])
    raise CheckpointError(
        "this is not a checkpoint address",
        found=text,
        expected="local-dir:PATH, hf-hub:ORG/NAME@REVISION or ARCHITECTURE/TAG such as ViT-B-32-quickgelu/openai",
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
        If it is not on disk, or has no safetensors weights.
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
    weights = tuple(sorted(folder.glob("*.safetensors")))
    if not weights:
        others = sorted(p.name for kind in ("*.bin", "*.pt", "*.pth") for p in folder.glob(kind))
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` has no safetensors weights, and no other format is opened",
            where=folder,
            found=", ".join(others) or "no weights",
            expected="open_clip_model.safetensors",
        )
    shas = {p.name: digest_file(p) for p in _model_files(folder)}
    weights_sha256 = (
        shas[weights[0].name] if len(weights) == 1 else digest_json([shas[p.name] for p in weights])
    )
    return CheckpointFiles(folder, weights, weights_sha256, digest_json(shas))


def _model_files(folder: Path) -> list[Path]:
    found = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.name not in _NOTES}
    return sorted(found)
