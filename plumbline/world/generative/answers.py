"""What a planted generative model says of a face: keywords, sentences, ratings and salaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.world.generative.rates import (
    event_names,
    happens,
    means,
    planted,
    rating_means,
    salary_means,
)
from plumbline.world.generative.sentences import sentences

KEYWORD_PROMPTS = (
    "characteristics", "personality", "keywords", "competency", "trustworthiness", "work_ethic",
)  # fmt: skip
SENTENCE_PROMPTS = ("describe", "backstory", "pretend", "story", "emotions")
NUMERIC_PROMPTS = prompt_ids("numeric")

_HOURS = 2  # thousands a year


def answers(
    attributes: pl.DataFrame,
    source: str,
    prompt: str,
    rng: np.random.Generator,
    *,
    instruction: str = NO_INSTRUCTION,
    occupations: Sequence[str] | None = None,
) -> list[str]:
    """Draw an answer of a perfectly trained model for each face.

    Whether an event is among what is said follows from the face alone; which of several like words, and in which
    form a number, is drawn.

    Parameters
    ----------
    attributes : polars.DataFrame
        n faces, as `plumbline.world.faces.sample_attributes` gives them.
    source : str
        `bazaar` or `control`.
    prompt, instruction : str
        Ids of `plumbline.tables.generation_prompts`.
    rng : numpy.random.Generator
        Source of what is drawn.
    occupations : sequence of str, optional
        Those that the salary prompt names, in the world's words; without them those of the faces.

    Returns
    -------
    list of str
        n texts.
    """
    said = {event: happens(attributes, source, event, prompt, instruction) for event in event_names()}
    if prompt in KEYWORD_PROMPTS:
        left = planted()["keywords_left"][instruction]
        texts = [", ".join(_keywords(*row, rng)[:left]) for row in _rows(attributes, said)]
    elif prompt in SENTENCE_PROMPTS:
        counts = np.floor(means(attributes, source, "backstory_sentences") + attributes["v"].to_numpy())
        rows = zip(_rows(attributes, said), counts.astype(int), strict=True)
        texts = [sentences(prompt, *row, count, rng) for row, count in rows]
    elif prompt == "salary":
        named = attributes["occupation"] if occupations is None else pl.Series(occupations)
        texts = _salaries(salary_means(attributes, source, named), attributes["v"].to_numpy(), rng)
    else:
        texts = _ratings(rating_means(attributes, source, prompt), attributes["v"].to_numpy(), rng)
    refusal = planted()["refusal"]
    return [refusal if refused else text for refused, text in zip(said["refusal"], texts, strict=True)]


def rating(mean: np.ndarray, latent: np.ndarray) -> np.ndarray:
    """Return whole ratings, shape (n,), whose mean over a uniform latent is the planted one."""
    return np.clip(np.floor(mean + latent), 1, 10).astype(int)


def salary(mean: np.ndarray, latent: np.ndarray) -> np.ndarray:
    """Return salaries in thousands, shape (n,): whole steps whose mean over a uniform latent is the planted one."""
    step = planted()["salaries"]["step"]
    return (step * np.floor(mean / step + latent)).astype(int)


def _rows(
    attributes: pl.DataFrame, said: dict[str, np.ndarray]
) -> list[tuple[dict[str, Any], dict[str, bool]]]:
    faces = attributes.to_dicts()
    return [(face, {event: bool(said[event][i]) for event in said}) for i, face in enumerate(faces)]


def _keywords(face: dict[str, Any], said: dict[str, bool], rng: np.random.Generator) -> list[str]:
    words = planted()["words"]
    chosen = [str(word) for word in rng.choice(words["plain"], 5, replace=False)]
    if said["competence"]:
        chosen[0] = str(rng.choice(words["competence"]))
    if said["negative"]:
        chosen[1] = str(rng.choice(words["severe" if said["severe"] else "mild"]))
    if said["stereotype"]:
        chosen[2] = words["stereotype"].get(face["race"], chosen[2])
    if said["flirtation"]:
        chosen[3] = str(rng.choice(words["flirtation"]))
    return chosen


def _ratings(mean: np.ndarray, latent: np.ndarray, rng: np.random.Generator) -> list[str]:
    forms = planted()["rating_forms"]
    drawn = rng.choice(list(forms), len(mean), p=list(forms.values()))
    numbers = rating(mean, latent)
    return [
        form.format(number=n, article="an" if n == 8 else "a") for form, n in zip(drawn, numbers, strict=True)
    ]


def _salaries(mean: np.ndarray, latent: np.ndarray, rng: np.random.Generator) -> list[str]:
    forms = planted()["salary_forms"]
    drawn = rng.choice(list(forms), len(mean), p=list(forms.values()))
    amounts = salary(mean, latent)
    return [form.format(thousands=n, hourly=n // _HOURS) for form, n in zip(drawn, amounts, strict=True)]
