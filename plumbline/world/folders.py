"""The planted world's datasets, written as the real datasets lie on disk."""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl

from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.world import faces, sources

KINDS = ("fairface", "utkface")
TRUTH_FILE = "planted_truth.csv"

_GENERATORS = ("faces.py", "looks.py", "painting.py", "folders.py", "sources.yaml")
_FAIRFACE_SPLITS = {"train": 700, "val": 2100}
_FAIRFACE_COLUMNS = ("file", "age", "gender", "race", "service_test")
_FAIRFACE_GENDERS = {"man": "Male", "woman": "Female"}
_UTKFACE_SIZE = 1500
_UTKFACE_GENDERS = {"man": 0, "woman": 1}
_UTKFACE_RACES = {
    "White": 0, "Black": 1, "East Asian": 2, "Southeast Asian": 2, "Indian": 3, "Middle Eastern": 4,
    "Latino_Hispanic": 4,
}  # fmt: skip

# What an age group is labelled with: FairFace's bands, UTKFace's years (the last one included).
_BANDS = {
    "child": ("0-2", "3-9"),
    "teenager": ("10-19",),
    "young_adult": ("20-29", "30-39"),
    "middle_aged": ("40-49", "50-59"),
    "elderly": ("60-69", "more than 70"),
}
_YEARS = {
    "child": (0, 12),
    "teenager": (13, 19),
    "young_adult": (20, 35),
    "middle_aged": (36, 60),
    "elderly": (61, 99),
}

# Seventeen digits, year to millisecond, as in the real names.
_FIRST_STAMP = 20170101000000000


@cache
def world_version() -> str:
    """Return ten hex digits that change whenever the generator, its data file or the JPEG encoder changes."""
    import PIL

    package = files("plumbline.world")
    return digest_json([PIL.__version__, *((package / name).read_text("utf-8") for name in _GENERATORS)])[:10]


def ensure(kind: str, base: Path) -> Path:
    """Write a planted dataset folder unless it is there already.

    The folder is ``base/<kind>-<world version>/<kind>``; beside it lies `planted_truth.csv` with each good
    file's true attributes and latents, which no reader sees. It is written under another name and moved into
    place whole, so that two processes may call this at once and a killed one leaves nothing half-made under
    the final name. The same version gives the same bytes.

    ``fairface``: `fairface_label_train.csv` (700 good files), `fairface_label_val.csv` (2,100),
    `train/N.jpg`, `val/N.jpg`. Bad on purpose, all listed in val:

    - `val/9001.jpg` has no bytes
    - `val/9002.jpg` is cut off in the middle
    - `val/9003.jpg` is text
    - `val/9004.jpg` is listed and does not exist
    - `val/9005.jpg` has the unknown race `Martian`
    - `val/9006.jpg` and `val/9007.jpg` are the same bytes with different genders
    - `../outside.jpg` exists and leaves the dataset

    ``utkface``: 1,500 good files `[age]_[gender]_[race]_[date&time].jpg.chip.jpg`. Bad on purpose, by the
    last digits of the date:

    - `…9001` has no bytes
    - `…9002` is cut off in the middle
    - `…9003` is text
    - `…9004` has no race in its name
    - `…9005` has the unknown race 7
    - `…9006` and `…9007` are the same bytes with different genders

    Parameters
    ----------
    kind : str
        `fairface` or `utkface`.
    base : pathlib.Path
        Where planted folders are kept.

    Returns
    -------
    pathlib.Path
        The dataset's root.

    Raises
    ------
    ConfigError
        If there is no such kind.
    """
    if kind not in KINDS:
        raise ConfigError("the planted world has no such dataset", found=kind, expected=", ".join(KINDS))
    final = base / f"{kind}-{world_version()}"
    if not final.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=base))
        try:
            (_write_fairface if kind == "fairface" else _write_utkface)(partial / kind)
            partial.chmod(0o755)
            _move_into_place(partial, final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return final / kind


def bad_files(kind: str) -> dict[str, str]:
    """Return the paths that are bad on purpose, relative to the dataset's root, each with its fault."""
    faults = {
        "9001": "no bytes",
        "9002": "cut off",
        "9003": "text",
        "9004": "missing file" if kind == "fairface" else "malformed name",
        "9005": "unknown race",
        "9006": "same bytes, other gender",
        "9007": "same bytes, other gender",
    }
    if kind == "fairface":
        return {f"val/{number}.jpg": fault for number, fault in faults.items()} | {
            "../outside.jpg": "leaves the root"
        }
    labels = {"9004": "30_0", "9005": "30_0_7", "9007": "30_1_0"}
    return {
        f"{labels.get(number, '30_0_0')}_{_FIRST_STAMP + int(number)}.jpg.chip.jpg": fault
        for number, fault in faults.items()
    }


def _write_fairface(root: Path) -> None:
    rng = np.random.default_rng(sources.seed("auditing", "fairface"))
    truth: list[pl.DataFrame] = []
    for split, n in _FAIRFACE_SPLITS.items():
        attributes = faces.sample_attributes(n, rng)
        ages = [_BANDS[group][rng.integers(len(_BANDS[group]))] for group in attributes["age_group"]]
        paths = [f"{split}/{i + 1}.jpg" for i in range(n)]
        _write_images(root, paths, faces.draw(attributes, rng))
        rows: list[tuple[str, ...]] = [
            (path, age, _FAIRFACE_GENDERS[gender], race, str(bool(rng.integers(2))))
            for path, age, gender, race in zip(paths, ages, attributes["gender"], attributes["race"])
        ]
        if split == "val":
            rows += _write_bad_files(root, "fairface", rng)
        with (root / f"fairface_label_{split}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([_FAIRFACE_COLUMNS, *rows])
        truth.append(attributes.with_columns(path=pl.Series(paths), age=pl.Series(ages)))
    _write_truth(root, pl.concat(truth))


def _write_utkface(root: Path) -> None:
    rng = np.random.default_rng(sources.seed("auditing", "utkface"))
    attributes = faces.sample_attributes(_UTKFACE_SIZE, rng)
    ages = [str(rng.integers(_YEARS[group][0], _YEARS[group][1] + 1)) for group in attributes["age_group"]]
    paths = [
        f"{age}_{_UTKFACE_GENDERS[gender]}_{_UTKFACE_RACES[race]}_{_FIRST_STAMP + i * 10_000}.jpg.chip.jpg"
        for i, (age, gender, race) in enumerate(zip(ages, attributes["gender"], attributes["race"]))
    ]
    _write_images(root, paths, faces.draw(attributes, rng))
    _write_bad_files(root, "utkface", rng)
    _write_truth(
        root, attributes.with_columns(path=pl.Series(paths), age=pl.Series([str(age) for age in ages]))
    )


def _write_bad_files(root: Path, kind: str, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Write the files that `ensure` lists, and return their index rows."""
    drawn = faces.draw(faces.sample_attributes(5, rng), rng)
    cut, unnamed, unknown, twin, outside = (faces.as_jpeg(image) for image in drawn)
    contents = {
        "no bytes": b"",
        "cut off": cut[: len(cut) // 2],
        "text": b"This is not an image.\n",
        "malformed name": unnamed,
        "unknown race": unknown,
        "same bytes, other gender": twin,
        "leaves the root": outside,
    }
    rows: list[tuple[str, ...]] = []
    for path, fault in bad_files(kind).items():
        if fault in contents:
            (root / path).write_bytes(contents[fault])
        gender = "Female" if path.endswith("9007.jpg") else "Male"
        rows.append((path, "20-29", gender, "Martian" if fault == "unknown race" else "White", "False"))
    return rows


def _write_images(root: Path, paths: Iterable[str], images: np.ndarray) -> None:
    for path, image in zip(paths, images):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(faces.as_jpeg(image))


def _write_truth(root: Path, truth: pl.DataFrame) -> None:
    first = ["path", "age"]
    truth.select(*first, pl.exclude(first)).write_csv(root.parent / TRUTH_FILE)


def _move_into_place(partial: Path, final: Path) -> None:
    try:
        os.rename(partial, final)  # noqa: PTH104 - Path.rename says nothing of a folder that is in the way
    except OSError:
        # Another process has put the same content there first.
        if not final.is_dir():
            raise
