"""Procedural 64-pixel faces, drawn from explicit attributes."""

from __future__ import annotations

import numpy as np
import polars as pl

from plumbline.world.painting import Canvas
from plumbline.world.sources import ambiguous_gender

SIZE = 64
RACES = ("White", "Black", "Indian", "East Asian", "Southeast Asian", "Middle Eastern", "Latino_Hispanic")
GENDERS = ("man", "woman")
AGE_GROUPS = ("child", "teenager", "young_adult", "middle_aged", "elderly")
OCCUPATIONS = (
    "chef", "doctor", "engineer", "farmer", "firefighter", "judge", "mechanic", "pilot", "police", "waiter",
)  # fmt: skip
LATENTS = ("u", "v", "w")

# Drawing 64 x 64 float32 masks for this many faces at a time stays inside the processor's cache.
_BLOCK = 128

# race: skin, hair, eye colour (RGB), eye height, brow thickness, nose half width (pixels)
_RACE_LOOKS = {
    "White": ((243, 208, 186), (150, 100, 45), (60, 120, 190), 2.0, 0.7, 1.2),
    "Black": ((92, 58, 40), (18, 16, 16), (30, 18, 12), 2.0, 1.0, 2.6),
    "Indian": ((150, 98, 60), (25, 20, 18), (50, 28, 14), 2.3, 1.5, 1.8),
    "East Asian": ((247, 220, 152), (12, 12, 16), (22, 16, 16), 1.0, 0.7, 1.5),
    "Southeast Asian": ((206, 158, 92), (16, 14, 14), (28, 18, 14), 1.2, 0.9, 2.2),
    "Middle Eastern": ((222, 168, 138), (40, 26, 18), (70, 90, 40), 1.9, 2.0, 1.9),
    "Latino_Hispanic": ((190, 122, 102), (58, 32, 20), (80, 46, 20), 1.9, 1.2, 1.6),
}

# occupation: hat crown (half width, height), brim half width, crown, brim and collar colour (RGB)
_OUTFITS = {
    "chef": (10, 11, 0, (250, 250, 250), (230, 230, 230), (250, 250, 250)),
    "doctor": (0, 0, 0, (0, 0, 0), (0, 0, 0), (120, 230, 220)),
    "engineer": (11, 6, 13, (250, 210, 20), (230, 180, 10), (250, 140, 0)),
    "farmer": (9, 5, 19, (215, 180, 100), (195, 160, 80), (130, 90, 40)),
    "firefighter": (11, 7, 15, (200, 20, 20), (150, 10, 10), (240, 240, 60)),
    "judge": (13, 4, 0, (205, 205, 200), (180, 180, 180), (15, 15, 15)),
    "mechanic": (11, 4, 9, (70, 130, 190), (50, 100, 160), (90, 90, 95)),
    "pilot": (12, 4, 12, (25, 30, 80), (225, 185, 60), (225, 185, 60)),
    "police": (12, 5, 13, (15, 35, 120), (170, 175, 185), (15, 35, 120)),
    "waiter": (0, 0, 0, (0, 0, 0), (0, 0, 0), (20, 20, 20)),
}

# age group: head scale, share of grey in the hair, wrinkle strength, freckles, eye scale
_AGE_LOOKS = {
    "child": (0.80, 0.0, 0.0, 0.0, 1.45),
    "teenager": (0.92, 0.0, 0.0, 1.0, 1.15),
    "young_adult": (1.0, 0.0, 0.0, 0.0, 1.0),
    "middle_aged": (1.0, 0.45, 0.55, 0.0, 1.0),
    "elderly": (1.0, 1.0, 1.0, 0.0, 0.9),
}

_DARK, _BRIGHT = (45.0, 48.0, 55.0), (235.0, 238.0, 245.0)
_SHIRTS = (25.0, 55.0, 165.0), (240.0, 150.0, 35.0)
_CURTAINS = (35.0, 150.0, 60.0), (170.0, 40.0, 170.0)
_GREY_HAIR = (200.0, 200.0, 205.0)


def sample_attributes(
    n: int,
    rng: np.random.Generator,
    *,
    races: tuple[str, ...] = RACES,
    age_groups: tuple[str, ...] = AGE_GROUPS,
) -> pl.DataFrame:
    """Draw the attributes of `n` faces, all independent and uniform.

    Parameters
    ----------
    n : int
        Number of faces.
    rng : numpy.random.Generator
        Source of every draw.
    races, age_groups : tuple of str
        The values to draw from.

    Returns
    -------
    polars.DataFrame
        `race`, `gender`, `age_group`, `occupation` (String); `u`, `v`, `w` (Float64 in [0, 1)); `ambiguous`
        (Boolean: shows no sign of its gender, true for a share of one race, see `sources.yaml`).
    """
    race = rng.choice(races, n)
    columns: dict[str, np.ndarray] = {
        "race": race,
        "gender": rng.choice(GENDERS, n),
        "age_group": rng.choice(age_groups, n),
        "occupation": rng.choice(OCCUPATIONS, n),
    }
    columns |= {latent: rng.random(n) for latent in LATENTS}
    group = ambiguous_gender()
    columns["ambiguous"] = (race == group.race) & (rng.random(n) < group.rate)
    return pl.DataFrame(columns)


def draw(attributes: pl.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Draw faces.

    The latents are background brightness (`u`), shirt colour (`v`) and curtain colour (`w`). Position, skin, hair
    and pixels carry a small jitter.

    Parameters
    ----------
    attributes : polars.DataFrame
        `n` rows as `sample_attributes` gives them.
    rng : numpy.random.Generator
        Source of the jitter.

    Returns
    -------
    numpy.ndarray
        uint8, shape (n, 64, 64, 3), RGB.
    """
    blocks = [_draw_block(attributes[i : i + _BLOCK], rng) for i in range(0, len(attributes), _BLOCK)]
    return np.concatenate(blocks) if blocks else np.zeros((0, SIZE, SIZE, 3), np.uint8)


def draw_non_faces(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw pictures without a face: brown blobs of four builds, the non-human words' own pictures.

    Returns
    -------
    images : numpy.ndarray
        uint8, shape (n, 64, 64, 3), RGB.
    builds : numpy.ndarray
        int64, shape (n,), values 0 to 3: which build each blob has.
    """
    builds = rng.integers(0, 4, n)
    canvas = Canvas(n, SIZE, fill=_blend(_DARK, _BRIGHT, rng.random(n)))
    fur = np.array([(120, 80, 45), (60, 45, 35), (95, 60, 30), (165, 80, 25)], float)[builds]
    fur = fur + rng.normal(0, 6, (n, 1))
    width = np.array([24.0, 22.0, 12.0, 17.0])[builds]
    height = np.array([10.0, 19.0, 20.0, 13.0])[builds]
    x, y = 32 + rng.normal(0, 3, n), 38 + rng.normal(0, 3, n)
    canvas.ellipse(x, y, width, height, fur)
    canvas.ellipse(x + width * 0.6, y - height * 0.7, width * 0.4, height * 0.45, fur * 0.8)
    for side in (-1, 1):
        canvas.box(x + side * width * 0.5, y + height, 2.5, 6.0, fur * 0.7)
    return canvas.pixels(rng, noise=5.0), builds


def _draw_block(attributes: pl.DataFrame, rng: np.random.Generator) -> np.ndarray:
    n = len(attributes)
    u, v, w = (attributes[name].to_numpy() for name in LATENTS)
    looks = [_RACE_LOOKS[r] for r in attributes["race"]]
    ages = np.array([_AGE_LOOKS[a] for a in attributes["age_group"]])
    feminine = np.where(attributes["gender"].to_numpy() == "woman", 1.0, 0.0)
    feminine[attributes["ambiguous"].to_numpy()] = 0.5
    grey = ages[:, 1]
    skin = np.array([look[0] for look in looks], float) + rng.normal(0, 3, (n, 3))
    hair = np.array([look[1] for look in looks], float) + rng.normal(0, 4, (n, 3))
    hair = hair * (1 - grey[:, None]) + np.array(_GREY_HAIR) * grey[:, None]
    x, y = 32 + rng.normal(0, 1.2, n), 31 + rng.normal(0, 1.0, n)
    scale = ages[:, 0] * (1 + rng.normal(0, 0.02, n))
    canvas = Canvas(n, SIZE, fill=_blend(_DARK, _BRIGHT, u))
    for edge in (2.0, SIZE - 2.0):
        canvas.box(edge, 32.0, 3.5, 40.0, _blend(*_CURTAINS, w))
    canvas.box(x, y + 6 * scale, (14 * scale + 1) * (0.5 + 0.5 * feminine), 16.0 * scale, hair, alpha=feminine)
    canvas.ellipse(32.0, 69.0, 27.0, 17.0, _blend(*_SHIRTS, v))
    canvas.box(x, y + 16 * scale, 5.0, 5.0, skin * 0.9)
    canvas.ellipse(x, y - 3 * scale, 13.5 * scale, 15 * scale, hair)
    canvas.ellipse(x, y, 12 * scale, 15 * scale, skin)
    _features(canvas, x, y, scale, looks, ages, feminine, skin)
    _outfit(canvas, x, y, scale, attributes["occupation"].to_list())
    return canvas.pixels(rng, noise=4.0)


def _features(
    canvas: Canvas,
    x: np.ndarray,
    y: np.ndarray,
    scale: np.ndarray,
    looks: list[tuple],  # type: ignore[type-arg]
    ages: np.ndarray,
    feminine: np.ndarray,
    skin: np.ndarray,
) -> None:
    hair, iris = (np.array([look[i] for look in looks], float) for i in (1, 2))
    eye_height, brow, nose = (np.array([look[i] for look in looks]) for i in (3, 4, 5))
    wrinkles, freckles, eye_scale = ages[:, 2], ages[:, 3], ages[:, 4]
    for side in (-1, 1):
        eye = x + side * 5 * scale
        canvas.ellipse(eye, y - 1, 2.7 * eye_scale, eye_height * eye_scale, 245.0)
        canvas.ellipse(eye, y - 1, 1.5 * eye_scale, np.minimum(eye_height, 1.5) * eye_scale, iris)
        canvas.box(eye, y - 5 * scale, 3.2, brow * (1.2 - 0.5 * feminine), hair)
        canvas.ellipse(x + side * 6.5 * scale, y + 5, 2.2, 1.6, (225.0, 90.0, 90.0), alpha=0.75 * freckles)
        canvas.box(x + side * 7 * scale, y + 3, 2.2, 0.6, skin * 0.45, alpha=wrinkles)
        canvas.ellipse(x + side * 12 * scale, y + 6, 1.6, 2.0, (250.0, 215.0, 60.0), alpha=feminine)
    for line in (8.5, 10.5):
        canvas.box(x, y - line * scale, 6.0, 0.55, skin * 0.45, alpha=wrinkles)
    canvas.ellipse(x, y + 4 * scale, nose, 1.6, skin * 0.78)
    canvas.box(x, y + 6.8 * scale, 4.2, 1.1, (40.0, 28.0, 22.0), alpha=1 - feminine)
    canvas.ellipse(x, y + 14 * scale, 7.0, 2.8, (60.0, 44.0, 36.0), alpha=0.8 * (1 - feminine))
    lips = np.where(feminine[:, None] > 0, (205.0, 25.0, 60.0), (150.0, 85.0, 80.0))
    canvas.ellipse(x, y + 9.5 * scale, 3.6, 1.0 + 0.7 * feminine, lips)


def _outfit(canvas: Canvas, x: np.ndarray, y: np.ndarray, scale: np.ndarray, occupations: list[str]) -> None:
    outfits = [_OUTFITS[name] for name in occupations]
    crown, height, brim = (np.array([outfit[i] for outfit in outfits], float) for i in (0, 1, 2))
    colours = [np.array([outfit[i] for outfit in outfits], float) for i in (3, 4, 5)]
    base = y - 12 * scale
    canvas.box(x, base - height / 2, crown * scale, height / 2 + 1, colours[0], alpha=(crown > 0) * 1.0)
    canvas.box(x, base, brim * scale, 1.4, colours[1], alpha=(brim > 0) * 1.0)
    for side in (-1, 1):
        canvas.ellipse(x + side * 4.5, 56.0, 4.5, 2.6, colours[2])


def _blend(low: tuple[float, ...], high: tuple[float, ...], share: np.ndarray) -> np.ndarray:
    return np.asarray(low) + (np.asarray(high) - np.asarray(low)) * share[:, None]
