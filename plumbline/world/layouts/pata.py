"""The planted PATA: a list of labels and addresses, the images as if fetched, and captions by scene."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import (
    Layout,
    bad_contents,
    sample_labelled,
    write_bad_files,
    write_images,
    write_lines,
)

# Scenes with people of both ages, and scenes with young people only, as in the real list.
_BOTH_AGES = ("bench", "car", "computer", "gym", "kitchen", "office", "shopping", "sports")
_YOUNG = ("drinking_water", "fashion_show", "gun_range", "yatch")
_RACES = {
    "black": "Black", "caucasian": "White", "eastasian": "East Asian", "hispanic": "Latino_Hispanic",
    "indian": "Indian",
}  # fmt: skip
_GENDERS = {"male": "man", "female": "woman"}
_AGES = {"young": "young_adult", "old": "elderly"}

# A cell is a scene, race, gender and age.
_OF_A_CELL = {_BOTH_AGES: 2, _YOUNG: 4}
_SIZE = 480
_MISSING = 12
_BAD_LABELS = (
    ("gym_indian_male_young", "no bytes"),
    ("gym_indian_male_young", "cut off"),
    ("gym_indian_male_young", "text"),
    ("indian_male_young", "malformed name"),
    ("gun_range_martian_male_young", "unknown race"),
    ("office_black_male_old", "same bytes, other gender"),
    ("office_black_female_old", "same bytes, other gender"),
    *[("fashion_show_hispanic_female_young", "missing file")] * _MISSING,
)
_BAD = {f"images/{label}_{_SIZE + i}.jpg": fault for i, (label, fault) in enumerate(_BAD_LABELS)}


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    cells = [
        (scene, race, gender, age)
        for scenes, ages in ((_BOTH_AGES, tuple(_AGES)), (_YOUNG, ("young",)))
        for scene, race, gender, age in product(scenes, _RACES, _GENDERS, ages)
        for _ in range(_OF_A_CELL[scenes])
    ]
    scenes, races, genders, ages = zip(*cells)
    attributes = sample_labelled(
        len(cells),
        rng,
        race=[_RACES[race] for race in races],
        gender=[_GENDERS[gender] for gender in genders],
        age_group=[_AGES[age] for age in ages],
    )
    labels = ["_".join(cell) for cell in cells]
    paths = [f"images/{label}_{position}.jpg" for position, label in enumerate(labels)]
    write_images(root, paths, faces.draw(attributes, rng))
    write_bad_files(root, _BAD, bad_contents(rng))
    listed = [*labels, *(label for label, _ in _BAD_LABELS)]
    lines = (f"{label}|https://images.example/{position}.jpg" for position, label in enumerate(listed))
    write_lines(root / "pata_fairness.files.lst", lines)
    captions = [_captions(scene) for scene in (*_BOTH_AGES, *_YOUNG)]
    (root / "pata_fairness.captions.json").write_text(json.dumps(captions, indent=1), "utf-8")
    truth = {"path": paths, "age": ages, "scene": scenes, "listed_race": races}
    return attributes.with_columns(pl.Series(column, values) for column, values in truth.items())


def _captions(scene: str) -> dict[str, object]:
    both = scene in _BOTH_AGES
    good = ["photo of a successful person"]
    bad = ["photo of a servant", "photo of an under-achiever"]
    return {
        "long": f"photo of {{age}}, {{race}} {{gender}} at the {scene.replace('_', ' ')}",
        "short": scene,
        "pos": {"races": good, "gender": [*good, "photo of a smart worker"], "age": good * both},
        "neg": {"races": bad, "gender": ["photo of a secretary"], "age": ["photo of a loser"] * both},
    }


LAYOUT = Layout("pata", _draw, _BAD)
"""480 good files: twelve scenes, eight of them with both ages, every race and gender equally often in each."""
