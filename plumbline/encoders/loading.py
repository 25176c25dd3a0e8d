"""From an address of the audit file to an encoder on a device."""

from __future__ import annotations

from pathlib import Path

from plumbline.encoders.addresses import CheckpointFiles, locate, parse_address
from plumbline.encoders.encoder import Encoder


def checkpoint_files(encoder: str, address: str, *, project: Path, fetched: Path) -> CheckpointFiles:
    """Return the files of the encoder `encoder`; raises CheckpointError with the way to get them if absent."""
    return locate(parse_address(address, project=project), fetched=fetched, encoder=encoder)


def choose_device(wanted: str) -> str:
    """Return `wanted`, or for `auto` the GPU where there is one."""
    if wanted != "auto":
        return wanted
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def load_encoder(files: CheckpointFiles, *, device: str) -> Encoder:
    """Load a checkpoint from disk."""
    from plumbline.encoders.open_clip import OpenClipEncoder

    return OpenClipEncoder(files, device=choose_device(device))
