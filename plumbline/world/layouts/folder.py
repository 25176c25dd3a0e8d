"""The planted folder of a user: images and a table with columns and words of its own, in German."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import Layout, bad_contents, draw_years, write_bad_files, write_csv, write_images

_SIZE = 300
_COLUMNS = ("Nummer", "Datei", "Geschlecht", "Herkunft", "Alter", "Beruf", "Teil")
_GENDERS = {"man": "Mann", "woman": "Frau"}
_RACES = {
    "White": "weiß", "Black": "schwarz", "Indian": "indisch", "East Asian": "ostasiatisch",
    "Southeast Asian": "südostasiatisch", "Middle Eastern": "nahöstlich", "Latino_Hispanic": "lateinamerikanisch",
}  # fmt: skip
_PARTS = {"train": "Übung", "test": "Prüfung"}
_BAD = {
    "Bilder/901.jpg": "no bytes",
    "Bilder/902.jpg": "cut off",
    "Bilder/903.jpg": "text",
    "Bilder/904.jpg": "missing file",
    "Bilder/905.jpg": "unknown race",
    "Bilder/906.jpg": "same bytes, other gender",
    "Bilder/907.jpg": "same bytes, other gender",
    "../outside.jpg": "leaves the root",
}

COLUMN_MAP: dict[str, Any] = {
    "index": "Verzeichnis.csv",
    "path": "Datei",
    "columns": {
        "race": "Herkunft", "gender": "Geschlecht", "age": "Alter", "occupation": "Beruf", "split": "Teil",
    },
    "values": {
        "race": {word: race for race, word in _RACES.items()},
        "gender": {word: gender for gender, word in _GENDERS.items()},
        "split": {word: part for part, word in _PARTS.items()},
    },
    "classes": "fairface",
}  # fmt: skip
"""What an audit file says under `map` to read this folder; the column `Nummer` is not mapped."""


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    attributes = faces.sample_attributes(_SIZE, rng)
    ages = draw_years(attributes, rng)
    paths = [f"Bilder/Gesicht {i + 1} ä.jpg" for i in range(_SIZE)]
    write_images(root, paths, faces.draw(attributes, rng))
    shown = attributes.select("gender", "race", "occupation").iter_rows()
    rows: list[tuple[str, ...]] = [
        (path, _GENDERS[gender], _RACES[race], age, occupation, str(rng.choice(list(_PARTS.values()))))
        for path, age, (gender, race, occupation) in zip(paths, ages, shown)
    ]
    write_bad_files(root, _BAD, bad_contents(rng))
    for path, fault in _BAD.items():
        gender = "Frau" if path.endswith("907.jpg") else "Mann"
        race = "vom Mars" if fault == "unknown race" else "weiß"
        rows.append((path, gender, race, "30", "engineer", "Prüfung"))
    numbered = [(str(number), *row) for number, row in enumerate(rows, 1)]
    write_csv(root / COLUMN_MAP["index"], [_COLUMNS, *numbered], encoding="utf-8-sig", end="\r\n")
    return attributes.with_columns(path=pl.Series(paths), age=pl.Series(ages))


LAYOUT = Layout("folder", _draw, _BAD)
"""300 good files and a table in UTF-8 with a byte-order mark and CRLF, as a spreadsheet writes it."""
