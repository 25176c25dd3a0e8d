"""From an address of the audit file to the files of an encoder, and to the encoder on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from plumbline.checkpoints.addresses import OPEN_CLIP_CONFIG, STORED, TRANSFORMERS_CONFIG, Address, parse_address
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import (
    CheckpointFiles,
    FolderContents,
    family_of_folder,
    family_of_model_type,
    read_configuration,
    transformers_contents,
)
from plumbline.checkpoints.loading import loading, modest_run, require_sizes
from plumbline.checkpoints.pickled import CONVERTED, readable_folder
from plumbline.encoders.encoder import DualEncoder, PairEncoder
from plumbline.encoders.families import DUAL_ENCODER, FAMILIES, REFUSED, Family, find_family
from plumbline.encoders.open_clip import open_clip_contents
from plumbline.encoders.stored_embeddings import EmbeddingsSettings, StoredEmbeddingFiles
from plumbline.encoders.stored_predictions import stored_tables
from plumbline.errors import CheckpointError
from plumbline.generators.families import GENERATOR_FAMILIES
from plumbline.imports import import_class

if TYPE_CHECKING:
    import torch


CONFIGURATIONS = (OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG)
"""Files of which a folder must hold one to be a checkpoint of an encoder."""


class CheckpointContents(NamedTuple):
    """The family of a checkpoint folder, and what decides in it."""

    family: Family
    contents: FolderContents


def checkpoint_contents(
    folder: Path, *, encoder: str, family: str | None = None, sizes: Path | None = None
) -> CheckpointContents:
    """Return the family of a checkpoint folder and the files that decide what it computes; no weights are read.

    Parameters
    ----------
    sizes : Path, optional
        Folder of what was found of sizes: given, weights of other sizes than the configuration's are refused.

    Raises
    ------
    CheckpointError
        As `locate` does; with everything that is wrong.
    """
    read_as, of = _family(folder, encoder, family), f"encoder `{encoder}`"

    def of_these_sizes(weights: Sequence[Path]) -> None:
        if sizes is not None:
            config = OPEN_CLIP_CONFIG if read_as.name == "open_clip" else TRANSFORMERS_CONFIG
            require_sizes(folder, weights, partial(_architecture, folder, read_as), configuration=config, kept=sizes)

    if read_as.name == "open_clip":
        return CheckpointContents(read_as, open_clip_contents(folder, of, also=of_these_sizes))
    return CheckpointContents(read_as, transformers_contents(folder, of, parts=True, also=of_these_sizes))


def _architecture(folder: Path, family: Family) -> torch.nn.Module:
    """Return the model of a folder, built without numbers."""
    model: torch.nn.Module = import_class(family.adapter, below="plumbline.encoders").architecture(folder)
    return model


def _family(folder: Path, encoder: str, wanted: str | None) -> Family:
    """Return the family of a folder, or the wanted one if the folder can be read as it."""
    if wanted is None:
        if (folder / OPEN_CLIP_CONFIG).is_file():
            return FAMILIES["open_clip"]
        expected = f", or a folder of open_clip with {OPEN_CLIP_CONFIG}"
        hint = (
            f"if transformers' model of this type has get_image_features and get_text_features, `family: "
            f"{DUAL_ENCODER}` reads it, which was not tested with it"
        )
        if family_of_model_type(GENERATOR_FAMILIES, _require_readable(folder, encoder)) is not None:
            hint = "this model answers in words: name it under `lvlms`, and what it is asked under `generate`"
        return family_of_folder(FAMILIES, folder, f"encoder `{encoder}`", expected=expected, hint=hint)
    family = find_family(wanted)
    config = OPEN_CLIP_CONFIG if family.name == "open_clip" else TRANSFORMERS_CONFIG
    if not (folder / config).is_file():
        shown, expected = f"no {config}", config
    elif family.name == "open_clip":
        return family
    else:
        model_type = _require_readable(folder, encoder)
        known = family_of_model_type(FAMILIES, model_type)
        if model_type in family.reads or (family.name == DUAL_ENCODER and known is None):
            return family
        shown, expected = f"model_type: {model_type}", " or ".join(family.reads) or "a type of no family of its own"
    raise CheckpointError(
        f"the checkpoint of encoder `{encoder}` is not of the family {family.title}",
        where=folder,
        found=shown,
        expected=expected,
        hint="correct `family` in the audit file, or leave it out: it is found from the files",
    )


def _require_readable(folder: Path, encoder: str) -> str:
    """Return the `model_type` of a folder of transformers; raises CheckpointError if it is one that no audit reads."""
    if not (folder / TRANSFORMERS_CONFIG).is_file():
        return ""
    model_type = str(read_configuration(folder / TRANSFORMERS_CONFIG).get("model_type"))
    if (reason := REFUSED.get(model_type)) is not None:
        raise CheckpointError(
            f"the checkpoint of encoder `{encoder}` cannot be audited: {reason}",
            where=folder / TRANSFORMERS_CONFIG,
            found=f"model_type: {model_type}",
            expected="a model of single images and texts",
        )
    return model_type


def locate(
    address: Address, *, fetched: Path, encoder: str, family: str | None = None, sizes: Path | None = None
) -> CheckpointFiles:
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
    sizes : Path, optional
        See `checkpoint_contents`.

    Raises
    ------
    CheckpointError
        If it is not on disk, of no known family or of another than `family`, has no safetensors weights or several,
        the library would load another file than the one that is digested, or the configuration asks for parts that
        are not on disk or for code of its own.
    """
    if address.text.startswith(STORED):
        return CheckpointFiles.read(encoder, address.folder_in(fetched), stored_tables(address, encoder), "stored")
    folder = address.folder_with(
        CONFIGURATIONS,
        fetched=fetched,
        what=f"the checkpoint of encoder `{encoder}`",
        fetch=f"`plumbline fetch {encoder}`",
    )
    read_as, contents = checkpoint_contents(folder, encoder=encoder, family=family, sizes=sizes)
    return CheckpointFiles.read(encoder, folder, contents, read_as.name)


def checkpoint_files(
    encoder: str,
    address: str,
    *,
    project: Path,
    fetched: Path,
    family: str | None = None,
    model: str | None = None,
    embeddings: EmbeddingsSettings | None = None,
    sizes: Path | None = None,
) -> CheckpointFiles:
    """Return the files of the encoder `encoder`; raises CheckpointError with the way to get them if absent.

    Weights that are pickles are converted to safetensors first, once (`plumbline.checkpoints.pickled`); `model` is
    the architecture of what open_clip's trainer wrote. Of an address `stored:PATH` the files are tables of predictions
    or embeddings, which `embeddings` says how to read.
    """
    place = parse_address(address, project=project)
    if address.startswith(STORED):
        tower = partial(checkpoint_files, encoder, project=project, fetched=fetched)
        settings = embeddings or EmbeddingsSettings()
        embedded = StoredEmbeddingFiles.find(encoder, place, settings, project=project, tower=tower)
        if embedded is not None:
            return embedded
    if place.folder is not None:
        of = f"encoder `{encoder}`"
        kept = fetched / CONVERTED
        place = replace(place, folder=readable_folder(place.folder, of, kept=kept, model=model, project=project))
    return locate(place, fetched=fetched, encoder=encoder, family=family, sizes=sizes)


def load_encoder(files: CheckpointFiles, placement: Placement) -> DualEncoder | PairEncoder:
    """Load a checkpoint from disk through the adapter of its family.

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, from the digested file alone, or gives no number for an image and a text that any
        encoder knows; nothing is downloaded and nothing is random.
    """
    adapter = import_class(find_family(files.family).adapter, below="plumbline.encoders")
    if find_family(files.family).stored:
        tower = getattr(files, "tower", None)
        texts = () if tower is None else (load_encoder(tower, placement),)
        return cast("DualEncoder | PairEncoder", adapter(files, placement, *texts))
    expected = "a configuration, weights, an image transform and a tokenizer that fit together"
    with loading("this checkpoint could not be loaded", where=files.folder, expected=expected):
        encoder = cast("DualEncoder | PairEncoder", adapter(files, placement))
    asked = loading("this checkpoint cannot be asked anything", where=files.folder, expected=expected)
    with asked, modest_run(files.folder, placement.device):
        _require_numbers(encoder, files.folder)
    return encoder


def _require_numbers(encoder: DualEncoder | PairEncoder, folder: Path) -> None:
    """Ask about a grey image, so that an hour of embedding does not end in NaN."""
    import torch
    from PIL import Image

    batch, texts = encoder.prepare(Image.new("RGB", (96, 96), (128, 128, 128)))[None], ["a photo of a person"]
    with torch.compiler.set_stance("force_eager"):
        if find_family(encoder.family).logit == "pair":
            outputs = {"an image and a text": cast("PairEncoder", encoder).score_pairs(batch, texts)}
        else:
            dual = cast("DualEncoder", encoder)
            outputs = {"an image": dual.embed_images(batch), "a text": dual.embed_texts(texts)}
    if broken := [what for what, given in outputs.items() if not np.isfinite(given).all()]:
        raise CheckpointError(
            "this checkpoint gives NaN or infinity",
            where=folder,
            found=f"for {' and '.join(broken)}",
            expected="finite weights, and an image transform whose `std` is not 0",
        )
