"""A folder of a sequence classifier: safetensors, a tokenizer, and no code of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.digests import digest_file, digest_json
from plumbline.encoders.addresses import Address, parse_address
from plumbline.encoders.folder_contents import (
    TRANSFORMERS_ATTENTION,
    model_files,
    read_configuration,
    refuse_code,
    require_files,
)
from plumbline.encoders.transformers_folder import CONFIG, WEIGHTS
from plumbline.errors import CheckpointError

_TOKENIZER = (
    ("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"),
    ("sentencepiece.bpe.model",), ("spm.model",), ("spiece.model",),
)  # fmt: skip


@dataclass(frozen=True)
class ClassifierFiles:
    """A classifier on disk.

    Attributes
    ----------
    address : str
        As in the audit file.
    folder : Path
    weights : Path
        The one safetensors file.
    digest : str
        Of every file that decides its scores: weights, configuration, tokenizer.
    config : dict
        The content of `config.json`.
    version : str
        For people: the commit of a hub address, else the folder's name and the beginning of the digest.
    """

    address: str
    folder: Path
    weights: Path
    digest: str
    config: dict[str, Any]
    version: str


def classifier_files(address: str, *, project: Path, fetched: Path) -> ClassifierFiles:
    """Return the files of a classifier that is on this disk, with their digest.

    Parameters
    ----------
    address : str
        `local-dir:PATH` or `hf-hub:ORG/NAME@COMMIT`.
    project : Path
        Where relative paths start.
    fetched : Path
        Folder in which `plumbline fetch` keeps what it got.

    Raises
    ------
    CheckpointError
        If it is not on disk, its weights are not one file `model.safetensors`, it has no tokenizer, or it asks for
        code, weights, an attention or a quantisation of its own.
    """
    parsed = parse_address(address, project=project)
    folder = _folder(parsed, fetched)
    # Which attention computes is said when the model is loaded, whatever the configuration names.
    refuse_code(folder, attention=TRANSFORMERS_ATTENTION)
    weights = _weights(folder)
    require_files(folder, _TOKENIZER, lacking="this classifier has no tokenizer")
    digest = digest_json({path.name: digest_file(path) for path in (weights, *model_files(folder))})
    version = f"{parsed.repository}@{parsed.revision}" if parsed.revision else f"{folder.name} {digest[:12]}"
    return ClassifierFiles(address, folder, weights, digest, read_configuration(folder / CONFIG), version)


def _folder(address: Address, fetched: Path) -> Path:
    if address.architecture is not None:
        raise CheckpointError(
            "this is an address of open_clip, which has no classifiers of texts",
            found=address.text,
            expected="local-dir:PATH or hf-hub:ORG/NAME@COMMIT",
        )
    what, fetch = "the classifier that scores texts", "`plumbline fetch` with the scorer's id"
    return address.folder_with((CONFIG,), fetched=fetched, what=what, fetch=fetch)


def _weights(folder: Path) -> Path:
    found = sorted(
        p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".bin", ".pt", ".pth", ".h5")
    )
    if (folder / "adapter_config.json").is_file() or WEIGHTS not in found:
        raise CheckpointError(
            "this classifier has no whole safetensors weights, and no other format is opened",
            where=folder,
            found=", ".join(found) or "no weights",
            expected=f"one file {WEIGHTS}, not an adapter and not parts",
            hint="save it with transformers' `save_pretrained`, which writes safetensors",
        )
    return folder / WEIGHTS
