"""The readers by name."""

from __future__ import annotations

from plumbline.datasets.fairface import FairFace
from plumbline.datasets.records import Reader
from plumbline.datasets.utkface import UTKFace
from plumbline.errors import ConfigError

_READERS: dict[str, type[FairFace] | type[UTKFace]] = {
    reader.declaration.id: reader for reader in (FairFace, UTKFace)
}


def reader_names() -> tuple[str, ...]:
    """Return the names that `reader_for` knows."""
    return tuple(sorted(_READERS))


def reader_for(name: str) -> Reader:
    """Return the reader of a kind of dataset; its `declaration` has base attribute, class set and filters.

    Raises
    ------
    ConfigError
        If there is no such reader.
    """
    if name not in _READERS:
        raise ConfigError(
            "there is no reader for this dataset", found=name, expected=", ".join(reader_names())
        )
    return _READERS[name]()
