"""How many images the datasets of the studies have, for a plan on a machine where they are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from plumbline.tables.data_files import data_yaml


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
    content = data_yaml("dataset_sizes.yaml")
    return {
        reader: DatasetSize(
            images=about["images"],
            source=about["source"],
            subsets={name: SubsetSize(*sizes) for name, sizes in about.get("sets", {}).items()},
        )
        for reader, about in content["datasets"].items()
    }
