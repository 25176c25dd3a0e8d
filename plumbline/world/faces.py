"""Procedural 64-pixel faces, drawn from explicit attributes: soft-edged shapes painted onto many images at once."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.world.sources import ambiguous_gender, world_data


class Canvas:
    """A stack of square RGB images that take the same shapes, each with its own place, size and colour.

    Every coordinate, half width and colour is a scalar or one value an image; lengths are in pixels.

    Parameters
    ----------
    n : int
        Number of images.
    size : int
        Height and width.
    fill : array-like
        Background colour, shape (n, 3), 0 to 255.
    """

    def __init__(self, n: int, size: int, *, fill: ArrayLike) -> None:
        self._n = n
        self._axis = np.arange(size, dtype=np.float32) + np.float32(0.5)
        self._image = np.empty((n, 3, size, size), np.float32)
        self._image[:] = np.asarray(fill, np.float32).reshape(n, 3, 1, 1)

    def ellipse(
        self, x: ArrayLike, y: ArrayLike, rx: ArrayLike, ry: ArrayLike, colour: ArrayLike, *, alpha: ArrayLike = 1.0
    ) -> None:
        """Paint an ellipse with the given centre and half axes."""
        rx, ry = np.maximum(self._column(rx), 0.1), np.maximum(self._column(ry), 0.1)
        short = np.minimum(rx, ry)
        soft = 1 + np.float32(0.5) / short
        columns, across = self._window(x, rx * soft)
        rows, down = self._window(y, ry * soft)
        distance = np.sqrt(((across / rx) ** 2)[:, None, :] + ((down / ry) ** 2)[:, :, None])
        # In pixels along the shorter half axis: exact for a circle, close enough for a soft edge.
        cover = np.clip((1 - distance) * short[:, :, None] + 0.5, 0, 1)
        self._paint(rows, columns, cover, colour, alpha)

    def box(
        self, x: ArrayLike, y: ArrayLike, rx: ArrayLike, ry: ArrayLike, colour: ArrayLike, *, alpha: ArrayLike = 1.0
    ) -> None:
        """Paint an upright rectangle with the given centre, half width and half height."""
        rx, ry = self._column(rx), self._column(ry)
        columns, across = self._window(x, rx + np.float32(0.5))
        rows, down = self._window(y, ry + np.float32(0.5))
        wide = np.clip(rx - np.abs(across) + 0.5, 0, 1)
        high = np.clip(ry - np.abs(down) + 0.5, 0, 1)
        self._paint(rows, columns, wide[:, None, :] * high[:, :, None], colour, alpha)

    def pixels(self, rng: np.random.Generator, *, noise: float, alike: bool = False) -> np.ndarray:
        """Return the images with normal pixel noise added.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of the noise.
        noise : float
            Its standard deviation, in grey levels.
        alike : bool
            Whether all images get the same noise.

        Returns
        -------
        numpy.ndarray
            uint8, shape (n, size, size, 3), RGB.
        """
        shape = (1 if alike else self._n, *self._image.shape[1:])
        noisy = self._image + rng.standard_normal(shape, np.float32) * np.float32(noise)
        return np.ascontiguousarray(np.clip(np.rint(noisy), 0, 255).astype(np.uint8).transpose(0, 2, 3, 1))

    def _column(self, value: ArrayLike) -> NDArray[np.float32]:
        return np.broadcast_to(np.asarray(value, np.float32).reshape(-1, 1), (self._n, 1))

    def _window(self, centre: ArrayLike, reach: NDArray[np.floating]) -> tuple[slice, NDArray[np.float32]]:
        """Return the pixels of one axis that a shape may reach in any image, and how far each is from its centre."""
        middle = self._column(centre)
        if not self._n:
            return slice(0, 0), self._axis[:0] - middle
        first = int(np.floor((middle - reach).min())) - 1
        last = int(np.ceil((middle + reach).max())) + 1
        window = slice(*np.clip((first, last), 0, len(self._axis)).tolist())
        return window, self._axis[window] - middle

    def _paint(self, rows: slice, columns: slice, cover: np.ndarray, colour: ArrayLike, alpha: ArrayLike) -> None:
        ink = np.asarray(colour, np.float32)
        ink = np.full((1, 3), ink) if ink.ndim == 0 else ink.reshape(-1, 3)
        mask = (cover * self._column(alpha)[:, :, None])[:, None]
        part = self._image[:, :, rows, columns]
        part += mask * (ink[:, :, None, None] - part)


# --- Faces

_LOOKS = world_data("looks.yaml")

SIZE = 64
RACES: tuple[str, ...] = tuple(_LOOKS["races"])
GENDERS = ("man", "woman")
AGE_GROUPS: tuple[str, ...] = tuple(_LOOKS["age_groups"])
OCCUPATIONS: tuple[str, ...] = tuple(_LOOKS["occupations"])
LATENTS = ("u", "v", "w")

# Drawing 64 x 64 float32 masks for this many faces at a time stays inside the processor's cache.
_BLOCK = 128

_GREY_HAIR = (200.0, 200.0, 205.0)
_DARK, _BRIGHT = (45.0, 48.0, 55.0), (235.0, 238.0, 245.0)
_SHIRTS = (25.0, 55.0, 165.0), (240.0, 150.0, 35.0)
_CURTAINS = (35.0, 150.0, 60.0), (170.0, 40.0, 170.0)


def sample_attributes(n: int, rng: np.random.Generator) -> pl.DataFrame:
    """Draw the attributes of `n` faces, all independent and uniform.

    Parameters
    ----------
    n : int
        Number of faces.
    rng : numpy.random.Generator
        Source of every draw.

    Returns
    -------
    polars.DataFrame
        `race`, `gender`, `age_group`, `occupation` (String); `u`, `v`, `w` (Float64 in [0, 1)); `ambiguous`
        (Boolean: shows no sign of its gender, true for a share of one race, see `sources.yaml`).
    """
    race = rng.choice(RACES, n)
    columns: dict[str, np.ndarray] = {
        "race": race,
        "gender": rng.choice(GENDERS, n),
        "age_group": rng.choice(AGE_GROUPS, n),
        "occupation": rng.choice(OCCUPATIONS, n),
    }
    columns |= {latent: rng.random(n) for latent in LATENTS}
    group = ambiguous_gender()
    columns["ambiguous"] = (race == group.race) & (rng.random(n) < group.rate)
    return pl.DataFrame(columns)


def draw(attributes: pl.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Draw faces.

    The latents are background brightness (`u`), shirt colour (`v`) and curtain colour (`w`). Position, skin,
    hair and pixels carry a small jitter.

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


def draw_one_person(attributes: pl.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Draw faces as `draw` does, all with the same jitter: of one person in several versions."""
    return _draw_block(attributes, rng, one_person=True)


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


def as_jpeg(image: np.ndarray) -> bytes:
    """Return one image, uint8 (64, 64, 3), as the bytes of a JPEG file of quality 95."""
    from PIL import Image

    buffer = BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def _draw_block(attributes: pl.DataFrame, rng: np.random.Generator, *, one_person: bool = False) -> np.ndarray:
    u, v, w = (attributes[name].to_numpy() for name in LATENTS)
    look = _appearance(attributes, rng, one_person=one_person)
    x, y, scale, feminine = look.x, look.y, look.scale, look.feminine
    canvas = Canvas(len(attributes), SIZE, fill=_blend(_DARK, _BRIGHT, u))
    for edge in (2.0, SIZE - 2.0):
        canvas.box(edge, 32.0, 3.5, 40.0, _blend(*_CURTAINS, w))
    long_hair = (14 * scale + 1) * (0.5 + 0.5 * feminine)
    canvas.box(x, y + 6 * scale, long_hair, 16.0 * scale, look.hair, alpha=feminine)
    canvas.ellipse(32.0, 69.0, 27.0, 17.0, _blend(*_SHIRTS, v))
    canvas.box(x, y + 16 * scale, 5.0, 5.0, look.skin * 0.9)
    canvas.ellipse(x, y - 3 * scale, 13.5 * scale, 15 * scale, look.hair)
    canvas.ellipse(x, y, 12 * scale, 15 * scale, look.skin)
    _paint_features(canvas, look)
    _paint_outfit(canvas, look, attributes["occupation"])
    return canvas.pixels(rng, noise=4.0, alike=one_person)


def _appearance(attributes: pl.DataFrame, rng: np.random.Generator, *, one_person: bool) -> SimpleNamespace:
    """Turn attributes into the numbers that n faces are painted with, shapes (n,) and, for colours, (n, 3).

    They are those of `looks.yaml` for race and age group with the jitter added, of which one person has one; the
    centre (`x`, `y`) of the head; and `feminine`: 0 for a man, 1 for a woman, 0.5 for no sign of a gender.
    """
    n = 1 if one_person else len(attributes)
    look = SimpleNamespace(**_looks("races", attributes["race"]), **_looks("age_groups", attributes["age_group"]))
    look.feminine = np.where(attributes["gender"].to_numpy() == "woman", 1.0, 0.0)
    look.feminine[attributes["ambiguous"].to_numpy()] = 0.5
    look.brow_colour = look.hair
    look.skin = look.skin + rng.normal(0, 3, (n, 3))
    hair, grey = look.hair + rng.normal(0, 4, (n, 3)), look.grey[:, None]
    look.hair = hair * (1 - grey) + np.array(_GREY_HAIR) * grey
    look.x, look.y = 32 + rng.normal(0, 1.2, n), 31 + rng.normal(0, 1.0, n)
    look.scale = look.scale * (1 + rng.normal(0, 0.02, n))
    return look


def _looks(kind: str, values: Iterable[str]) -> dict[str, np.ndarray]:
    """Return the numbers of `looks.yaml`, one row a face, float64."""
    rows = [_LOOKS[kind][value] for value in values]
    return {name: np.array([row[name] for row in rows], float) for name in rows[0]}


def _paint_features(canvas: Canvas, look: SimpleNamespace) -> None:
    x, y, scale, feminine = look.x, look.y, look.scale, look.feminine
    line = look.skin * 0.45
    for side in (-1, 1):
        eye = x + side * 5 * scale
        canvas.ellipse(eye, y - 1, 2.7 * look.eyes, look.eye_height * look.eyes, 245.0)
        canvas.ellipse(eye, y - 1, 1.5 * look.eyes, np.minimum(look.eye_height, 1.5) * look.eyes, look.iris)
        canvas.box(eye, y - 5 * scale, 3.2, look.brow * (1.2 - 0.5 * feminine), look.brow_colour)
        canvas.ellipse(x + side * 6.5 * scale, y + 5, 2.2, 1.6, (225.0, 90.0, 90.0), alpha=0.75 * look.freckles)
        canvas.box(x + side * 7 * scale, y + 3, 2.2, 0.6, line, alpha=look.wrinkles)
        canvas.ellipse(x + side * 12 * scale, y + 6, 1.6, 2.0, (250.0, 215.0, 60.0), alpha=feminine)
    for height in (8.5, 10.5):
        canvas.box(x, y - height * scale, 6.0, 0.55, line, alpha=look.wrinkles)
    canvas.ellipse(x, y + 4 * scale, look.nose, 1.6, look.skin * 0.78)
    canvas.box(x, y + 6.8 * scale, 4.2, 1.1, (40.0, 28.0, 22.0), alpha=1 - feminine)
    canvas.ellipse(x, y + 14 * scale, 7.0, 2.8, (60.0, 44.0, 36.0), alpha=0.8 * (1 - feminine))
    lips = np.where(feminine[:, None] > 0, (205.0, 25.0, 60.0), (150.0, 85.0, 80.0))
    canvas.ellipse(x, y + 9.5 * scale, 3.6, 1.0 + 0.7 * feminine, lips)


def _paint_outfit(canvas: Canvas, look: SimpleNamespace, occupations: Iterable[str]) -> None:
    outfit = SimpleNamespace(**_looks("occupations", occupations))
    x, base, height = look.x, look.y - 12 * look.scale, outfit.height / 2
    has_crown, has_brim = (outfit.crown > 0) * 1.0, (outfit.brim > 0) * 1.0
    canvas.box(x, base - height, outfit.crown * look.scale, height + 1, outfit.crown_colour, alpha=has_crown)
    canvas.box(x, base, outfit.brim * look.scale, 1.4, outfit.brim_colour, alpha=has_brim)
    for side in (-1, 1):
        canvas.ellipse(x + side * 4.5, 56.0, 4.5, 2.6, outfit.collar)


def _blend(low: tuple[float, ...], high: tuple[float, ...], share: np.ndarray) -> np.ndarray:
    return np.asarray(low) + (np.asarray(high) - np.asarray(low)) * share[:, None]
