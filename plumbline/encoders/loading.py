"""From an address of the audit file to an encoder on a device."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from plumbline.classes import class_at
from plumbline.encoders.addresses import CheckpointFiles, locate, parse_address
from plumbline.encoders.encoder import DualEncoder, PairEncoder, Placement
from plumbline.encoders.families import find_family


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
    adapter = class_at(find_family(files.family).adapter, below="plumbline.encoders")
    return cast("DualEncoder | PairEncoder", adapter(files, placement))
