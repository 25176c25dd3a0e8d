"""The chain from a number back to its sources: each link as recorded, and its present state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plumbline.digests import digest_bytes
from plumbline.errors import ImageRejected
from plumbline.images.decoding import read_image_file

State = Literal["unchanged", "changed", "gone", "not checked"]
STATES: dict[State, str] = {
    "unchanged": "unchanged",
    "changed": "changed since",
    "gone": "gone",
    "not checked": "not checked",
}
"""State -> its wording for readers."""


@dataclass(frozen=True)
class Link:
    """One link of the chain.

    Attributes
    ----------
    level : int
        How many steps it lies behind the number.
    what : str
        What it is, for a person: `image embeddings`.
    name : str
        Which one: an asset's partition, a file, an id.
    digest : str or None
        sha256, as the audit recorded it.
    state : State
        What is there now, compared with that.
    note : str
        What else there is to say, above all what has changed.
    texts : tuple of str
        Texts that it consists of, such as prompts.
    """

    level: int
    what: str
    name: str
    digest: str | None
    state: State
    note: str = ""
    texts: tuple[str, ...] = field(default=(), repr=False)


def compared(recorded: str | None, now: str | None) -> State:
    """Return the state of a recorded digest compared with the present one, which is None if the source is gone."""
    if recorded is None:
        return "not checked"
    return "gone" if now is None else "unchanged" if recorded == now else "changed"


def damaged(chain: Iterable[Link]) -> list[Link]:
    """Return the links that have changed or are gone since the number was computed."""
    return [link for link in chain if link.state in ("changed", "gone")]


@dataclass(frozen=True)
class ChangedFiles:
    """The recorded images of a folder that are gone, and those that have other bytes now."""

    gone: tuple[str, ...]
    changed: tuple[str, ...]

    def __str__(self) -> str:
        listed = (("gone", self.gone), ("changed", self.changed))
        return "; ".join(f"{len(paths)} {what}: {first_few(paths, 5)}" for what, paths in listed if paths)


def changed_files(root: Path, recorded: Mapping[str, str]) -> ChangedFiles:
    """Compare the recorded images of a folder with what is there now.

    Parameters
    ----------
    recorded : mapping of str to str
        Path in the folder -> sha256.
    """
    gone, changed = [], []
    for path, sha256 in recorded.items():
        try:
            now = digest_bytes(read_image_file(root / path))
        except ImageRejected:
            gone.append(path)
        else:
            if now != sha256:
                changed.append(path)
    return ChangedFiles(tuple(gone), tuple(changed))


def first_few(texts: Sequence[str], most: int) -> str:
    """Return the first texts in one, and how many more there are."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")
