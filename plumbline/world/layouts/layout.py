"""What the layouts share: which files go bad on purpose, and how images and the truth are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces

TRUTH_FILE = "planted_truth.csv"

# What an age group is labelled with in years, the last one included.
YEARS = {
    "child": (0, 12),
    "teenager": (13, 19),
    "young_adult": (20, 35),
    "middle_aged": (36, 60),
    "elderly": (61, 99),
}


@dataclass(frozen=True)
class Layout:
    """One kind of planted dataset.

    Attributes
    ----------
    kind : str
        Its name after `planted:`; also the folder's name, and the name of its seed in `sources.yaml`.
    write : callable
        `write(root)` writes the whole dataset below `root`, and the truth beside it.
    bad_files : mapping of str to str
        What is bad on purpose: path relative to the root, to its fault.
    """

    kind: str
    write: Callable[[Path], None]
    bad_files: Mapping[str, str]


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


def bad_contents(rng: np.random.Generator) -> dict[str, bytes]:
    """Return fault -> bytes of a file that has it, for the faults that lie in a file."""
    drawn = faces.draw(faces.sample_attributes(5, rng), rng)
    cut, unnamed, unknown, twin, outside = (faces.as_jpeg(image) for image in drawn)
    return {
        "no bytes": b"",
        "cut off": cut[: len(cut) // 2],
        "text": b"This is not an image.\n",
        "malformed name": unnamed,
        "unknown race": unknown,
        "same bytes, other gender": twin,
        "leaves the root": outside,
    }


def write_images(root: Path, paths: Iterable[str], images: np.ndarray) -> None:
    """Write (n, 64, 64, 3) uint8 images as JPEG files below a folder."""
    for path, image in zip(paths, images):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(faces.as_jpeg(image))


def write_truth(root: Path, truth: pl.DataFrame) -> None:
    """Write each good file's true attributes and latents beside the dataset, where no reader sees them."""
    first = ["path", "age"] if "age" in truth.columns else ["path"]
    truth.select(*first, pl.exclude(first)).write_csv(root.parent / TRUTH_FILE)
