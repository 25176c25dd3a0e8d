"""The plan of a generative audit of data that is not on this disk, from how large the studies say that it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil

from plumbline.generation_entries import TWIN_PROMPT, GenerateEntry
from plumbline.lvlm.design import WHOLE, Slice, refuse_occupations
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.lvlm.plan import CHARACTERS_OF_A_TOKEN, PlannedSlice, cost_of
from plumbline.tables.dataset_sizes import DatasetSize, SubsetSize
from plumbline.tables.generation_prompts import needs_occupation, render, typical_tokens
from plumbline.tables.generation_schema import NO_INSTRUCTION

# As long as occupations and descriptions usually are; only their length counts.
_OCCUPATION, _DESCRIBED = "software developer", "Black male software developer"
_Question = tuple[str, str, int]


def published_slices(
    model: str,
    dataset: str,
    entries: Sequence[GenerateEntry],
    size: DatasetSize,
    *,
    most_new_tokens: int,
    sees: bool = True,
    has_occupations: bool = True,
    endpoint: EndpointSettings | None = None,
) -> list[PlannedSlice]:
    """Return what a model is asked about a dataset, subset by subset; nothing of it is there yet.

    A question that several entries ask of an image is counted once. Of entries that choose occupations or sets the
    images are counted as `_chosen_images` says: never too few.

    Parameters
    ----------
    entries : sequence of GenerateEntry
        Of this model and dataset.
    sees : bool
        False for a language model: it is asked `TWIN_PROMPT` only.
    has_occupations : bool
        Whether the dataset says occupations.

    Raises
    ------
    ConfigError
        As `asked_rows` does: if a prompt names the occupation, and the dataset has none.
    """
    if not has_occupations:
        refuse_occupations(entries)
    subsets: Mapping[str, SubsetSize] = size.subsets or {WHOLE: SubsetSize(size.images, 1)}
    planned = []
    for name, subset in subsets.items():
        asking = [entry for entry in entries if entry.subsets == "all" or name in entry.subsets]
        rows = _images_by_question(asking, subset, sees=sees)
        if not rows:
            continue
        read = sum(images * _prompt_tokens(question, sees=sees) for question, images in rows.items())
        said = sum(n * min(typical_tokens(prompt), most_new_tokens) for (prompt, *_), n in rows.items())
        planned.append(
            PlannedSlice(
                model=model,
                slice=Slice(dataset, name).id,
                rows=sum(rows.values()),
                finished=0,
                prompt_tokens=read,
                new_tokens=said,
                seconds=None,
                cost=cost_of(endpoint, read, said),
            )
        )
    return planned


def _images_by_question(
    entries: Sequence[GenerateEntry], subset: SubsetSize, *, sees: bool
) -> dict[_Question, int]:
    """Return (prompt, instruction, seed) -> of how many images it is asked."""
    chosen: dict[_Question, dict[object, int]] = defaultdict(dict)
    for entry in entries:
        images = _chosen_images(entry, subset)
        prompts = entry.prompt_ids if sees else (TWIN_PROMPT,)
        instructions = entry.instructions if sees else (NO_INSTRUCTION,)
        for prompt in prompts:
            for instruction in instructions:
                for seed in entry.seeds:
                    chosen[prompt, instruction, seed][entry.occupations, entry.sets_per_occupation] = images
    return {question: min(sum(parts.values()), subset.images) for question, parts in chosen.items()}


def _chosen_images(entry: GenerateEntry, subset: SubsetSize) -> int:
    """Return the images that an entry asks about: all, unless it names occupations and how many sets of each."""
    if entry.occupations is None or entry.sets_per_occupation is None:
        return subset.images
    return min(
        len(entry.occupations) * entry.sets_per_occupation * subset.images_per_set,
        subset.images,
    )


def _prompt_tokens(question: _Question, *, sees: bool) -> int:
    prompt, instruction, _ = question
    text = render(
        prompt,
        instruction=instruction,
        occupation=_OCCUPATION if needs_occupation(prompt) else None,
        described=None if sees else _DESCRIBED,
    )
    return ceil(len(text) / CHARACTERS_OF_A_TOKEN)
