"""The planted IdenProf: `train` and `test`, and in each a folder an occupation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import Layout, bad_contents, sample_labelled, write_bad_files, write_images

_SPLITS = {"train": 30, "test": 10}
_BAD = {
    "train/chef/chef-901.jpg": "no bytes",
    "train/chef/chef-902.jpg": "cut off",
    "train/chef/chef-903.jpg": "text",
    "train/chef-904.jpg": "malformed name",
    "train/astronaut/astronaut-1.jpg": "unknown occupation",
    "train/chef/chef-906.jpg": "same bytes, other occupation",
    "test/judge/judge-907.jpg": "same bytes, other occupation",
}


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    listed = [
        (occupation, f"{split}/{occupation}/{occupation}-{number}.jpg")
        for split, size in _SPLITS.items()
        for occupation in faces.OCCUPATIONS
        for number in range(1, size + 1)
    ]
    occupations, paths = zip(*listed)
    attributes = sample_labelled(len(listed), rng, occupation=occupations)
    write_images(root, paths, faces.draw(attributes, rng))
    write_bad_files(root, _BAD, bad_contents(rng))
    return attributes.with_columns(path=pl.Series(paths))


LAYOUT = Layout("idenprof", _draw, _BAD)
"""400 good files: of each of the ten occupations 30 in train and 10 in test."""
