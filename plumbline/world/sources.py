"""What was planted: the rate of each event for each group in each data source of the planted world."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from plumbline.catalog.files import parse_yaml
from plumbline.catalog.suites import GENDERS, TASK_EVENTS, load_suite
from plumbline.errors import ConfigError

EVENT_SUITES = {event: suite for suite, event in TASK_EVENTS.items()}
"""Planted event -> the suite of outcomes whose events it is."""


@dataclass(frozen=True)
class AmbiguousGender:
    """The one group some of whose faces show no sign of their gender.

    Attributes
    ----------
    race : str
        A FairFace race.
    rate : float
        Share of that race's faces, in [0, 1].
    """

    race: str
    rate: float


@cache
def world_data(name: str) -> dict[str, Any]:
    """Return the content of a data file of the planted world, such as `looks.yaml`."""
    content: dict[str, Any] = parse_yaml((files("plumbline.world") / name).read_text("utf-8"))
    return content


def source_names() -> tuple[str, ...]:
    """Return the data sources: `atlas`, `bazaar` and `control`."""
    return tuple(world_data("sources.yaml")["sources"])


def event_latents() -> dict[str, str]:
    """Return each planted event with the latent whose threshold decides it, such as ``{"crime": "u"}``."""
    return {event: entry["latent"] for event, entry in world_data("sources.yaml")["events"].items()}


def ambiguous_gender() -> AmbiguousGender:
    """Return which group's faces are ambiguous in gender, and how many of them."""
    return AmbiguousGender(**world_data("sources.yaml")["ambiguous_gender"])


def seed(purpose: str, name: str | None = None) -> int:
    """Return the seed of one set of faces; training, auditing and measuring share none.

    Parameters
    ----------
    purpose : str
        `training`, `auditing` or `measuring`.
    name : str, optional
        The data source to train on, or the dataset folder to audit.

    Raises
    ------
    ConfigError
        Of a name that has no seed.
    """
    entry = world_data("sources.yaml")["seeds"][purpose]
    if name is not None and name not in entry:
        raise ConfigError(
            "a planted folder has a seed of its own",
            where=f"plumbline/world/sources.yaml, seeds.{purpose}",
            found=name,
            expected=f"one of {', '.join(entry)}",
        )
    return int(entry if name is None else entry[name])


def planted_rate(source: str, event: str, race: str, gender: str | None = None) -> float:
    """Return the share of a group's training images whose captions name an event.

    This is the true value that an audit of a perfectly trained checkpoint finds as the event's top-1 rate.

    Parameters
    ----------
    source : str
        `atlas`, `bazaar` or `control`.
    event : str
        `crime`, `negative_communion` or `negative_agency`.
    race : str
        A FairFace race.
    gender : str, optional
        `man` or `woman`; without it the mean over both, which the world draws equally often.

    Returns
    -------
    float
        A rate in [0, 1].

    Raises
    ------
    ConfigError
        If the source, event or group is not in the world's data file.
    """
    try:
        entry = world_data("sources.yaml")["sources"][source][event]
        factors = entry["genders"]
        factor = factors[gender] if gender is not None else sum(factors.values()) / len(factors)
        return float(entry["races"][race] * factor)
    except KeyError as error:
        raise ConfigError(
            "nothing is planted under this name",
            where="plumbline/world/sources.yaml",
            found=f"source {source!r}, event {event!r}, race {race!r}, gender {gender!r} (unknown: {error})",
            expected=f"sources {', '.join(source_names())}; events {', '.join(event_latents())}",
        ) from error


def past_threshold(attributes: pl.DataFrame, source: str, event: str, *, share: float = 1.0) -> np.ndarray:
    """Tell for each face whether the source's captions name the event.

    Parameters
    ----------
    attributes : polars.DataFrame
        `n` faces with `race`, `gender` and the event's latent.
    source, event : str
        As in `planted_rate`.
    share : float
        For a word that is named at a fraction of the event's rate, in [0, 1].

    Returns
    -------
    numpy.ndarray
        bool, shape (n,): latent > 1 - share * planted rate of the face's group.
    """
    latent = attributes[event_latents()[event]].to_numpy()
    rates = [planted_rate(source, event, r, g) for r, g in attributes.select("race", "gender").iter_rows()]
    return np.asarray(latent > 1.0 - share * np.array(rates))


# --- What an audit of the planted world should find: the planted rates as rows, beside which estimates can be laid


def planted_rates(source: str) -> pl.DataFrame:
    """Return the true rate of every planted event for every group of the planted FairFace folder.

    Parameters
    ----------
    source : str
        A data source of the planted world.

    Returns
    -------
    DataFrame
        `suite, event, attribute, group, planted`: attributes race, gender and gender_race (`Black_man`).
    """
    races = load_suite("trident", classes="fairface").class_labels
    rows = []
    for event in event_latents():
        rates = {(r, g): planted_rate(source, event, r, g) for r, g in product(races, GENDERS)}
        groups = {
            "race": {r: planted_rate(source, event, r) for r in races},
            "gender": {g: sum(rates[r, g] for r in races) / len(races) for g in GENDERS},
            "gender_race": {f"{r}_{g}": rate for (r, g), rate in rates.items()},
        }
        rows += [
            (EVENT_SUITES[event], event, attribute, group, rate)
            for attribute, by_group in groups.items()
            for group, rate in by_group.items()
        ]
    return pl.DataFrame(rows, ["suite", "event", "attribute", "group", "planted"], orient="row")
