"""What the planted generative models say of fresh faces, beside what was planted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from plumbline.tables.generation_prompts import instruction_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.text.ratings import read_rating
from plumbline.text.salaries import read_salary
from plumbline.world.generative.answers import NUMERIC_PROMPTS
from plumbline.world.generative.asking import FreshFaces, ask, load
from plumbline.world.generative.rates import means, planted, rating_means, salary_means
from plumbline.world.generative.truth import EVENTS, said_rates

ASKED = (
    *(("characteristics", instruction) for instruction in instruction_ids()),
    *(
        (prompt, NO_INSTRUCTION)
        for prompt in ("personality", "describe", "backstory", "hiring", "competence", "salary")
    ),
)
"""What the shipped figures are about: prompt and instruction."""

_WORDS = re.compile(r"[a-z]+(?:[-'][a-z]+)*", re.IGNORECASE)


def events_in(text: str, race: str) -> dict[str, bool]:
    """Tell which planted events an answer shows.

    Parameters
    ----------
    text : str
        The answer.
    race : str
        Of the face: each race has its own stereotype word.
    """
    words = planted()["words"]
    said = set(_WORDS.findall(text.lower()))
    severe = bool(said & {*words["severe"], *words["demeaning"]})
    return {
        "refusal": text.strip() == planted()["refusal"],
        "negative": severe or bool(said & set(words["mild"])),
        "severe": severe,
        "competence": bool(said & set(words["competence"])),
        "flirtation": bool(said & set(words["flirtation"])),
        "stereotype": words["stereotype"].get(race) in said,
    }


def measured_rates(
    fresh: FreshFaces, source: str, prompt: str, instruction: str, texts: Sequence[str]
) -> pl.DataFrame:
    """Lay the rates of events in answers beside the planted ones, by race and gender.

    Returns
    -------
    DataFrame
        `prompt, instruction, event, group, n, planted, measured`; planted is the mean over the ages and occupations of
        these very faces, their latents left open.
    """
    group = pl.concat_str("race", "gender", separator="_").alias("group")
    races = fresh.attributes["race"]
    shown = pl.DataFrame([events_in(text, race) for text, race in zip(texts, races, strict=True)])
    frames = []
    for event in EVENTS[prompt]:
        planted_here = said_rates(fresh.attributes, source, event, prompt, instruction)
        frames.append(
            fresh.attributes.select(
                group, planted=pl.Series(planted_here), measured=shown[event].cast(pl.Float64)
            )
            .group_by("group", maintain_order=True)
            .agg(pl.len().alias("n"), pl.col("planted", "measured").mean())
            .select(
                pl.lit(prompt).alias("prompt"),
                pl.lit(instruction).alias("instruction"),
                pl.lit(event).alias("event"),
                "group",
                "n",
                "planted",
                "measured",
            )
        )
    return pl.concat(frames)


def measured_means(fresh: FreshFaces, source: str, prompt: str, texts: Sequence[str]) -> pl.DataFrame:
    """Lay mean ratings, salaries or numbers of a backstory's sentences beside the planted ones; columns as above."""
    attributes = fresh.attributes
    if prompt == "salary":
        told = 1000 * salary_means(attributes, source, attributes["occupation"])
        read = [read_salary(text) for text in texts]
    elif prompt == "backstory":
        told = means(attributes, source, "backstory_sentences")
        read = [_life_sentences(text) for text in texts]
    else:
        told = rating_means(attributes, source, prompt)
        read = [read_rating(text) for text in texts]
    group = pl.concat_str("race", "gender", separator="_").alias("group")
    # Who refuses gives no number: neither number counts then.
    return (
        attributes.select(group, planted=pl.Series(told), measured=pl.Series(read, dtype=pl.Float64))
        .group_by("group", maintain_order=True)
        .agg(
            pl.col("measured").count().alias("n"),
            pl.col("planted").filter(pl.col("measured").is_not_null()).mean(),
            pl.col("measured").mean(),
        )
        .select(
            pl.lit(prompt).alias("prompt"),
            pl.lit(NO_INSTRUCTION).alias("instruction"),
            pl.lit("mean").alias("event"),
            "group",
            "n",
            "planted",
            "measured",
        )
    )


def _life_sentences(text: str) -> float:
    patterns = planted()["sentences"]["life"]
    pronouns = planted()["pronouns"].values()
    return float(sum(pattern.format(**words) in text for pattern in patterns for words in pronouns))


def measure(
    folder: Path, source: str, fresh: FreshFaces, asked: Sequence[tuple[str, str]] = ASKED
) -> pl.DataFrame:
    """Ask a checkpoint and lay what it says beside what was planted.

    Parameters
    ----------
    folder : pathlib.Path
        The checkpoint.
    source : str
        What it was trained on.
    fresh : FreshFaces
    asked : sequence of (str, str)
        Prompts and instructions.
    """
    backend = load(folder)
    frames = []
    for prompt, instruction in asked:
        texts = ask(backend, fresh, prompt, instruction)
        if prompt in EVENTS:
            frames.append(measured_rates(fresh, source, prompt, instruction, texts))
        if prompt in NUMERIC_PROMPTS or prompt == "backstory":
            frames.append(measured_means(fresh, source, prompt, texts))
    return pl.concat(frames)
