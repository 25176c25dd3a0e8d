"""What is known of an encoder before it is loaded: its family, and how wide its embeddings are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.encoders.addresses import checkpoint_contents
from plumbline.encoders.families import FAMILIES, Family
from plumbline.encoders.folder_contents import read_configuration
from plumbline.encoders.open_clip_folder import CONFIG as OPEN_CLIP_CONFIG
from plumbline.encoders.transformers_folder import CONFIG as TRANSFORMERS_CONFIG
from plumbline.tables.checkpoints import recognise


@dataclass(frozen=True)
class Outline:
    """Family of an encoder, and the width of its embeddings where that is known."""

    family: Family
    width: int | None


def outline(encoder: str, address: str, folder: Path, *, family: str | None = None) -> Outline:
    """Return the outline of a checkpoint, from its configuration or, where it is not on this disk, from the studies.

    A checkpoint that is neither here nor of a study is taken for one that embeds images, of unknown width.

    Parameters
    ----------
    encoder, address, family
        Id, address and family of the audit file.
    folder : Path
        Where the checkpoint lies, if it does.

    Raises
    ------
    CheckpointError
        If what lies there is no checkpoint of a known family.
    """
    if any((folder / name).is_file() for name in (OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG)):
        found = checkpoint_contents(folder, encoder=encoder, family=family).family
        return Outline(found, _width(folder, found))
    known = recognise(address)
    name = family or (known.family if known and known.family else "open_clip")
    return Outline(FAMILIES[name], known.width if known else None)


def _width(folder: Path, family: Family) -> int | None:
    if family.name == "open_clip":
        content: dict[str, Any] = read_configuration(folder / OPEN_CLIP_CONFIG).get("model_cfg", {})
        return _number(content.get("embed_dim"))
    content = read_configuration(folder / TRANSFORMERS_CONFIG)
    if family.name in ("owlv2", "owlvit"):
        # As the adapter keeps it: the class vector of the text's width, and the shift.
        hidden = _number((content.get("text_config") or {}).get("hidden_size"))
        return None if hidden is None else hidden + 1
    return _number(content.get("projection_dim"))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
