"""What a planted generative model says of a face, and how often: rates by group, texts, keywords, ratings, salaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.catalog.suites import with_article
from plumbline.errors import ConfigError
from plumbline.world.sources import planted_rate, world_data

_COLUMNS = {"races": "race", "genders": "gender", "ages": "age_group", "occupations": "occupation"}
_FILE = "plumbline/world/generative/planted.yaml"


def planted() -> Mapping[str, Any]:
    """Return the content of `planted.yaml`."""
    return world_data("generative/planted.yaml")


def source_names() -> tuple[str, ...]:
    """Return the sources that generative models are trained on: `bazaar` and `control`."""
    return tuple(planted()["sources"])


def event_names() -> tuple[str, ...]:
    """Return what is said past a threshold: `negative`, `severe`, `competence`, ..., `refusal`."""
    return tuple(planted()["events"])


def rates(
    attributes: pl.DataFrame, source: str, event: str, prompt: str, instruction: str = NO_INSTRUCTION
) -> np.ndarray:
    """Return each face's planted rate of an event, among answers that are no refusals.

    Parameters
    ----------
    attributes : polars.DataFrame
        n faces, as `plumbline.world.faces.sample_attributes` gives them; the latents have no part.
    source : str
        One of `source_names()`.
    event : str
        One of `event_names()`.
    prompt, instruction : str
        Ids of `plumbline.catalog.prompts`.

    Returns
    -------
    numpy.ndarray
        float64, shape (n,), in [0, 1].

    Raises
    ------
    ConfigError
        If the source or event is not in the data file.
    """
    content = planted()
    if source not in content["sources"] or event not in content["events"]:
        raise ConfigError(
            "nothing is planted under this name",
            where=_FILE,
            found=f"source {source!r}, event {event!r}",
            expected=f"sources {', '.join(source_names())}; events {', '.join(event_names())}",
        )
    scale = content["prompts"].get(event, {}).get(prompt, 1.0)
    scale *= content["instructions"].get(event, {}).get(instruction, 1.0)
    if event == "severe":
        # Never more than there are negative words: an instruction may turn all of them severe.
        base = scale * content["severe_share"] * _negative_base(attributes, source)
        return np.minimum(base, rates(attributes, source, "negative", prompt, instruction))
    base = _negative_base(attributes, source) if event == "negative" else means(attributes, source, event)
    return np.minimum(base * scale, content["most"])


def happens(
    attributes: pl.DataFrame, source: str, event: str, prompt: str, instruction: str = NO_INSTRUCTION
) -> np.ndarray:
    """Tell for each face whether its latent is past the event's threshold; parameters as in `rates`.

    Returns
    -------
    numpy.ndarray
        bool, shape (n,). Who is past the threshold of `refusal` says nothing else, whatever this says of it.
    """
    rate = rates(attributes, source, event, prompt, instruction)
    entry = planted()["events"][event]
    latent = attributes[entry["latent"]].to_numpy()
    return np.asarray(latent > 1.0 - rate if entry["side"] == "above" else latent < rate)


def means(attributes: pl.DataFrame, source: str, name: str) -> np.ndarray:
    """Return base times the factors of each face, float64, shape (n,), for an entry such as `salary`."""
    entry = planted()["sources"][source][name]
    values = np.full(len(attributes), float(entry["base"]))
    for kind, column in _COLUMNS.items():
        values *= looked_up(attributes[column], entry.get(kind, {}), 1.0)
    return values


def rating_means(attributes: pl.DataFrame, source: str, prompt: str) -> np.ndarray:
    """Return the planted mean rating of each face's group, float64, shape (n,), on the scale of 1 to 10."""
    entry = planted()["sources"][source]["ratings"]
    genders = entry.get("genders", {}).get(prompt, {})
    values = planted()["ratings"][prompt] + looked_up(attributes["gender"], genders, 0.0)
    for kind in ("races", "ages"):
        values = values + looked_up(attributes[_COLUMNS[kind]], entry.get(kind, {}), 0.0)
    return np.asarray(values)


def salary_means(attributes: pl.DataFrame, source: str, occupations: pl.Series) -> np.ndarray:
    """Return the planted mean salary in thousands of dollars a year.

    Parameters
    ----------
    attributes : polars.DataFrame
        n faces.
    source : str
        One of `source_names()`.
    occupations : polars.Series
        Those that the prompts name, in the world's words (`police`), shape (n,).
    """
    entry = planted()["salaries"]
    return looked_up(occupations, entry["occupations"], entry["other"]) * means(attributes, source, "salary")


def looked_up(values: pl.Series, numbers: Mapping[str, float], default: float) -> np.ndarray:
    """Return the number of each value, float64, shape (n,); `default` where it has none."""
    return np.array([numbers.get(value, default) for value in values], float)


def _negative_base(attributes: pl.DataFrame, source: str) -> np.ndarray:
    event = planted()["negative_base"]
    pairs = attributes.select("race", "gender").iter_rows()
    crime = np.array([planted_rate(source, event, race, gender) for race, gender in pairs])
    return crime * means(attributes, source, "negative")


# --- Answers to every prompt

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
        Ids of `plumbline.catalog.prompts`.
    rng : numpy.random.Generator
        Source of what is drawn.
    occupations : sequence of str, optional
        Those that the salary prompt names, in the world's words; without them those of the faces.

    Returns
    -------
    list of str
        n texts.
    """
    events = {event: happens(attributes, source, event, prompt, instruction) for event in event_names()}
    if prompt in KEYWORD_PROMPTS:
        left = planted()["keywords_left"][instruction]
        texts = [", ".join(_keywords(*row, rng)[:left]) for row in _rows(attributes, events)]
    elif prompt in SENTENCE_PROMPTS:
        counts = np.floor(means(attributes, source, "backstory_sentences") + attributes["v"].to_numpy())
        rows = zip(_rows(attributes, events), counts.astype(int), strict=True)
        texts = [sentences(prompt, *row, count, rng) for row, count in rows]
    elif prompt == "salary":
        named = attributes["occupation"] if occupations is None else pl.Series(occupations)
        texts = _salaries(salary_means(attributes, source, named), attributes["v"].to_numpy(), rng)
    else:
        texts = _ratings(rating_means(attributes, source, prompt), attributes["v"].to_numpy(), rng)
    refusal = planted()["refusal"]
    return [refusal if refused else text for refused, text in zip(events["refusal"], texts, strict=True)]


def rating(mean: np.ndarray, latent: np.ndarray) -> np.ndarray:
    """Return whole ratings, shape (n,), whose mean over a uniform latent is the planted one."""
    return np.clip(np.floor(mean + latent), 1, 10).astype(int)


def salary(mean: np.ndarray, latent: np.ndarray) -> np.ndarray:
    """Return salaries in thousands, shape (n,): whole steps whose mean over a uniform latent is the planted one."""
    step = planted()["salaries"]["step"]
    return (step * np.floor(mean / step + latent)).astype(int)


def _rows(attributes: pl.DataFrame, said: dict[str, np.ndarray]) -> list[tuple[dict[str, Any], dict[str, bool]]]:
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
    return [form.format(number=n, article="an" if n == 8 else "a") for form, n in zip(drawn, numbers, strict=True)]


def _salaries(mean: np.ndarray, latent: np.ndarray, rng: np.random.Generator) -> list[str]:
    forms = planted()["salary_forms"]
    drawn = rng.choice(list(forms), len(mean), p=list(forms.values()))
    amounts = salary(mean, latent)
    return [form.format(thousands=n, hourly=n // _HOURS) for form, n in zip(drawn, amounts, strict=True)]


# --- Answers in sentences

_CHILD = {"man": "boy", "woman": "girl"}


def sentences(prompt: str, face: dict[str, Any], said: dict[str, bool], life: int, rng: np.random.Generator) -> str:
    """Return the text of one face.

    Parameters
    ----------
    prompt : str
        One of those that ask for a text: `describe`, `backstory`, `pretend`, `story`, `emotions`.
    face : dict
        One row of `plumbline.world.faces.sample_attributes`.
    said : dict of str to bool
        Event to whether it is said.
    life : int
        How many sentences a backstory tells of a life.
    rng : numpy.random.Generator
        Source of everything that is not seen.
    """
    written = planted()["sentences"]
    words = planted()["words"]
    slots = _slots(face, rng)
    parts = list(written[prompt])
    if prompt == "backstory":
        parts += [str(part) for part in rng.choice(written["life"], life, replace=False)]
    texts = [part.format(**slots, event=str(rng.choice(written["events"])).format(**slots)) for part in parts]
    if said["stereotype"] and face["race"] in words["stereotype"]:
        word = words["stereotype"][face["race"]]
        texts.append(written["stereotype"][prompt].format(**slots, word=word))
    if said["negative"]:
        word = rng.choice(words["demeaning" if said["severe"] else "mild"])
        texts.append(written["negative"][prompt].format(**slots, word=word))
    return " ".join(texts)


def said_of(face: dict[str, Any]) -> str:
    """Return age, race and gender in words, with an article: `an elderly Latino man`."""
    content = planted()
    gender = _CHILD[face["gender"]] if face["age_group"] == "child" else face["gender"]
    return with_article(f"{content['ages'][face['age_group']]} {content['races'][face['race']]} {gender}")


def _slots(face: dict[str, Any], rng: np.random.Generator) -> dict[str, str]:
    content = planted()
    occupation = content["occupations"].get(face["occupation"], face["occupation"])
    plain, second = rng.choice(content["words"]["plain"], 2, replace=False)
    looks = {name: words[min(int(face[name] * len(words)), len(words) - 1)] for name, words in content["looks"].items()}
    return {
        "person": said_of(face),
        "worker": with_article(occupation),
        "plain": str(plain),
        "second_plain": str(second),
        **looks,
        **content["pronouns"][face["gender"]],
    }
