"""The published designs of generation: how many texts of what the study made, and how GPT-4o's images were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from plumbline.catalog.files import data_yaml


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
