"""Checkpoints and datasets of the published studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from plumbline.catalog.files import data_yaml, entry, typed
from plumbline.errors import StorageError

_HUB = "hf-hub:"
_CHECKPOINTS = "checkpoints.yaml"


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
    image_tokens : int or None
        What an image is to a generative model.
    """

    id: str
    title: str
    studies: tuple[str, ...]
    addresses: tuple[str, ...]
    copies: tuple[str, ...] = ()
    factors: Mapping[str, str] = field(default_factory=dict)
    family: str | None = None
    width: int | None = None
    image_tokens: int | None = None


@cache
def study_checkpoints() -> Mapping[str, StudyCheckpoint]:
    """Return every checkpoint of the studies by id, in the order of the data file."""
    return {
        name: typed(StudyCheckpoint, {"id": name, **checkpoint, **checkpoint.get("encoder", {})})
        for name, checkpoint in data_yaml(_CHECKPOINTS)["checkpoints"].items()
    }


def study_checkpoint(name: str) -> StudyCheckpoint:
    """Return one checkpoint of the studies by id.

    Raises
    ------
    StorageError
        If the data file has no checkpoint of this id.
    """
    what = "there is no such checkpoint of the studies"
    return entry(study_checkpoints(), name, what, _CHECKPOINTS, error=StorageError)


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
    by_address: dict[str, StudyCheckpoint] = {}
    for checkpoint in study_checkpoints().values():
        for address in (*checkpoint.addresses, *checkpoint.copies):
            if address in by_address:
                raise StorageError(
                    "an address stands for two checkpoints of the studies",
                    where=f"plumbline/catalog/{_CHECKPOINTS}",
                    found=address,
                    expected="each address once",
                )
            by_address[address] = checkpoint
    return by_address


# --- How many images the datasets of the studies have, for a plan on a machine where they are not.


@dataclass(frozen=True)
class SubsetSize:
    """One subset of counterfactual sets."""

    sets: int
    images_per_set: int

    @property
    def images(self) -> int:
        """Return the number of images."""
        return self.sets * self.images_per_set


@dataclass(frozen=True)
class DatasetSize:
    """How large a dataset is.

    Attributes
    ----------
    images : int
        All that its reader lists.
    source : str
        Who says so.
    subsets : mapping of str to SubsetSize
        Of a dataset of counterfactual sets; else empty.
    """

    images: int
    source: str
    subsets: Mapping[str, SubsetSize] = field(default_factory=dict)


@cache
def published_sizes() -> Mapping[str, DatasetSize]:
    """Return the published size of the dataset of each reader that has one."""
    return {
        reader: DatasetSize(
            size["images"], size["source"], {name: SubsetSize(*sets) for name, sets in size.get("sets", {}).items()}
        )
        for reader, size in data_yaml("dataset_sizes.yaml")["datasets"].items()
    }
