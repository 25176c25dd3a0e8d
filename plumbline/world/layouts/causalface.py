"""The planted CausalFace: a folder a dimension, a folder a seed, and names that say who and how far.

What can be seen of the four dimensions: age as the world's age groups, two levels each; lighting as the brightness
of the whole picture; pose as a step of the whole picture to the side; smiling as a line that bends below the nose.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import Layout, draw_versions, faulty, put, sample_labelled, write_bad_files

_SEEDS = (47180, 57460, 61233, 80125)
_RACES = {"asian": "East Asian", "black": "Black", "white": "White"}
_GENDERS = {"female": "woman", "male": "man"}
_AGE_GROUPS = tuple(age for age in faces.AGE_GROUPS for _ in range(2))


class _Dimension(NamedTuple):
    """What its files are marked with, what follows the level in their names, and the levels as written there."""

    mark: str
    end: str
    levels: tuple[str, ...]


_DIMENSIONS = {
    "age": _Dimension("age", "_o2", ("0.8", "1.4", "2.0", "2.3", "2.6", "2.9", "3.2", "3.5", "3.8", "4.4")),
    "lighting": _Dimension("l", "", ("-1", "0", "1", "2", "3", "4", "5", "6")),
    "pose": _Dimension("y", "", ("-3.0", "-1.5", "0.0", "1.5", "3.0")),
    "smiling": _Dimension("smiling", "_o2", ("-2.5", "-1.5", "-0.5", "0", "0.5", "1", "1.5", "2", "3", "4")),
}
_BAD = {
    f"final_picked_age/seed_90001/{name}_o2.png": fault
    for name, fault in (
        ("asian_male_age_2.0", "no bytes"),
        ("asian_male_age_2.3", "cut off"),
        ("asian_male_age_2.6", "text"),
        ("asian_age_2.0", "malformed name"),
        ("martian_male_age_2.0", "unknown race"),
        ("asian_female_age_2.9", "same bytes, other gender"),
        ("asian_male_age_2.9", "same bytes, other gender"),
        ("asian_male_age_3.2", "leaves the root"),
    )
}


class _Version(NamedTuple):
    """One picture of a person; its index in the order of the levels."""

    race: str
    gender: str
    dimension: str
    step: int

    def path(self, seed: int) -> str:
        mark, end, levels = _DIMENSIONS[self.dimension]
        name = f"{self.race}_{self.gender}_{mark}_{levels[self.step]}{end}.png"
        return f"final_picked_{self.dimension}/seed_{seed}/{name}"

    @property
    def level(self) -> float:
        return float(_DIMENSIONS[self.dimension].levels[self.step])

    @property
    def age_group(self) -> str:
        return _AGE_GROUPS[self.step] if self.dimension == "age" else "young_adult"


def _versions() -> Iterator[_Version]:
    for race, gender, (dimension, about) in product(_RACES, _GENDERS, _DIMENSIONS.items()):
        yield from (_Version(race, gender, dimension, step) for step in range(len(about.levels)))


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    versions = list(_versions())
    truth = []
    for seed in _SEEDS:
        attributes = _one_person(versions, rng)
        images = draw_versions(attributes, rng)
        paths = [version.path(seed) for version in versions]
        for path, image, version in zip(paths, images, versions):
            put(root / path, _as_png(_varied(image, version)))
        truth.append(
            attributes.with_columns(
                path=pl.Series(paths),
                listed_race=pl.col("race").replace("East Asian", "Asian"),
                seed=pl.lit(seed),
                dimension=pl.Series([version.dimension for version in versions]),
                level=pl.Series([version.level for version in versions]),
            )
        )
    _write_bad_files(root, rng)
    return pl.concat(truth)


def _one_person(versions: list[_Version], rng: np.random.Generator) -> pl.DataFrame:
    labelled = sample_labelled(
        len(versions),
        rng,
        race=[_RACES[version.race] for version in versions],
        gender=[_GENDERS[version.gender] for version in versions],
        age_group=[version.age_group for version in versions],
    )
    # Nothing but the labels differs between the versions of one person.
    return labelled.with_columns(pl.col("occupation", *faces.LATENTS).first())


def _varied(image: np.ndarray, version: _Version) -> np.ndarray:
    if version.dimension == "lighting":
        return np.clip(image * (0.8 + 0.07 * version.level), 0, 255).astype(np.uint8)
    if version.dimension == "pose":
        return np.roll(image, round(2 * version.level), axis=1)
    if version.dimension == "smiling":
        across = np.arange(-6, 7)
        down = 42 - np.rint(version.level * (across / 6) ** 2).astype(int)
        smiled = image.copy()
        smiled[down, 32 + across] = (40, 20, 20)
        return smiled
    return image


def _write_bad_files(root: Path, rng: np.random.Generator) -> None:
    drawn = (*faces.draw(faces.sample_attributes(4, rng), rng), *faces.draw(faces.sample_attributes(1, rng), rng))
    contents = faulty(*(_as_png(image) for image in drawn))
    outside = root.parent / "outside.png"
    outside.write_bytes(contents.pop("leaves the root"))
    write_bad_files(root, _BAD, contents)
    (link,) = (path for path, fault in _BAD.items() if fault == "leaves the root")
    (root / link).symlink_to(Path("../../..") / outside.name)


def _as_png(image: np.ndarray) -> bytes:
    from PIL import Image

    buffer = BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


LAYOUT = Layout("causalface", _draw, _BAD)
"""792 good files: four seeds, six groups, 33 values. `../outside.png` exists, and a link leads to it."""
