"""Checkpoints, datasets and designs of the published studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

from plumbline.catalog.files import data_yaml
from plumbline.errors import StorageError

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
            where="plumbline/catalog/checkpoints.yaml",
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
                    where="plumbline/catalog/checkpoints.yaml",
                    found=address,
                    expected="each address once",
                )
            found[address] = checkpoint
    return found


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
    content = data_yaml("dataset_sizes.yaml")
    return {
        reader: DatasetSize(
            images=about["images"],
            source=about["source"],
            subsets={name: SubsetSize(*sizes) for name, sizes in about.get("sets", {}).items()},
        )
        for reader, about in content["datasets"].items()
    }


# --- The published designs of generation: how many texts of what the study made, and how GPT-4o's images
# were sampled.


@dataclass(frozen=True)
class PublishedDesign:
    """One analysis of Table 8, by its factors.

    Attributes
    ----------
    id, title, results : str
        `results` names the tables that show it.
    images : mapping of str to int
        Subset, or `pata`, to its number of images.
    prompts, instructions, models : tuple of str
        Ids; `models` as the column `checkpoint` of the published values has them.
    seeds : int
        Responses to each image, prompt and instruction.
    printed_total : int
        As the table prints it.
    """

    id: str
    title: str
    results: str
    images: Mapping[str, int]
    prompts: tuple[str, ...]
    instructions: tuple[str, ...]
    seeds: int
    models: tuple[str, ...]
    printed_total: int

    @property
    def total(self) -> int:
        """Return the number of texts that the factors make."""
        factors = (self.prompts, self.instructions, self.models)
        return sum(self.images.values()) * prod(map(len, factors)) * self.seeds


@dataclass(frozen=True)
class SampledSubset:
    """What of one subset GPT-4o was asked about.

    Attributes
    ----------
    occupations : tuple of str
    sets_per_occupation : int
        Whole counterfactual sets, drawn at random.
    images_per_set : int
    """

    occupations: tuple[str, ...]
    sets_per_occupation: int
    images_per_set: int

    @property
    def images(self) -> int:
        """Return the number of images."""
        return len(self.occupations) * self.sets_per_occupation * self.images_per_set


@dataclass(frozen=True)
class SampledDesign:
    """The design for a model whose answers cost money (appendix A.2).

    Attributes
    ----------
    model, version : str
    max_new_tokens : int
        All other decoding settings are the API's defaults.
    prompts : tuple of str
    seeds : int
    subsets : mapping of str to SampledSubset
    printed_a_prompt : int
        Texts a prompt, as the paper prints them.
    """

    model: str
    version: str
    max_new_tokens: int
    prompts: tuple[str, ...]
    seeds: int
    subsets: Mapping[str, SampledSubset]
    printed_a_prompt: int

    @property
    def images(self) -> int:
        """Return the number of images over all subsets."""
        return sum(subset.images for subset in self.subsets.values())


@dataclass(frozen=True)
class PublishedDesigns:
    """All designs of the study.

    Attributes
    ----------
    analyses : tuple of PublishedDesign
        The rows of Table 8, in its order.
    printed_total : int
        The sum of its totals.
    sampled : SampledDesign
    judge_version : str
        The model that judged words.
    """

    analyses: tuple[PublishedDesign, ...]
    printed_total: int
    sampled: SampledDesign
    judge_version: str


@cache
def published_designs() -> PublishedDesigns:
    """Return the designs of the data file."""
    content: dict[str, Any] = data_yaml("generation_designs.yaml")
    sets = content["sets"]
    images = {name: about["sets"] * about["images_per_set"] for name, about in sets.items()}
    images["pata"] = content["pata_images"]
    return PublishedDesigns(
        analyses=tuple(_analysis(about, images, content["models"]) for about in content["analyses"]),
        printed_total=content["printed_total"],
        sampled=_sampled(content["sampled"], sets),
        judge_version=content["judge_version"],
    )


def _analysis(about: Mapping[str, Any], images: Mapping[str, int], models: list[str]) -> PublishedDesign:
    return PublishedDesign(
        **{name: about[name] for name in ("id", "title", "results", "seeds", "printed_total")},
        images={name: images[name] for name in about["images"]},
        prompts=tuple(about["prompts"]),
        instructions=tuple(about["instructions"]),
        models=tuple(models),
    )


def _sampled(about: Mapping[str, Any], sets: Mapping[str, Mapping[str, int]]) -> SampledDesign:
    return SampledDesign(
        **{name: about[name] for name in ("model", "version", "max_new_tokens", "seeds", "printed_a_prompt")},
        prompts=tuple(about["prompts"]),
        subsets={
            name: SampledSubset(
                occupations=tuple(subset["occupations"]),
                sets_per_occupation=subset["sets_per_occupation"],
                images_per_set=sets[name]["images_per_set"],
            )
            for name, subset in about["subsets"].items()
        },
    )
