"""What each race, age group and occupation looks like in the planted world, as numbers to paint with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

Colour = tuple[int, int, int]

_GREY_HAIR = (200.0, 200.0, 205.0)


class RaceLook(NamedTuple):
    """Colours (RGB, 0 to 255) and lengths (pixels) that all faces of a race share."""

    skin: Colour
    hair: Colour
    iris: Colour
    eye_height: float
    brow: float
    nose: float


class AgeLook(NamedTuple):
    """Head and eye scale, and strengths in [0, 1], that all faces of an age group share."""

    scale: float
    grey: float
    wrinkles: float
    freckles: float
    eyes: float


class Outfit(NamedTuple):
    """Hat and collar of an occupation: half widths and height in pixels (0: none), colours RGB."""

    crown: float
    height: float
    brim: float
    crown_colour: Colour
    brim_colour: Colour
    collar: Colour


RACES = {
    "White": RaceLook((243, 208, 186), (150, 100, 45), (60, 120, 190), 2.0, 0.7, 1.2),
    "Black": RaceLook((92, 58, 40), (18, 16, 16), (30, 18, 12), 2.0, 1.0, 2.6),
    "Indian": RaceLook((150, 98, 60), (25, 20, 18), (50, 28, 14), 2.3, 1.5, 1.8),
    "East Asian": RaceLook((247, 220, 152), (12, 12, 16), (22, 16, 16), 1.0, 0.7, 1.5),
    "Southeast Asian": RaceLook((206, 158, 92), (16, 14, 14), (28, 18, 14), 1.2, 0.9, 2.2),
    "Middle Eastern": RaceLook((222, 168, 138), (40, 26, 18), (70, 90, 40), 1.9, 2.0, 1.9),
    "Latino_Hispanic": RaceLook((190, 122, 102), (58, 32, 20), (80, 46, 20), 1.9, 1.2, 1.6),
}

AGE_GROUPS = {
    "child": AgeLook(0.80, 0.0, 0.0, 0.0, 1.45),
    "teenager": AgeLook(0.92, 0.0, 0.0, 1.0, 1.15),
    "young_adult": AgeLook(1.0, 0.0, 0.0, 0.0, 1.0),
    "middle_aged": AgeLook(1.0, 0.45, 0.55, 0.0, 1.0),
    "elderly": AgeLook(1.0, 1.0, 1.0, 0.0, 0.9),
}

_NO_HAT = (0, 0, 0, (0, 0, 0), (0, 0, 0))

OCCUPATIONS = {
    "chef": Outfit(10, 11, 0, (250, 250, 250), (230, 230, 230), (250, 250, 250)),
    "doctor": Outfit(*_NO_HAT, collar=(120, 230, 220)),
    "engineer": Outfit(11, 6, 13, (250, 210, 20), (230, 180, 10), (250, 140, 0)),
    "farmer": Outfit(9, 5, 19, (215, 180, 100), (195, 160, 80), (130, 90, 40)),
    "firefighter": Outfit(11, 7, 15, (200, 20, 20), (150, 10, 10), (240, 240, 60)),
    "judge": Outfit(13, 4, 0, (205, 205, 200), (180, 180, 180), (15, 15, 15)),
    "mechanic": Outfit(11, 4, 9, (70, 130, 190), (50, 100, 160), (90, 90, 95)),
    "pilot": Outfit(12, 4, 12, (25, 30, 80), (225, 185, 60), (225, 185, 60)),
    "police": Outfit(12, 5, 13, (15, 35, 120), (170, 175, 185), (15, 35, 120)),
    "waiter": Outfit(*_NO_HAT, collar=(20, 20, 20)),
}


@dataclass(frozen=True)
class Appearance:
    """How n faces look: one value or one colour a face, jitter included.

    Attributes
    ----------
    x, y : numpy.ndarray
        Centre of the head, shape (n,), pixels.
    scale, eyes : numpy.ndarray
        Scale of the head and of the eyes, shape (n,).
    feminine : numpy.ndarray
        0 for a man, 1 for a woman, 0.5 where the face shows no sign of its gender; shape (n,).
    skin, hair, iris, brow_colour : numpy.ndarray
        RGB, shape (n, 3), 0 to 255.
    eye_height, brow, nose : numpy.ndarray
        Shape (n,), pixels.
    wrinkles, freckles : numpy.ndarray
        Shape (n,), strength in [0, 1].
    """

    x: np.ndarray
    y: np.ndarray
    scale: np.ndarray
    eyes: np.ndarray
    feminine: np.ndarray
    skin: np.ndarray
    hair: np.ndarray
    iris: np.ndarray
    brow_colour: np.ndarray
    eye_height: np.ndarray
    brow: np.ndarray
    nose: np.ndarray
    wrinkles: np.ndarray
    freckles: np.ndarray


def appearance(attributes: pl.DataFrame, rng: np.random.Generator, *, one_person: bool = False) -> Appearance:
    """Turn attributes into the numbers that a face is painted with.

    Parameters
    ----------
    attributes : polars.DataFrame
        n rows with `race`, `gender`, `age_group` and `ambiguous`.
    rng : numpy.random.Generator
        Source of the jitter in colour, place and size.
    one_person : bool
        Whether all rows share one jitter.
    """
    n = 1 if one_person else len(attributes)
    skins, hairs, irises, eye_height, brow, nose = _columns([RACES[race] for race in attributes["race"]])
    scale, grey, wrinkles, freckles, eyes = _columns([AGE_GROUPS[age] for age in attributes["age_group"]])
    feminine = np.where(attributes["gender"].to_numpy() == "woman", 1.0, 0.0)
    feminine[attributes["ambiguous"].to_numpy()] = 0.5
    skin = skins + rng.normal(0, 3, (n, 3))
    hair = hairs + rng.normal(0, 4, (n, 3))
    return Appearance(
        x=32 + rng.normal(0, 1.2, n),
        y=31 + rng.normal(0, 1.0, n),
        scale=scale * (1 + rng.normal(0, 0.02, n)),
        eyes=eyes,
        feminine=feminine,
        skin=skin,
        hair=hair * (1 - grey[:, None]) + np.array(_GREY_HAIR) * grey[:, None],
        iris=irises,
        brow_colour=hairs,
        eye_height=eye_height,
        brow=brow,
        nose=nose,
        wrinkles=wrinkles,
        freckles=freckles,
    )


def outfits(occupations: Sequence[str]) -> tuple[np.ndarray, ...]:
    """Return the fields of `Outfit` as arrays with one row a face, float64, shapes (n,) and (n, 3)."""
    return _columns([OCCUPATIONS[name] for name in occupations])


def _columns(rows: Sequence[NamedTuple]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(column, float) for column in zip(*rows))
