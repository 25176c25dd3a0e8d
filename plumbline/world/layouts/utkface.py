"""The planted UTKFace: one folder whose file names are the index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import Layout, bad_contents, draw_years, write_bad_files, write_images

_SIZE = 1500
_GENDERS = {"man": 0, "woman": 1}
_RACES = {
    "White": 0, "Black": 1, "East Asian": 2, "Southeast Asian": 2, "Indian": 3, "Middle Eastern": 4,
    "Latino_Hispanic": 4,
}  # fmt: skip

# Seventeen digits, year to millisecond, as in the real names.
_FIRST_STAMP = 20170101000000000


def _bad(labels: str, number: int) -> str:
    return f"{labels}_{_FIRST_STAMP + number}.jpg.chip.jpg"


_BAD = {
    _bad("30_0_0", 9001): "no bytes",
    _bad("30_0_0", 9002): "cut off",
    _bad("30_0_0", 9003): "text",
    _bad("30_0", 9004): "malformed name",
    _bad("30_0_7", 9005): "unknown race",
    _bad("30_0_0", 9006): "same bytes, other gender",
    _bad("30_1_0", 9007): "same bytes, other gender",
}


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    attributes = faces.sample_attributes(_SIZE, rng)
    ages = draw_years(attributes, rng)
    paths = [
        f"{age}_{_GENDERS[gender]}_{_RACES[race]}_{_FIRST_STAMP + i * 10_000}.jpg.chip.jpg"
        for i, (age, gender, race) in enumerate(zip(ages, attributes["gender"], attributes["race"]))
    ]
    write_images(root, paths, faces.draw(attributes, rng))
    write_bad_files(root, _BAD, bad_contents(rng))
    return attributes.with_columns(path=pl.Series(paths), age=pl.Series(ages))


LAYOUT = Layout("utkface", _draw, _BAD)
"""1,500 good files `[age]_[gender]_[race]_[date&time].jpg.chip.jpg`."""
