"""Faces that vary in one thing, such as pose or age, with what a perception suite says of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.families.rows import base_row
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.valence_words import valence_words
from plumbline.statistics.clusters import cluster_codes, few_sets_reason
from plumbline.tables.schema import Row
from plumbline.tables.suites import Suite


@dataclass(frozen=True)
class VariedFaces:
    """The images of a cell on which one thing is varied, with what a perception suite says of them.

    Attributes
    ----------
    records : DataFrame
        With `image_id`, `dimension`, `set_id`, `gender`, `race` and `level` as a number.
    outcome : (n, w) float64
        Template mean of cos(word) - cos(blank).
    raw : (n, w + 1) float64
        Template mean of the cosines themselves, the blank first.
    valence : (w,) str
        `positive` or `negative`.
    sets : (n,) int64
        Set of each image; every image for itself where the dataset has none.
    in_sets : bool
        Whether the dataset has sets.
    """

    suite: Suite
    records: pl.DataFrame
    outcome: NDArray[np.float64]
    raw: NDArray[np.float64]
    valence: NDArray[np.str_]
    sets: NDArray[np.int64]
    in_sets: bool

    @property
    def few_sets(self) -> str | None:
        """Return what to say of few sets."""
        return few_sets_reason(self.sets) if self.in_sets else None

    @property
    def dimensions(self) -> list[str]:
        """Return what is varied, by name."""
        return sorted(self.records["dimension"].unique())

    @property
    def labelled(self) -> tuple[str, ...]:
        """Return which of race and gender the dataset has."""
        return tuple(name for name in ("race", "gender") if self.records[name].count())

    def words(self, valence: str | None) -> NDArray[np.bool_]:
        """Return the (w,) mask of the words of a valence; all, for None."""
        return np.ones(len(self.valence), dtype=bool) if valence is None else self.valence == valence


def varied_faces(cell: Cell) -> Iterator[VariedFaces]:
    """Give the varied faces of a cell for every perception suite that has cosines and two-pole scales."""
    for logits in cell.logits.values():
        suite = logits.suite
        records = cell.labels(suite.id)
        varied = {"dimension", "level"} <= set(records.columns)
        if suite.family == "perception" and varied and logits.cosine is not None and valence_words(suite):
            faces = _faces(cell, logits, records)
            if faces.records.height:
                yield faces


def _faces(cell: Cell, logits: SuiteLogits, records: pl.DataFrame) -> VariedFaces:
    chosen = ("image_id", "dimension", "level", "set_id", "gender", "race")
    labels = records.select(
        pl.col(name).cast(pl.String) if name in records.columns else pl.lit(None, pl.String).alias(name)
        for name in chosen
    ).with_columns(pl.col("level").cast(pl.Float64, strict=False))
    level = pl.col("level").is_not_null() & pl.col("level").is_finite()
    known = labels.select(level & pl.col("dimension").is_not_null()).to_series().fill_null(False).to_numpy()
    kept = known & cell.rows(logits.suite.id)
    words = valence_words(logits.suite)
    raw = logits.by_template(("", *words))[kept].mean(axis=1)
    own = labels.filter(pl.Series(kept))
    sets = cluster_codes(own)
    return VariedFaces(
        suite=logits.suite,
        records=own,
        outcome=raw[:, 1:] - raw[:, :1],
        raw=raw,
        valence=np.array([valence for _, valence in words.values()]),
        sets=np.arange(own.height) if sets is None else sets,
        in_sets=sets is not None,
    )


def faces_row(cell: Cell, faces: VariedFaces, **columns: object) -> Row:
    """Return the columns that every row about the faces has."""
    return base_row(cell, suite=faces.suite.id, suite_hash=faces.suite.hash, **columns)


def few_images(n: int, settings: MetricSettings) -> str | None:
    """Say that there are few images."""
    return f"fewer than {settings.min_group} images" if n < settings.min_group else None
