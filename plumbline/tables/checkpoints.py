"""The checkpoints that the studies published numbers for, and which of them an address of an audit file is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from plumbline.errors import StorageError
from plumbline.tables.data_files import data_yaml

_HUB = "hf-hub:"


@dataclass(frozen=True)
class StudyCheckpoint:
    """One checkpoint of the studies.

    Attributes
    ----------
    id : str
        Also the column `checkpoint` of the published values.
    title : str
        For people.
    studies : tuple of str
        Papers that have numbers of it, as in the column `paper`.
    addresses : tuple of str
        Names of open_clip (`ARCHITECTURE/TAG`) and the hub (`ORG/NAME`). More than one where the paper leaves open
        which it ran.
    copies : tuple of str
        The same weights under other addresses.
    factors : mapping of str to str
        `size`, `data_amount`, `data_source` in the contrastive grid; else empty.
    family : str or None
        Of encoders, as in `plumbline.encoders.families`.
    width : int or None
        Of an embedding; None where a model has none.
    """

    id: str
    title: str
    studies: tuple[str, ...]
    addresses: tuple[str, ...]
    copies: tuple[str, ...] = ()
    factors: Mapping[str, str] = field(default_factory=dict)
    family: str | None = None
    width: int | None = None


@cache
def study_checkpoints() -> Mapping[str, StudyCheckpoint]:
    """Return every checkpoint of the studies by id, in the order of the data file."""
    content = data_yaml("checkpoints.yaml")
    return {
        name: StudyCheckpoint(
            id=name,
            title=about["title"],
            studies=tuple(about["studies"]),
            addresses=tuple(about["addresses"]),
            copies=tuple(about.get("copies", ())),
            factors=about.get("factors", {}),
            **about.get("encoder", {}),
        )
        for name, about in content["checkpoints"].items()
    }


def study_checkpoint(name: str) -> StudyCheckpoint:
    """Return one checkpoint of the studies by id.

    Raises
    ------
    StorageError
        If the data file has no checkpoint of this id.
    """
    known = study_checkpoints()
    if name not in known:
        raise StorageError(
            "there is no such checkpoint of the studies",
            where="plumbline/tables/checkpoints.yaml",
            found=name,
            expected=", ".join(known),
        )
    return known[name]


def recognise(address: str) -> StudyCheckpoint | None:
    """Return the study checkpoint that an address is, or None.

    Parameters
    ----------
    address : str
        As in an audit file: `ARCHITECTURE/TAG`, `hf-hub:ORG/NAME@COMMIT`. A folder (`local-dir:`) is never
        recognised: its path does not say what lies in it.
    """
    name = address.removeprefix(_HUB).partition("@")[0] if address.startswith(_HUB) else address
    return _by_address().get(name)


@cache
def _by_address() -> Mapping[str, StudyCheckpoint]:
    found: dict[str, StudyCheckpoint] = {}
    for checkpoint in study_checkpoints().values():
        for address in (*checkpoint.addresses, *checkpoint.copies):
            if address in found:
                raise StorageError(
                    "an address stands for two checkpoints of the studies",
                    where="plumbline/tables/checkpoints.yaml",
                    found=address,
                    expected="each address once",
                )
            found[address] = checkpoint
    return found
