"""The planted neutral portraits: faces that show no sign of their gender, and no labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import Layout, bad_contents, write_bad_files, write_images

_SIZE = 19
_BAD = {"portrait-91.jpg": "no bytes", "portrait-92.jpg": "cut off", "portrait-93.jpg": "text"}


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    attributes = faces.sample_attributes(_SIZE, rng).with_columns(ambiguous=pl.lit(True))
    paths = [f"portrait-{number:02}.jpg" for number in range(1, _SIZE + 1)]
    write_images(root, paths, faces.draw(attributes, rng))
    write_bad_files(root, _BAD, bad_contents(rng))
    return attributes.with_columns(path=pl.Series(paths))


LAYOUT = Layout("neutral", _draw, _BAD)
"""19 good files."""
