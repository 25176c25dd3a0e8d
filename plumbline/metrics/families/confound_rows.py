"""Rows of the confound metrics: perceived traits of faces that vary in one thing: pose, lighting, a smile, age."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain

import polars as pl

from plumbline.cores import side_by_side
from plumbline.metrics.cell import Cell
from plumbline.metrics.families.attribute_change_rows import (
    change_rows,
)
from plumbline.metrics.families.confound_level_rows import level_rows
from plumbline.metrics.families.confound_line_rows import (
    line_rows,
)
from plumbline.metrics.families.varied_faces import varied_faces
from plumbline.metrics.settings import MetricSettings
from plumbline.tables.schema import Row, metric_frame


def confound_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the confound rows of every perception suite of a cell.

    None where the dataset does not say what is varied in an image and how far (columns `dimension` and `level`), and
    none where the encoder has no cosines. An image without a level, or with one that is not a number, counts nowhere.
    """
    parts: list[Callable[[], list[Row]]] = []
    for faces in varied_faces(cell):
        parts += [partial(line_rows, cell, faces, dimension, settings) for dimension in faces.dimensions]
        parts.append(partial(level_rows, cell, faces, settings))
        parts.append(partial(change_rows, cell, faces, settings))
    return metric_frame(list(chain.from_iterable(side_by_side(parts))))
