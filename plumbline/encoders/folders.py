"""From an address of the audit file to the files of an encoder, and to the encoder on a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from plumbline.checkpoints.addresses import Address, parse_address
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import (
    OPEN_CLIP_CONFIG,
    TRANSFORMERS_CONFIG,
    FolderContents,
    open_clip_contents,
    read_configuration,
    transformers_contents,
)
from plumbline.digests import digest_file, digest_json
from plumbline.encoders.encoder import DualEncoder, PairEncoder
from plumbline.encoders.families import FAMILIES, Family, family_of_model_type, find_family
from plumbline.errors import CheckpointError
from plumbline.imports import import_class


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
    family : str
        Name in `plumbline.encoders.families.FAMILIES`: which adapter loads it.
    deciding : tuple of (str, str)
        Name and sha256 of each of these files.
    """

    folder: Path
    weights: Path
    weights_sha256: str
    digest: str
    family: str
    deciding: tuple[tuple[str, str], ...] = ()


def locate(address: Address, *, fetched: Path, encoder: str, family: str | None = None) -> CheckpointFiles:
    """Return the files of a checkpoint that is on this disk, with their digests.

    Parameters
    ----------
    fetched : Path
        Folder in which `plumbline fetch` keeps what it got.
    encoder : str
        Id in the audit file, for the message.
    family : str, optional
        Name in `FAMILIES`; by default found from the files. `open_clip_config.json` means open_clip, and wins where
        both libraries' configurations are there; else the `model_type` of `config.json` decides.

    Raises
    ------
    CheckpointError
        If it is not on disk, of no known family or of another than `family`, has no safetensors weights or several,
        the library would load another file than the one that is digested, or the configuration asks for parts that
        are not on disk or for code of its own.
    """
    folder = address.folder_with(
        (OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG),
        fetched=fetched,
        what=f"the checkpoint of encoder `{encoder}`",
        fetch=f"`plumbline fetch {encoder}`",
    )
    found, (weights, files) = checkpoint_contents(folder, encoder=encoder, family=family)
    shas = {name: digest_file(path) for name, path in files.items()}
    deciding = tuple(sorted(shas.items()))
    return CheckpointFiles(folder, weights, shas[weights.name], digest_json(shas), found.name, deciding)


class CheckpointContents(NamedTuple):
    """The family of a checkpoint folder, and what decides in it."""

    family: Family
    contents: FolderContents


def checkpoint_contents(folder: Path, *, encoder: str, family: str | None = None) -> CheckpointContents:
    """Return the family of a checkpoint folder and the files that decide what it computes; no weights are read.

    Raises
    ------
    CheckpointError
        As `locate` does.
    """
    found = _family(folder, encoder, family)
    contents = open_clip_contents if found.name == "open_clip" else transformers_contents
    return CheckpointContents(found, contents(folder, encoder))


def _family(folder: Path, encoder: str, wanted: str | None) -> Family:
    """Return the family of a folder, or the wanted one if the folder can be read as it."""
    if wanted is not None:
        find_family(wanted)
    is_open_clip = (folder / OPEN_CLIP_CONFIG).is_file()
    if wanted == "open_clip" and not is_open_clip:
        raise _not_of(folder, encoder, wanted, f"no {OPEN_CLIP_CONFIG}", OPEN_CLIP_CONFIG)
    if is_open_clip and wanted in (None, "open_clip"):
        return FAMILIES["open_clip"]
    config = folder / TRANSFORMERS_CONFIG
    if not config.is_file():
        raise _not_of(folder, encoder, str(wanted), f"no {TRANSFORMERS_CONFIG}", TRANSFORMERS_CONFIG)
    model_type = str(read_configuration(config).get("model_type"))
    if wanted is not None:
        if model_type not in FAMILIES[wanted].reads:
            raise _not_of(
                folder, encoder, wanted, f"model_type: {model_type}", " or ".join(FAMILIES[wanted].reads)
            )
        return FAMILIES[wanted]
    found = family_of_model_type(model_type)
    if found is None:
        known = [model_type for family in FAMILIES.values() for model_type in family.model_types]
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` is of no family that can be audited",
            where=config,
            found=f"model_type: {model_type}",
            expected=f"one of {', '.join(known)}, or a folder of open_clip with {OPEN_CLIP_CONFIG}",
        )
    return found


def _not_of(folder: Path, encoder: str, wanted: str, found: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint of encoder `{encoder}` is not of the family {FAMILIES[wanted].title}",
        where=folder,
        found=found,
        expected=expected,
        hint="correct `family` in the audit file, or leave it out: it is found from the files",
    )


# --- From an address of the audit file to an encoder on a device.


def checkpoint_files(
    encoder: str, address: str, *, project: Path, fetched: Path, family: str | None = None
) -> CheckpointFiles:
    """Return the files of the encoder `encoder`; raises CheckpointError with the way to get them if absent."""
    return locate(parse_address(address, project=project), fetched=fetched, encoder=encoder, family=family)


def load_encoder(files: CheckpointFiles, placement: Placement) -> DualEncoder | PairEncoder:
    """Load a checkpoint from disk through the adapter of its family.

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, from the digested file alone; nothing is downloaded and nothing is random.
    """
    adapter = import_class(find_family(files.family).adapter, below="plumbline.encoders")
    return cast("DualEncoder | PairEncoder", adapter(files, placement))
