"""From an address of the audit file to a generative model on a device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from plumbline.classes import class_at
from plumbline.digests import digest_file, digest_json
from plumbline.encoders.addresses import Address, parse_address
from plumbline.encoders.encoder import Placement
from plumbline.encoders.folder_contents import read_configuration
from plumbline.encoders.transformers_folder import CONFIG
from plumbline.errors import CheckpointError
from plumbline.lvlm.backend import Backend
from plumbline.lvlm.families import LVLM_FAMILIES
from plumbline.lvlm.lvlm_folder import lvlm_contents

_LARGE = 1 << 26
_DEFAULTS = "generation_config.json"
_NO_DECODING = ("_from_model_config", "transformers_version", "max_length", "max_new_tokens", "use_cache")


@dataclass(frozen=True)
class LvlmFiles:
    """A generative model on disk.

    Attributes
    ----------
    name : str
        Id in the audit file.
    folder : Path
    weights : tuple of Path
        The safetensors files that are loaded; several of a large model.
    weights_sha256 : str
        Of the one weights file, as `sha256sum` prints it; of several, the digest of their names and sha256.
    digest : str
        Of every file that decides what the model answers: weights, configuration, tokenizers, chat template.
    family : str
        Name in `plumbline.lvlm.families.LVLM_FAMILIES`.
    text_model : str
        `model_type` of the language model inside, such as `llama`.
    sees : bool
        Whether it takes images.
    own_decoding : dict
        What the checkpoint's `generation_config.json` says of how to draw tokens. The audit draws as its `Decoding`
        says and leaves this aside: Vicuna's file asks for temperature 0.9 and top-p 0.6. To be shown to people.
    """

    name: str
    folder: Path
    weights: tuple[Path, ...]
    weights_sha256: str
    digest: str
    family: str
    text_model: str
    sees: bool
    own_decoding: dict[str, Any]


def lvlm_files(name: str, address: str, *, project: Path, fetched: Path) -> LvlmFiles:
    """Return the files of a generative model that is on this disk, with their digests.

    Parameters
    ----------
    name : str
        Id in the audit file, for messages.
    address : str
        `local-dir:PATH` or `hf-hub:ORG/NAME@COMMIT`.
    project : Path
        Where relative paths start.
    fetched : Path
        Folder in which `plumbline fetch` keeps what it got.

    Raises
    ------
    CheckpointError
        If it is not on disk, of no known family, without safetensors weights, image processor or tokenizer, or asks
        for code or parts that are not digested.
    """
    parsed = parse_address(address, project=project)
    folder = _folder(parsed, name, fetched)
    contents = lvlm_contents(folder, name)
    shas = {file: _digest(path) for file, path in contents.deciding.items()}
    parts = {path.name: shas[path.name] for path in contents.weights}
    return LvlmFiles(
        name=name,
        folder=folder,
        weights=contents.weights,
        weights_sha256=next(iter(parts.values())) if len(parts) == 1 else digest_json(parts),
        digest=digest_json(shas),
        family=contents.family.name,
        text_model=contents.text_model,
        sees=contents.family.sees,
        own_decoding=_own_decoding(folder),
    )


def load_backend(files: LvlmFiles, placement: Placement) -> Backend:
    """Load a generative model from disk through the adapter of its family.

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, from the digested files alone; nothing is downloaded and nothing is random.
    """
    adapter = class_at(LVLM_FAMILIES[files.family].adapter, below="plumbline.lvlm")
    return cast("Backend", adapter(files, placement))


def _digest(path: Path) -> str:
    """Return a file's sha256; a large one is read again only if it was written since this process read it.

    An audit asks for it with every slice, and the weights of a large model take minutes to read.
    """
    about = path.stat()
    if about.st_size < _LARGE:
        return digest_file(path)
    return _digest_of(path, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


@lru_cache(maxsize=256)
def _digest_of(path: Path, *_written: int) -> str:
    return digest_file(path)


def _folder(address: Address, name: str, fetched: Path) -> Path:
    if address.architecture is not None:
        raise CheckpointError(
            f"model `{name}` has an address of open_clip, which has no generative models",
            found=address.text,
            expected="local-dir:PATH or hf-hub:ORG/NAME@COMMIT",
        )
    what, fetch = f"the checkpoint of model `{name}`", f"`plumbline fetch {name}`"
    return address.folder_with((CONFIG,), fetched=fetched, what=what, fetch=fetch)


def _own_decoding(folder: Path) -> dict[str, Any]:
    if not (folder / _DEFAULTS).is_file():
        return {}
    content = read_configuration(folder / _DEFAULTS)
    return {k: v for k, v in content.items() if k not in _NO_DECODING and not k.endswith("_token_id")}
