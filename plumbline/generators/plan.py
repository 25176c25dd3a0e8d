"""Estimated cost of a generative audit before it starts: rows, tokens, time, money."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil

from plumbline.catalog.prompts import needs_occupation, render, typical_tokens
from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.catalog.studies import DatasetSize, SubsetSize
from plumbline.config.entries import BASE_LLM_PROMPT, GenerateEntry, Limit
from plumbline.errors import ConfigError
from plumbline.generators.backend import Asked
from plumbline.generators.design import WHOLE, Slice, refuse_occupations
from plumbline.http.settings import EndpointSettings

_CHARACTERS_OF_A_TOKEN = 4
# Measured on a million synthetic answers in Parquet: an answer without its text, the text by its tokens, one score.
_ANSWER, _TOKEN, _SCORE = 25, 2, 14


@dataclass(frozen=True)
class PlannedSlice:
    """One model on one slice.

    Attributes
    ----------
    rows, finished : int
        Rows that are asked, and how many of them are there already.
    prompt_tokens, new_tokens : int
        Estimates for the rows that are not there: of the text of the prompts (four characters a token), of images
        where `counts_images`, and of usual answers.
    seconds : float or None
        For the rows that are not there, at the rate of the newest run of this model; None where there was none.
    cost : float or None
        For these rows, at the endpoint's prices; None without prices, 0 for a local model.
    counts_images : bool
        Whether it is known what an image is in tokens, so that `prompt_tokens` has it.
    """

    model: str
    slice: str
    rows: int
    finished: int
    prompt_tokens: int
    new_tokens: int
    seconds: float | None
    cost: float | None
    counts_images: bool = False

    @property
    def to_do(self) -> int:
        """Return the number of rows still to generate."""
        return self.rows - self.finished


@dataclass(frozen=True)
class Plan:
    """The answers to generate, slice by slice.

    `unreadable` has the models whose checkpoint is there and cannot be read, with everything that is wrong with it;
    `reading` the others of which it is known how they read an image.
    """

    slices: Sequence[PlannedSlice]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    reading: Mapping[str, str] = field(default_factory=dict)

    @property
    def to_do(self) -> int:
        """Return how many rows are to be generated."""
        return sum(one.to_do for one in self.slices)

    @property
    def tokens(self) -> int:
        """Return the estimated tokens, read and written, of the rows to be generated."""
        return sum(one.prompt_tokens + one.new_tokens for one in self.slices)

    @property
    def hours(self) -> float | None:
        """Return the estimated hours; None where no run of some model has shown its rate."""
        seconds = _known_sum(one.seconds for one in self.slices if one.to_do)
        return None if seconds is None else seconds / 3600

    @property
    def cost(self) -> float | None:
        """Return the estimated cost; None where an endpoint has no prices."""
        return _known_sum(one.cost for one in self.slices if one.to_do)

    def seconds(self, tokens_per_second: float) -> float:
        """Return the estimated seconds, at a given rate of new tokens where no run of a model has shown its own."""
        return sum(
            one.new_tokens / tokens_per_second if one.seconds is None else one.seconds
            for one in self.slices
            if one.to_do
        )

    def bytes(self, *, scores: int) -> int:
        """Return about how many bytes the answers to come take, with so many scores of each.

        Answers and scores lie on the disk twice: as they were kept while they came, and as tables of their slice.
        """
        tokens = sum(one.new_tokens for one in self.slices)
        return 2 * (self.to_do * (_ANSWER + scores * _SCORE) + tokens * _TOKEN)

    @property
    def summary(self) -> str:
        """Return the plan as one line: answers to come and, where there are any, their tokens, time and cost."""
        hours, cost, finished = self.hours, self.cost, sum(one.finished for one in self.slices)
        line = f"{self.to_do:,} answers" + (f" ({finished:,} are there)" if finished else "")
        if not self.to_do:
            return line
        without = "" if all(one.counts_images for one in self.slices if one.to_do) else " without the images"
        line += f", about {self.tokens:,} tokens{without}"
        if hours is None:
            line += ", time not measured yet"
        else:
            line += f", about {hours * 60:,.1f} min" if hours < 2 else f", about {hours:,.1f} h"
        if cost is None:
            return line + ", cost unknown: no prices are given"
        return line + (f", cost {cost:,.2f}{without}" if cost else "")

    def above(self, limit: Limit) -> list[str]:
        """Return the limits that it is above, in words; a cost that is unknown is, hours before a first run are not."""
        # The rate of a model is first known when it has run; prices are known before.
        hours = 0 if self.hours is None else self.hours
        planned = {"rows": self.to_do, "tokens": self.tokens, "hours": hours, "cost": self.cost}
        return [
            f"{name}: {'unknown' if (value := planned[name]) is None else f'{value:,}'} (limit {most:,})"
            for name, most in limit
            if most is not None and self.to_do and (planned[name] is None or planned[name] > most)
        ]

    def require(self, limit: Limit) -> None:
        """Refuse a plan above a limit.

        Raises
        ------
        ConfigError
            With every limit that it is above.
        """
        if above := self.above(limit):
            raise ConfigError(
                "this audit would generate more than its limit allows",
                where="generation.limit of the audit file",
                found="; ".join(above),
                expected="a smaller design, or a larger limit",
                hint="see `plumbline plan`; fewer prompts or seeds, or `sets_per_occupation`, make it smaller",
            )


def plan_slice(
    model: str,
    slice_id: str,
    asked: Sequence[Asked],
    lacking: Collection[str],
    *,
    most_new_tokens: int,
    image_tokens: int | None = None,
    tokens_per_second: float | None = None,
    endpoint: EndpointSettings | None = None,
) -> PlannedSlice:
    """Plan what a model is asked about one slice.

    Parameters
    ----------
    asked : sequence of Asked
        Every row.
    lacking : collection of str
        Keys of the rows that are not there.
    most_new_tokens : int
        Of one answer, by the audit file.
    image_tokens : int, optional
        Of one image; None where it is not known.
    tokens_per_second : float, optional
        Of this model, where it has run.
    endpoint : EndpointSettings, optional
        None for a local model.
    """
    left = [one.question for one in asked if one.key in lacking]
    prompt_tokens = sum(ceil(len(question.text) / _CHARACTERS_OF_A_TOKEN) + (image_tokens or 0) for question in left)
    new_tokens = sum(min(typical_tokens(question.prompt), most_new_tokens) for question in left)
    return PlannedSlice(
        model=model,
        slice=slice_id,
        rows=len(asked),
        finished=len(asked) - len(left),
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        seconds=None if tokens_per_second is None else new_tokens / tokens_per_second,
        cost=cost_of(endpoint, prompt_tokens, new_tokens),
        counts_images=image_tokens is not None,
    )


def cost_of(endpoint: EndpointSettings | None, read: int, written: int) -> float | None:
    """Return what tokens cost: nothing of a local model, None at an endpoint without prices."""
    if endpoint is None:
        return 0.0
    if endpoint.price_input is None or endpoint.price_output is None:
        return None
    return (read * endpoint.price_input + written * endpoint.price_output) / 1e6


def _known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum; None where a value is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


# The plan for data that is not on this disk, from the sizes that the studies report.

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
    image_tokens: int | None = None,
    sees: bool = True,
    has_occupations: bool = True,
    endpoint: EndpointSettings | None = None,
) -> list[PlannedSlice]:
    """Return what a model is asked about a dataset, subset by subset; nothing of it is there yet.

    A question that several entries ask of an image is counted once. Of entries that choose occupations or sets the
    images are counted as sets times the images of a set, or all: never too few.

    Parameters
    ----------
    entries : sequence of GenerateEntry
        Of this model and dataset.
    image_tokens : int, optional
        As in `plan_slice`.
    sees : bool
        False for a language model: it is asked `BASE_LLM_PROMPT` only.
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
        of_image = image_tokens or 0
        prompt_tokens = sum(n * (_prompt_tokens(question, sees=sees) + of_image) for question, n in rows.items())
        new_tokens = sum(n * min(typical_tokens(prompt), most_new_tokens) for (prompt, *_), n in rows.items())
        planned.append(
            PlannedSlice(
                model=model,
                slice=Slice(dataset, name).id,
                rows=sum(rows.values()),
                finished=0,
                prompt_tokens=prompt_tokens,
                new_tokens=new_tokens,
                seconds=None,
                cost=cost_of(endpoint, prompt_tokens, new_tokens),
                counts_images=image_tokens is not None,
            )
        )
    return planned


def _images_by_question(entries: Sequence[GenerateEntry], subset: SubsetSize, *, sees: bool) -> dict[_Question, int]:
    """Return (prompt, instruction, seed) -> of how many images it is asked."""
    chosen: dict[_Question, dict[object, int]] = defaultdict(dict)
    for entry in entries:
        images = subset.images
        if entry.occupations is not None and entry.sets_per_occupation is not None:
            sets = len(entry.occupations) * entry.sets_per_occupation
            images = min(images, sets * subset.images_per_set)
        prompts = entry.prompt_ids if sees else (BASE_LLM_PROMPT,)
        instructions = entry.instructions if sees else (NO_INSTRUCTION,)
        for question in product(prompts, instructions, entry.seeds):
            chosen[question][entry.occupations, entry.sets_per_occupation] = images
    return {question: min(sum(parts.values()), subset.images) for question, parts in chosen.items()}


def _prompt_tokens(question: _Question, *, sees: bool) -> int:
    prompt, instruction, _ = question
    text = render(
        prompt,
        instruction=instruction,
        occupation=_OCCUPATION if needs_occupation(prompt) else None,
        described=None if sees else _DESCRIBED,
    )
    return ceil(len(text) / _CHARACTERS_OF_A_TOKEN)
