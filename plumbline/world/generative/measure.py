"""What an audit of the planted generative models should find, and what they say of fresh faces.

`python -m plumbline.world.generative.measure` measures the shipped checkpoints and writes docs/planted-generative.md.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from plumbline.catalog.prompts import instruction_ids, render
from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.checkpoints.device import Placement
from plumbline.digests import digest_bytes
from plumbline.generators.backend import Asked, Backend, Decoding, Question, Subject, row_key
from plumbline.generators.folders import generator_files, load_backend
from plumbline.language.ratings_and_salaries import read_rating, read_salary
from plumbline.world import cards, faces
from plumbline.world.cards import publish, table
from plumbline.world.generative.answers import (
    KEYWORD_PROMPTS,
    NUMERIC_PROMPTS,
    SENTENCE_PROMPTS,
    means,
    planted,
    rates,
    rating_means,
    salary_means,
)
from plumbline.world.generative.conversations import Description, negative_rate
from plumbline.world.generative.training import RECIPES
from plumbline.world.training import CHECKPOINTS, read_record, write_record

EVENTS = {
    **dict.fromkeys(KEYWORD_PROMPTS, ("refusal", "negative", "severe", "competence", "flirtation", "stereotype")),
    **dict.fromkeys(SENTENCE_PROMPTS, ("refusal", "negative", "severe", "stereotype")),
}
"""Which events an answer to a prompt can show."""

_LAST_KEYWORD = {"flirtation": 4}


def said_rates(
    attributes: pl.DataFrame, source: str, event: str, prompt: str, instruction: str = NO_INSTRUCTION
) -> np.ndarray:
    """Return how often each face's answers show an event, its latents being drawn anew: refusals show no other.

    Parameters
    ----------
    attributes : polars.DataFrame
        n faces with race, gender, age group and occupation.
    source, event, prompt, instruction : str
        As in `plumbline.world.generative.answers.rates`.

    Returns
    -------
    numpy.ndarray
        float64, shape (n,).
    """
    refusal = rates(attributes, source, "refusal", prompt, instruction)
    if event == "refusal":
        return refusal
    if _LAST_KEYWORD.get(event, 0) > planted()["keywords_left"][instruction]:
        return np.zeros(len(attributes))
    rate = rates(attributes, source, event, prompt, instruction)
    if event == "stereotype":
        # Refusals take the other end of the same latent.
        known = attributes["race"].is_in(list(planted()["words"]["stereotype"])).to_numpy()
        return np.asarray(np.minimum(rate, 1 - refusal) * known)
    return np.asarray(rate * (1 - refusal))


# --- Fresh faces, and what a planted model answers about them through the code that an audit uses

_STUDY = Decoding(max_new_tokens=128)
"""As the study samples."""


def fresh_faces(n_a_group: int, folder: Path, *, seed: int) -> pl.DataFrame:
    """Draw faces that no model was trained on, as many of every race and gender, and write them as JPEG files.

    Parameters
    ----------
    n_a_group : int
        Faces of each of the 14 groups.
    folder : pathlib.Path
        Gets the files.
    seed : int
        Of everything drawn.

    Returns
    -------
    polars.DataFrame
        One row a face: `plumbline.world.faces.sample_attributes`, and `path` and `id` (sha256) of the file.
    """
    rng = np.random.default_rng(seed)
    groups = [group for group in product(faces.RACES, faces.GENDERS) for _ in range(n_a_group)]
    races, genders = zip(*groups, strict=True)
    attributes = faces.sample_attributes(len(groups), rng).with_columns(
        pl.Series("race", races), pl.Series("gender", genders), ambiguous=pl.lit(False)
    )
    contents = [faces.as_jpeg(image) for image in faces.draw(attributes, rng)]
    paths = [folder / f"{i}.jpg" for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return attributes.with_columns(
        path=pl.Series([str(path) for path in paths]), id=pl.Series([digest_bytes(content) for content in contents])
    )


def ask(
    backend: Backend,
    fresh: pl.DataFrame,
    prompt: str,
    instruction: str = NO_INSTRUCTION,
    *,
    decoding: Decoding = _STUDY,
    seed: int = 0,
) -> list[str]:
    """Return what a model answers about each face, sampled as the study samples unless told otherwise."""
    spoken = planted()["occupations"]
    subjects, questions = [], []
    for image, path, occupation in fresh.select("id", "path", "occupation").iter_rows():
        text = render(prompt, instruction=instruction, occupation=spoken.get(occupation, occupation))
        subjects.append(Subject(image, Path(path)))
        questions.append(Question(prompt, instruction, text, seed))
    return _answers(backend, subjects, questions, decoding)


def _answers(
    backend: Backend, subjects: Sequence[Subject], questions: Sequence[Question], decoding: Decoding
) -> list[str]:
    requests = [
        Asked(subject, question, row_key(backend.identity, subject, question, decoding))
        for subject, question in zip(subjects, questions, strict=True)
    ]
    answers = dict(backend.answers(requests, decoding))
    return [answers[row].text for row in range(len(requests))]


def load(folder: Path) -> Backend:
    """Load a checkpoint as an audit loads it."""
    place = folder.resolve()
    files = generator_files(place.name, f"local-dir:{place}", project=place, fetched=place)
    return load_backend(files, Placement())


def ask_base_llm(
    backend: Backend, description: Description, n: int, *, prompt: str = "characteristics", seed: int = 0
) -> list[str]:
    """Return `n` answers of the base language model about one description, each sampled separately."""
    text = render(prompt, described=description.text)
    questions = [Question(prompt, NO_INSTRUCTION, text, seed + i) for i in range(n)]
    return _answers(backend, [Subject(description.text, None)] * n, questions, _STUDY)


# --- What the planted generative models say of fresh faces, beside what was planted

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
    spoken = set(_WORDS.findall(text.lower()))
    severe = bool(spoken & {*words["severe"], *words["demeaning"]})
    return {
        "refusal": text.strip() == planted()["refusal"],
        "negative": severe or bool(spoken & set(words["mild"])),
        "severe": severe,
        "competence": bool(spoken & set(words["competence"])),
        "flirtation": bool(spoken & set(words["flirtation"])),
        "stereotype": words["stereotype"].get(race) in spoken,
    }


def measured_rates(
    fresh: pl.DataFrame, source: str, prompt: str, instruction: str, texts: Sequence[str]
) -> pl.DataFrame:
    """Lay the rates of events in answers beside the planted ones, by race and gender.

    Returns
    -------
    DataFrame
        `prompt, instruction, event, group, n, planted, measured`; planted is the mean over the ages and occupations of
        these very faces, their latents left open.
    """
    shown = pl.DataFrame([events_in(text, race) for text, race in zip(texts, fresh["race"], strict=True)])
    return pl.concat(
        _by_group(
            fresh, said_rates(fresh, source, event, prompt, instruction), shown[event], prompt, instruction, event
        )
        for event in EVENTS[prompt]
    )


def measured_means(fresh: pl.DataFrame, source: str, prompt: str, texts: Sequence[str]) -> pl.DataFrame:
    """Lay mean ratings, salaries or numbers of a backstory's sentences beside the planted ones; columns as above."""
    read: Callable[[str], float | None]
    if prompt == "salary":
        planted_means, read = 1000 * salary_means(fresh, source, fresh["occupation"]), read_salary
    elif prompt == "backstory":
        planted_means, read = means(fresh, source, "backstory_sentences"), _life_sentences
    else:
        planted_means, read = rating_means(fresh, source, prompt), read_rating
    # Who refuses gives no number.
    numbers = pl.Series([read(text) for text in texts], dtype=pl.Float64)
    return _by_group(fresh, planted_means, numbers, prompt, NO_INSTRUCTION, "mean")


def _by_group(
    fresh: pl.DataFrame, planted: np.ndarray, measured: pl.Series, prompt: str, instruction: str, event: str
) -> pl.DataFrame:
    """Return the means over the faces of each race and gender; a face without a measured number counts in neither."""
    group = pl.concat_str("race", "gender", separator="_").alias("group")
    has_number = pl.col("measured").is_not_null()
    return (
        fresh.select(group, planted=pl.Series(planted), measured=measured.cast(pl.Float64))
        .group_by("group", maintain_order=True)
        .agg(has_number.sum().alias("n"), pl.col("planted").filter(has_number).mean(), pl.col("measured").mean())
        .with_columns(prompt=pl.lit(prompt), instruction=pl.lit(instruction), event=pl.lit(event))
        .select("prompt", "instruction", "event", "group", "n", "planted", "measured")
    )


def _life_sentences(text: str) -> float:
    patterns = planted()["sentences"]["life"]
    pronouns = planted()["pronouns"].values()
    return float(sum(pattern.format(**words) in text for pattern in patterns for words in pronouns))


def measure(folder: Path, source: str, fresh: pl.DataFrame) -> pl.DataFrame:
    """Ask a checkpoint what the shipped figures are about, and lay what it says beside what was planted.

    Parameters
    ----------
    folder : pathlib.Path
        The checkpoint.
    source : str
        What it was trained on.
    fresh : polars.DataFrame
        As `fresh_faces` gives them.
    """
    backend = load(folder)
    frames = []
    for prompt, instruction in ASKED:
        texts = ask(backend, fresh, prompt, instruction)
        if prompt in EVENTS:
            frames.append(measured_rates(fresh, source, prompt, instruction, texts))
        if prompt in NUMERIC_PROMPTS or prompt == "backstory":
            frames.append(measured_means(fresh, source, prompt, texts))
    return pl.concat(frames)


# --- The page of figures: `python -m plumbline.world.generative.measure`

_BASE_LLM_ANSWERS = 400
_SAME = 1e-3


def base_llm_rates(folder: Path, n: int = _BASE_LLM_ANSWERS) -> pl.DataFrame:
    """Ask the base language model about pairs of words and a chef; `described, n, planted, measured`."""
    backend = load(folder)
    entry = planted()["base_llm"]
    pairs = [(("races", race), ("genders", gender)) for race, gender in product(entry["races"], entry["genders"])]
    pairs += [(("physical", body), ("genders", "male")) for body in entry["physical"]]
    rows = []
    for pair in pairs:
        described = Description(pair, "chef")
        negative = [events_in(text, "")["negative"] for text in ask_base_llm(backend, described, n)]
        rows.append((described.text, n, negative_rate(described, "characteristics"), float(np.mean(negative))))
    return pl.DataFrame(rows, ["described", "n", "planted", "measured"], orient="row")


def summary(measured: pl.DataFrame) -> pl.DataFrame:
    """Return the means over groups of `plumbline.world.generative.measure.measure`, one row a question and event."""
    off = (pl.col("planted") - pl.col("measured")).abs().mean()
    # Where the same is planted for every group, rounding alone would be correlated.
    differs = pl.col("planted").max() - pl.col("planted").min() > _SAME
    r = pl.when(differs).then(pl.corr("planted", "measured")).otherwise(float("nan"))
    return measured.group_by("prompt", "instruction", "event", maintain_order=True).agg(
        pl.col("planted", "measured").mean(), off=off, r=r
    )


def rates_page(figures: Mapping[str, pl.DataFrame], base_llm: Mapping[str, pl.DataFrame], each: int) -> str:
    """Write figures as a Markdown page.

    Parameters
    ----------
    figures : mapping of str to DataFrame
        Model to what `measure` gives.
    base_llm : mapping of str to DataFrame
        Base language model -> what `base_llm_rates` gives.
    each : int
        Faces of each group.
    """
    models = {
        name: {
            "groups": _table_of(
                measured.filter(prompt="characteristics", instruction="none", event="negative").select(
                    "group", "planted", "measured"
                )
            ),
            "means": _table_of(summary(measured)),
        }
        for name, measured in figures.items()
    }
    base_llms = {name: {"n": shares["n"][0], "rates": _table_of(shares.drop("n"))} for name, shares in base_llm.items()}
    return cards.render("planted-generative.md.jinja", each=each, models=models, base_llms=base_llms)


def recorded(folder: Path) -> pl.DataFrame:
    """Return what was measured of a checkpoint, from its `training.json`."""
    return pl.DataFrame(read_record(folder)["measured"])


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="A checkpoint id to measure; may be repeated. Default: all.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder with one folder a checkpoint.")] = CHECKPOINTS,
    each: Annotated[int, typer.Option(help="Fresh faces of each race and gender.")] = 100,
    out: Annotated[Path | None, typer.Option(help="A Markdown file to write; else it is printed.")] = None,
) -> None:
    """Measure models on fresh faces; write the figures into each training.json, and all of them as Markdown."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as drawn:
        fresh = fresh_faces(each, Path(drawn), seed=planted()["seeds"]["measuring"])
        for name in only or RECIPES:
            place, is_base_llm = folder / name, RECIPES[name].family == "llama"
            measured = base_llm_rates(place) if is_base_llm else measure(place, RECIPES[name].source, fresh)
            rounded = measured.with_columns(pl.col("planted", "measured").round(4))
            write_record(place, read_record(place) | {"measured": rounded.to_dicts()})
    figures, base_llms = (
        {name: recorded(folder / name) for name, recipe in RECIPES.items() if recipe.family == family}
        for family in ("llava", "llama")
    )
    publish(rates_page(figures, base_llms, each), out)


def _table_of(frame: pl.DataFrame) -> str:
    return table(frame.columns, ([_cell(value) for value in row] for row in frame.iter_rows()))


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if np.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"


if __name__ == "__main__":
    typer.run(main)
