"""How the datasets of single faces lie on disk in the planted world, and what all its datasets share.

Words of the datasets and their bad files are in `layouts.yaml`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.sources import world_data

# What an age group is labelled with in years, the last one included.
_YEARS = {"child": (0, 12), "teenager": (13, 19), "young_adult": (20, 35), "middle_aged": (36, 60), "elderly": (61, 99)}


def entry(kind: str) -> dict[str, Any]:
    """Return what `layouts.yaml` says of a kind of dataset."""
    content: dict[str, Any] = world_data("layouts.yaml")[kind]
    return content


def bad_files(kind: str) -> dict[str, str]:
    """Return the paths that are bad on purpose, relative to the dataset's root, each with its fault."""
    return dict(entry(kind)["bad"])


def fairface(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write FairFace: folders `train` and `val`, and a label file for each."""
    words, truth = entry("fairface")["words"], []
    for split, n in entry("fairface")["splits"].items():
        attributes = faces.sample_attributes(n, rng)
        bands = [words["age_group"][group] for group in attributes["age_group"]]
        ages = [band[rng.integers(len(band))] for band in bands]
        paths = [f"{split}/{i + 1}.jpg" for i in range(n)]
        truth.append(write_faces(root, paths, attributes, rng).with_columns(age=pl.Series(ages)))
        rows = [
            (path, age, words["gender"][gender], race, str(bool(rng.integers(2))))
            for path, age, gender, race in truth[-1].select("path", "age", "gender", "race").iter_rows()
        ]
        if split == "val":
            for path, fault in write_bad_files(root, "fairface", bad_contents(rng)).items():
                gender = "Female" if path.endswith("9007.jpg") else "Male"
                rows.append((path, "20-29", gender, "Martian" if fault == "unknown race" else "White", "False"))
        write_csv(root / f"fairface_label_{split}.csv", [("file", "age", "gender", "race", "service_test"), *rows])
    return pl.concat(truth)


def utkface(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write UTKFace: one folder whose file names are the index."""
    words = entry("utkface")["words"]
    attributes = faces.sample_attributes(1500, rng)
    attributes = attributes.with_columns(age=_draw_years(attributes, rng))
    paths = [
        f"{age}_{words['gender'][gender]}_{words['race'][race]}_{20170101000000000 + i * 10_000}.jpg.chip.jpg"
        for i, (age, gender, race) in enumerate(attributes.select("age", "gender", "race").iter_rows())
    ]
    truth = write_faces(root, paths, attributes, rng)
    write_bad_files(root, "utkface", bad_contents(rng))
    return truth


def celeba(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write CelebA: attributes and partition as text files beside the aligned faces."""
    names, n = entry("celeba")["names"], 400
    paths = [f"img_align_celeba/{number:06}.jpg" for number in range(1, n + 1)]
    truth = write_faces(root, paths, faces.sample_attributes(n, rng), rng)
    bad = write_bad_files(root, "celeba", bad_contents(rng))
    is_male = {path: not path.endswith("907.jpg") for path in bad}
    is_male = {path: gender == "man" for path, gender in truth.select("path", "gender").iter_rows()} | is_male
    lines, parts = [], []
    for i, (path, male) in enumerate(is_male.items()):
        signs = rng.choice([-1, 1], len(names))
        signs[names.index("Male")] = 1 if male else -1
        name = path.removeprefix("img_align_celeba/")
        # Each sign takes three places, so that -1 and 1 stand below each other.
        lines.append(name + "".join(f"{sign:3}" for sign in signs))
        # The first four fifths are 0, train; a tenth each is 1, val, and 2, test.
        if bad.get(path) != "no partition":
            parts.append(f"{name} {min(2, max(0, 10 * i // n - 7))}")
    _write_lines(root / "list_attr_celeba.txt", [str(len(lines)), " ".join(names) + " ", *lines])
    _write_lines(root / "list_eval_partition.txt", parts)
    return truth


def idenprof(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write IdenProf: `train` and `test`, and in each a folder an occupation."""
    listed = [
        (occupation, f"{split}/{occupation}/{occupation}-{number}.jpg")
        for split, size in entry("idenprof")["splits"].items()
        for occupation in faces.OCCUPATIONS
        for number in range(1, size + 1)
    ]
    occupations, paths = zip(*listed)
    truth = write_faces(root, paths, sample_labelled(len(listed), rng, occupation=occupations), rng)
    write_bad_files(root, "idenprof", bad_contents(rng))
    return truth


def neutral(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write neutral portraits: faces that show no sign of their gender, and no labels."""
    attributes = faces.sample_attributes(19, rng).with_columns(ambiguous=pl.lit(True))
    truth = write_faces(root, [f"portrait-{number:02}.jpg" for number in range(1, 20)], attributes, rng)
    write_bad_files(root, "neutral", bad_contents(rng))
    return truth


def image_folder(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write a folder a class, as ImageNet lies on disk; the classes are what the people of the planted world wear."""
    labels = [label for label in faces.OCCUPATIONS for _ in range(entry("image_folder")["of_a_class"])]
    attributes = sample_labelled(len(labels), rng, occupation=labels)
    paths = [f"{label}/{label}_{i}.jpg" for i, label in enumerate(labels)]
    truth = write_faces(root, paths, attributes, rng)
    write_bad_files(root, "image_folder", bad_contents(rng))
    return truth.with_columns(label=pl.Series(labels))


COLUMN_MAP: dict[str, Any] = entry("folder")["map"]
"""What an audit file says under `map` to read the planted folder of a user."""


def folder(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write the folder of a user: images and a table in UTF-8 with a byte-order mark, as a spreadsheet writes it."""
    attributes = faces.sample_attributes(300, rng)
    attributes = attributes.with_columns(age=_draw_years(attributes, rng))
    truth = write_faces(root, [f"Bilder/Gesicht {i + 1} ä.jpg" for i in range(300)], attributes, rng)
    words = {column: {value: word for word, value in values.items()} for column, values in COLUMN_MAP["values"].items()}
    rows = [
        (path, words["gender"][gender], words["race"][race], age, occupation, rng.choice([*words["split"].values()]))
        for path, gender, race, age, occupation in truth.select(
            "path", "gender", "race", "age", "occupation"
        ).iter_rows()
    ]
    for path, fault in write_bad_files(root, "folder", bad_contents(rng)).items():
        gender, race = ("Frau" if path.endswith("907.jpg") else "Mann"), ("vom\x07Mars" if "race" in fault else "weiß")
        rows.append((path, gender, race, "30", "engineer", "Prüfung"))
    table = [entry("folder")["columns"], *((number, *row) for number, row in enumerate(rows, 1))]
    write_csv(root / COLUMN_MAP["index"], table, encoding="utf-8-sig", end="\r\n")
    return truth


def pata(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    """Write PATA: a list of labels and addresses, the images as if fetched, and captions by scene."""
    content = entry("pata")
    words = content["words"]
    cells = [
        cell
        for scenes in content["scenes"]
        for cell in product(scenes["names"], words["race"], words["gender"], scenes["ages"])
        for _ in range(scenes["of_a_cell"])
    ]
    scenes, races, genders, ages = zip(*cells)
    drawn = dict(zip(words, (races, genders, ages)))
    attributes = sample_labelled(
        len(cells), rng, **{column: [words[column][word] for word in values] for column, values in drawn.items()}
    )
    paths = [f"images/{'_'.join(cell)}_{position}.jpg" for position, cell in enumerate(cells)]
    truth = write_faces(root, paths, attributes, rng)
    listed = [*paths, *write_bad_files(root, "pata", bad_contents(rng))]
    labels = (Path(path).stem.rpartition("_")[0] for path in listed)
    lines = (f"{label}|https://images.example/{position}.jpg" for position, label in enumerate(labels))
    _write_lines(root / "pata_fairness.files.lst", lines)
    captions = [_captions(scene, scenes["ages"]) for scenes in content["scenes"] for scene in scenes["names"]]
    (root / "pata_fairness.captions.json").write_text(json.dumps(captions, indent=1), "utf-8")
    return truth.with_columns(age=pl.Series(ages), scene=pl.Series(scenes), listed_race=pl.Series(races))


def _captions(scene: str, ages: list[str]) -> dict[str, object]:
    both = "old" in ages
    good = ["photo of a successful person"]
    bad = ["photo of a servant", "photo of an under-achiever"]
    return {
        "long": f"photo of {{age}}, {{race}} {{gender}} at the {scene.replace('_', ' ')}",
        "short": scene,
        "pos": {"races": good, "gender": [*good, "photo of a smart worker"], "age": good * both},
        "neg": {"races": bad, "gender": ["photo of a secretary"], "age": ["photo of a loser"] * both},
    }


# --- What the layouts share: files that are bad on purpose, and how images and tables are written


def sample_labelled(n: int, rng: np.random.Generator, **labels: Sequence[str]) -> pl.DataFrame:
    """Draw the attributes of `n` faces, some of them fixed.

    Parameters
    ----------
    n : int
        Number of faces.
    rng : numpy.random.Generator
        Source of the others.
    **labels : sequence of str
        Column of `faces.sample_attributes` to its n values. Where the race is fixed, no face is ambiguous.
    """
    fixed = [pl.Series(column, values, pl.String) for column, values in labels.items()]
    if "race" in labels:
        fixed.append(pl.Series("ambiguous", np.zeros(n, bool)))
    return faces.sample_attributes(n, rng).with_columns(fixed)


def _draw_years(attributes: pl.DataFrame, rng: np.random.Generator) -> pl.Series:
    """Draw an age in whole years for each face, from its age group."""
    return pl.Series([str(rng.integers(_YEARS[group][0], _YEARS[group][1] + 1)) for group in attributes["age_group"]])


def bad_contents(rng: np.random.Generator) -> dict[str, bytes]:
    """Return fault -> bytes of a JPEG file that has it, for the faults that lie in a file."""
    drawn = faces.draw(faces.sample_attributes(5, rng), rng)
    return faulty(*(faces.as_jpeg(image) for image in drawn))


def faulty(cut: bytes, unnamed: bytes, unknown: bytes, twin: bytes, outside: bytes) -> dict[str, bytes]:
    """Return fault -> content, from five encoded faces."""
    return {
        "no bytes": b"",
        "cut off": cut[: len(cut) // 2],
        "text": b"This is not an image.\n",
        "malformed name": unnamed,
        **dict.fromkeys(("unknown race", "unknown occupation", "no partition"), unknown),
        **dict.fromkeys(("same bytes, other gender", "same bytes, other occupation"), twin),
        "leaves the root": outside,
    }


def write_bad_files(root: Path, kind: str, contents: Mapping[str, bytes]) -> dict[str, str]:
    """Write the bad files of a kind whose fault lies in them, and return all: the others are only listed.

    What leaves the root lies beside it; a path below the root that does so is a link.
    """
    bad = bad_files(kind)
    for path, fault in bad.items():
        if fault == "leaves the root":
            outside = f"outside{Path(path).suffix}"
            put(root.parent / outside, contents[fault])
            if not path.startswith(".."):
                (root / path).symlink_to("../" * len(Path(path).parts) + outside)
        elif fault in contents:
            put(root / path, contents[fault])
    return bad


def put(target: Path, data: bytes) -> None:
    """Write a file and the folders above it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def write_faces(root: Path, paths: Sequence[str], attributes: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Draw faces, write them as JPEG files below a folder, and return their attributes with their paths."""
    for path, image in zip(paths, faces.draw(attributes, rng)):
        put(root / path, faces.as_jpeg(image))
    return attributes.with_columns(path=pl.Series(paths))


def write_csv(path: Path, rows: Iterable[Sequence[object]], *, encoding: str = "utf-8", end: str = "\n") -> None:
    """Write a table whose first row names its columns."""
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, lineterminator=end).writerows(rows)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
