"""The planted FairFace: two label files beside the folders `train` and `val`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import Layout, bad_contents, write_bad_files, write_csv, write_images

_SPLITS = {"train": 700, "val": 2100}
_COLUMNS = ("file", "age", "gender", "race", "service_test")
_GENDERS = {"man": "Male", "woman": "Female"}
_BANDS = {
    "child": ("0-2", "3-9"),
    "teenager": ("10-19",),
    "young_adult": ("20-29", "30-39"),
    "middle_aged": ("40-49", "50-59"),
    "elderly": ("60-69", "more than 70"),
}
_BAD = {
    "val/9001.jpg": "no bytes",
    "val/9002.jpg": "cut off",
    "val/9003.jpg": "text",
    "val/9004.jpg": "missing file",
    "val/9005.jpg": "unknown race",
    "val/9006.jpg": "same bytes, other gender",
    "val/9007.jpg": "same bytes, other gender",
    "../outside.jpg": "leaves the root",
}


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    truth: list[pl.DataFrame] = []
    for split, n in _SPLITS.items():
        attributes = faces.sample_attributes(n, rng)
        ages = [_BANDS[group][rng.integers(len(_BANDS[group]))] for group in attributes["age_group"]]
        paths = [f"{split}/{i + 1}.jpg" for i in range(n)]
        write_images(root, paths, faces.draw(attributes, rng))
        rows: list[tuple[str, ...]] = [
            (path, age, _GENDERS[gender], race, str(bool(rng.integers(2))))
            for path, age, gender, race in zip(paths, ages, attributes["gender"], attributes["race"])
        ]
        if split == "val":
            write_bad_files(root, _BAD, bad_contents(rng))
            rows += [_bad_row(path, fault) for path, fault in _BAD.items()]
        write_csv(root / f"fairface_label_{split}.csv", [_COLUMNS, *rows])
        truth.append(attributes.with_columns(path=pl.Series(paths), age=pl.Series(ages)))
    return pl.concat(truth)


def _bad_row(path: str, fault: str) -> tuple[str, ...]:
    gender = "Female" if path.endswith("9007.jpg") else "Male"
    return path, "20-29", gender, "Martian" if fault == "unknown race" else "White", "False"


LAYOUT = Layout("fairface", _draw, _BAD)
"""700 good files in train, 2,100 in val; all bad files are listed in val. `../outside.jpg` exists."""
