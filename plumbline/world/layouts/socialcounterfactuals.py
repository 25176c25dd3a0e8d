"""The planted SocialCounterfactuals as extracted: images beside the metadata of the three subsets.

A set is one person in every pair of attributes. What can be seen: race, gender, occupation, and the words `young`
and `old` (the world's young adults and elderly; all others are middle-aged). `skinny`, `obese` and `tattooed` have
no look: within a set, images that differ only in these differ in a little noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import (
    Layout,
    bad_contents,
    draw_versions,
    sample_labelled,
    write_bad_files,
    write_csv,
    write_images,
)

RACES = {
    "White": "White", "Black": "Black", "Indian": "Indian", "Asian": "East Asian", "Middle Eastern": "Middle Eastern",
    "Latino": "Latino_Hispanic",
}  # fmt: skip
GENDERS = {"male": "man", "female": "woman"}
_AGE_GROUPS = {"young": "young_adult", "old": "elderly"}

# Numbers of the images as in the real metadata.
_SUBSETS = {
    "race_gender": dict(zip(range(12), product(RACES, GENDERS))),
    "physical_gender": {
        start + i: (word, gender)
        for word, start in {"skinny": 10, "young": 12, "obese": 20, "tattooed": 24, "old": 26}.items()
        for i, gender in enumerate(GENDERS)
    },
    "physical_race": {
        start + i: (word, race)
        for word, start in {"skinny": 30, "young": 36, "obese": 60, "tattooed": 72, "old": 78}.items()
        for i, race in enumerate(RACES)
    },
}
_SETS = {"race_gender": 20, "physical_gender": 15, "physical_race": 6}
_OPENINGS = ("", "a picture of ", "a photo of ", "an image of ")
_SAID = {"police": "police officer"}
_FAULTS = dict(enumerate((
    "no bytes", "cut off", "text", "missing file", "unknown race", "same bytes, other gender",
    "same bytes, other gender", "leaves the root",
)))  # fmt: skip
"""Number of the image in the bad set -> what is wrong with it."""


@dataclass(frozen=True)
class CounterfactualSet:
    """One set: who is drawn in it, and what the metadata says of each image.

    Attributes
    ----------
    subset, filename, rank, seed : str, str, int, int
        As in the metadata.
    captions : dict of int to str
        Number of the image to its caption.
    words : list of (str, str)
        The two attribute words of each image.
    attributes : polars.DataFrame
        One row an image.
    images : numpy.ndarray
        uint8, shape (images, 64, 64, 3).
    """

    subset: str
    filename: str
    rank: int
    seed: int
    captions: dict[int, str]
    words: list[tuple[str, str]]
    attributes: pl.DataFrame
    images: np.ndarray

    def path(self, number: int) -> str:
        """Return where the image of a number lies."""
        return f"images/{self.filename}_{self.rank}_{number}_{self.seed}.jpg"

    def truth(self, paths: list[str]) -> pl.DataFrame:
        """Return what is drawn, and in columns `listed_*` what the dataset says of it in its own words."""
        occupation = self.filename.partition(f"{self.subset}_")[2].replace("_", " ")
        bodies = {word: word for pair in self.words for word in pair if word not in {*RACES, *GENDERS}}
        listed = {"race": {race: race for race in RACES}, "gender": GENDERS, "physical": bodies}
        columns = [
            pl.Series(f"listed_{name}", [_of(words, pair) for pair in self.words], pl.String)
            for name, words in listed.items()
        ]
        return self.attributes.with_columns(
            pl.Series("path", paths),
            pl.lit(self.subset).alias("subset"),
            *columns,
            pl.lit(occupation).alias("listed_occupation"),
        )


def _of(words: Mapping[str, str], pair: tuple[str, str]) -> str | None:
    """Return what the first of two words that is known stands for."""
    return next((words[word] for word in pair if word in words), None)


def draw_sets(subset: str, count: int, rng: np.random.Generator) -> Iterator[CounterfactualSet]:
    """Draw a number of sets; occupations and the openings of captions take turns."""
    pairs = _SUBSETS[subset]
    for position in range(count):
        occupation = faces.OCCUPATIONS[position % len(faces.OCCUPATIONS)]
        said, opening = _SAID.get(occupation, occupation), _OPENINGS[position % len(_OPENINGS)]
        attributes = _attributes(list(pairs.values()), occupation, rng)
        yield CounterfactualSet(
            subset=subset,
            filename=f"{opening}{subset} {said}".replace(" ", "_"),
            rank=position // len(faces.OCCUPATIONS),
            seed=1_000_000_000 + int(rng.integers(3_000_000_000)),
            captions={number: _caption(opening, *pair, said) for number, pair in pairs.items()},
            words=list(pairs.values()),
            attributes=attributes,
            images=draw_versions(attributes, rng),
        )


def _caption(opening: str, first: str, second: str, occupation: str) -> str:
    article = "an" if first[0] in "AIOaio" else "a"
    return f"{opening[:1].upper()}{opening[1:]}{article} {first} {second} {occupation}"


def _attributes(pairs: list[tuple[str, str]], occupation: str, rng: np.random.Generator) -> pl.DataFrame:
    person = faces.sample_attributes(1, rng)
    race = str(rng.choice(list(RACES.values())))
    gender = str(rng.choice(list(GENDERS.values())))
    labelled = sample_labelled(
        len(pairs),
        rng,
        race=[_of(RACES, pair) or race for pair in pairs],
        gender=[_of(GENDERS, pair) or gender for pair in pairs],
        age_group=[_AGE_GROUPS.get(pair[0], "middle_aged") for pair in pairs],
        occupation=[occupation] * len(pairs),
    )
    return labelled.with_columns(pl.lit(person[latent].item()).alias(latent) for latent in faces.LATENTS)


_BAD_FILENAME, _BAD_RANK, _BAD_SEED = "race_gender_librarian", 7, 4_000_000_001
_BAD = {f"images/{_BAD_FILENAME}_{_BAD_RANK}_{number}_{_BAD_SEED}.jpg": fault for number, fault in _FAULTS.items()}


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    truth = []
    for subset, count in _SETS.items():
        sets = list(draw_sets(subset, count, rng))
        rows = [_row(drawn) for drawn in sets]
        truth += [_write_set(root, drawn, list(drawn.captions)) for drawn in sets]
        if subset == "race_gender":
            row, good = _write_bad_set(root, rng)
            rows.append(row)
            truth.append(good)
        header = ["seed", "p2p_threshold", "cfg_scale", "filename", "rank"]
        header += [f"caption_{number}" for number in _SUBSETS[subset]]
        write_csv(root / f"metadata_{subset}.csv", [header, *rows])
    return pl.concat(truth)


def _row(drawn: CounterfactualSet) -> list[object]:
    return [drawn.seed, 0.5, 10.0, drawn.filename, drawn.rank, *drawn.captions.values()]


def _write_set(root: Path, drawn: CounterfactualSet, numbers: list[int]) -> pl.DataFrame:
    paths = [drawn.path(number) for number in drawn.captions]
    kept = [position for position, number in enumerate(drawn.captions) if number in numbers]
    write_images(root, [paths[i] for i in kept], drawn.images[kept])
    return drawn.truth(paths)[kept]


def _write_bad_set(root: Path, rng: np.random.Generator) -> tuple[list[object], pl.DataFrame]:
    captions = {
        number: _caption("", "Martian" if _FAULTS.get(number) == "unknown race" else race, gender, "librarian")
        for number, (race, gender) in _SUBSETS["race_gender"].items()
    }
    (other,) = draw_sets("race_gender", 1, rng)
    drawn = replace(other, filename=_BAD_FILENAME, rank=_BAD_RANK, seed=_BAD_SEED, captions=captions)
    truth = _write_set(root, drawn, [number for number in drawn.captions if number not in _FAULTS])
    contents = bad_contents(rng)
    (root.parent / "outside.jpg").write_bytes(contents.pop("leaves the root"))
    write_bad_files(root, _BAD, contents)
    (link,) = (path for path, fault in _BAD.items() if fault == "leaves the root")
    (root / link).symlink_to("../../outside.jpg")
    return _row(drawn), truth


LAYOUT = Layout("socialcounterfactuals", _draw, _BAD)
"""574 good files: 20, 15 and 6 whole sets, and four of a set whose other images are bad."""
