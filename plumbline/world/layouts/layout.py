"""What the layouts share: files that are bad on purpose, and how images, tables and the truth are written."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces, sources

TRUTH_FILE = "planted_truth.csv"

# What an age group is labelled with in years, the last one included.
YEARS = {"child": (0, 12), "teenager": (13, 19), "young_adult": (20, 35), "middle_aged": (36, 60), "elderly": (61, 99)}


@dataclass(frozen=True)
class Layout:
    """One kind of planted dataset.

    Attributes
    ----------
    kind : str
        Its name after `planted:`; also the folder's name, and the name of its seed in `sources.yaml`, which the two
        forms of one dataset share.
    draw : callable
        `draw(root, rng)` writes the whole dataset below `root` and returns each good file's true attributes and
        latents, with its `path`.
    bad_files : mapping of str to str
        What is bad on purpose: path relative to the root, to its fault.
    """

    kind: str
    draw: Callable[[Path, np.random.Generator], pl.DataFrame]
    bad_files: Mapping[str, str]

    def write(self, root: Path) -> None:
        """Write the dataset, and the truth beside it, where no reader sees it."""
        rng = np.random.default_rng(sources.seed("auditing", self.kind.removesuffix("_parquet")))
        truth = self.draw(root, rng)
        first = ["path", "age"] if "age" in truth.columns else ["path"]
        truth.select(*first, pl.exclude(first)).write_csv(root.parent / TRUTH_FILE)


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


def draw_versions(attributes: pl.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Draw one person in several versions: what differs between the rows is their attributes.

    The rows share the jitter in place, size, skin and hair; a little noise of its own keeps two versions that
    look alike from being the same file.

    Parameters
    ----------
    attributes : polars.DataFrame
        n rows as `faces.sample_attributes` gives them.
    rng : numpy.random.Generator
        Source of the person and of the noise.

    Returns
    -------
    numpy.ndarray
        uint8, shape (n, 64, 64, 3), RGB.
    """
    person = np.random.default_rng(int(rng.integers(2**32)))
    images = faces.draw_one_person(attributes, person)
    noise = rng.integers(-2, 3, images.shape, np.int16)
    return np.clip(images + noise, 0, 255).astype(np.uint8)


def draw_years(attributes: pl.DataFrame, rng: np.random.Generator) -> list[str]:
    """Draw an age in whole years for each face, from its age group."""
    return [str(rng.integers(YEARS[group][0], YEARS[group][1] + 1)) for group in attributes["age_group"]]


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


def write_bad_files(root: Path, bad_files: Mapping[str, str], contents: Mapping[str, bytes]) -> None:
    """Write the bad files whose fault lies in them; the others are only listed."""
    for path, fault in bad_files.items():
        if fault in contents:
            put(root / path, contents[fault])


def put(target: Path, data: bytes) -> None:
    """Write a file and the folders above it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def write_images(root: Path, paths: Iterable[str], images: np.ndarray) -> None:
    """Write (n, 64, 64, 3) uint8 images as JPEG files below a folder."""
    for path, image in zip(paths, images):
        put(root / path, faces.as_jpeg(image))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file in UTF-8."""
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def write_csv(path: Path, rows: Iterable[Sequence[object]], *, encoding: str = "utf-8", end: str = "\n") -> None:
    """Write a table whose first row names its columns."""
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, lineterminator=end).writerows(rows)
