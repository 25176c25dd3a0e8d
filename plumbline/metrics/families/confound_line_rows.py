"""Rows of the lines that perceived traits of faces follow along pose, lighting, a smile or age."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell
from plumbline.metrics.confounds import ConfoundFit, confound_fit
from plumbline.metrics.families.varied_faces import VariedFaces, faces_row, few_images
from plumbline.metrics.level_means import level_means
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.valence_words import VALENCES
from plumbline.statistics.reasons import joined
from plumbline.tables.schema import Row

SPLIT_AT_ZERO = ("pose", "smiling")
"""Confounds whose two directions differ: a face turns left or right, a mouth bends down or up."""


_PARTS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.bool_]]] = {
    "all": lambda level: np.ones(len(level), dtype=bool),
    "below": lambda level: level <= 0,
    "above": lambda level: level >= 0,
}


def line_rows(cell: Cell, faces: VariedFaces, dimension: str, settings: MetricSettings) -> list[Row]:
    """Fit the lines of one confound: by part, valence and definition."""
    mine = (faces.records["dimension"] == dimension).to_numpy()
    level = faces.records["level"].to_numpy()
    rows: list[Row] = []
    parts = tuple(_PARTS) if dimension in SPLIT_AT_ZERO else ("all",)
    for part, valence in product(parts, (None, *VALENCES)):
        chosen = mine & _PARTS[part](level)
        common = faces_row(cell, faces, attribute=dimension, group=part, event=valence, n=int(chosen.sum()))
        outcome = faces.outcome[chosen][:, faces.words(valence)]
        rows += _definitions(common, level[chosen], outcome, faces, faces.sets[chosen], settings)
    return rows


def _definitions(
    common: Row,
    level: NDArray[np.float64],
    outcome: NDArray[np.float64],
    faces: VariedFaces,
    sets: NDArray[np.int64],
    settings: MetricSettings,
) -> list[Row]:
    confidence, words = settings.confidence, outcome.shape[1]
    small = few_images(len(level), settings)
    each, code = np.unique(level, return_inverse=True)
    means = level_means(code, outcome, levels=each.tolist()).value
    fits = {
        "ols": confound_fit(level, outcome, confidence=confidence),
        "cluster": confound_fit(level, outcome, clusters=sets, confidence=confidence),
        "level_means": confound_fit(each, means, confidence=confidence),
    }
    of = f"the {words} words of an image" + (" and the images of a set" if faces.in_sets else "")
    notes = {
        "ols": f"interval takes {of} for independent",
        "cluster": faces.few_sets,
        "level_means": f"a line through {len(each)} means",
    }
    return [
        row
        for definition, fit in fits.items()
        for row in _line_as_rows(common | {"definition": definition}, fit, notes[definition], small)
    ]


def _line_as_rows(common: Row, fit: ConfoundFit, note: str | None, small: str | None) -> Iterator[Row]:
    reason = joined(fit.reason, small) if np.isnan(fit.slope.value) else joined(fit.reason, note, small)
    for metric, found in (("confound_slope", fit.slope), ("confound_intercept", fit.intercept)):
        yield common | {
            "metric": metric,
            "value": found.value,
            "ci_low": found.ci_low,
            "ci_high": found.ci_high,
            "p": found.p,
            "reason": reason,
        }
        yield common | {
            "metric": metric,
            "statistic": "standard_error",
            "value": found.error,
            "reason": joined("no error", reason) if np.isnan(found.error) else reason,
        }
    no_interval = "no interval" if np.isnan(fit.r_squared_low) else None
    yield common | {
        "metric": "confound_r_squared",
        "value": fit.r_squared,
        "ci_low": fit.r_squared_low,
        "ci_high": fit.r_squared_high,
        "reason": joined(no_interval, reason),
    }
