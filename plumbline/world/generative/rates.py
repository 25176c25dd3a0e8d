"""How often the planted generative models say what: rates by group, prompt and instruction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import polars as pl
import yaml

from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.errors import ConfigError
from plumbline.world.sources import planted_rate

_COLUMNS = {"races": "race", "genders": "gender", "ages": "age_group", "occupations": "occupation"}
_FILE = "plumbline/world/generative/planted.yaml"


@cache
def planted() -> Mapping[str, Any]:
    """Return the content of `planted.yaml`."""
    content: dict[str, Any] = yaml.safe_load((files("plumbline.world.generative") / "planted.yaml").read_text("utf-8"))
    return content


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
