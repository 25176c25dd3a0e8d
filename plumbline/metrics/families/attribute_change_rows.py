"""Rows of how far a perceived trait moves when one thing about a face is changed."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.metrics.attribute_changes import compare_changes, matched_pairs, mean_change
from plumbline.metrics.cell import Cell
from plumbline.metrics.families.varied_faces import VariedFaces, faces_row
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.valence_words import VALENCES
from plumbline.statistics.reasons import joined
from plumbline.tables.schema import Row

PROTECTED = ("gender", "race", "age")
"""Attributes that the law protects; everything else that a dataset varies is a confound (table B.2)."""


class _Changes(NamedTuple):
    """What changing one attribute does, pair by pair of images.

    Attributes
    ----------
    size : (p,) float64
    sets : (p,) int64 or None
        Set of each pair; None where pairs count as independent.
    """

    size: NDArray[np.float64]
    sets: NDArray[np.int64] | None


def change_rows(cell: Cell, faces: VariedFaces, settings: MetricSettings) -> list[Row]:
    """Compare what changing one attribute does (tables B.2 and figure 4).

    A change is that of two images of one set that differ in this attribute alone: two levels of a confound or of age
    in faces of one race and gender, or two races, or the two genders, at one level of one confound. Its size is the
    absolute difference of the outcome, averaged over the words of a valence.
    """
    confounds = [name for name in faces.dimensions if name not in PROTECTED]
    protected = [name for name in PROTECTED if name in (*faces.dimensions, *faces.labelled)]
    pairs = {name: _pairs(faces, name) for name in (*confounds, *protected)}
    rows: list[Row] = []
    for valence in VALENCES:
        outcome = faces.outcome[:, faces.words(valence)]
        sizes = {n: np.abs(outcome[p[:, 0]] - outcome[p[:, 1]]).mean(axis=1) for n, p in pairs.items()}
        for definition in ("ttest", "cluster"):
            in_sets = definition == "cluster"
            note = faces.few_sets if in_sets else "interval takes pairs of images for independent"
            found = {
                n: _Changes(size, faces.sets[pairs[n][:, 0]] if in_sets else None)
                for n, size in sizes.items()
            }
            common = faces_row(cell, faces, event=valence, definition=definition)
            rows += [common | _mean_row(n, own, note, settings.confidence) for n, own in found.items()]
            for first, second in product(confounds, protected):
                compared = common | {"attribute": first, "reference_group": second}
                rows += [compared | row for row in _comparison(found[first], found[second], note, settings)]
    return rows


def _pairs(faces: VariedFaces, attribute: str) -> NDArray[np.int64]:
    if attribute in faces.labelled:
        others = [name for name in faces.labelled if name != attribute]
        return matched_pairs(faces.records, attribute, fixed=("set_id", "dimension", "level", *others))
    mine = pl.when(pl.col("dimension") == attribute).then("level").alias("varied")
    return matched_pairs(faces.records.with_columns(mine), "varied", fixed=("set_id", *faces.labelled))


def _mean_row(attribute: str, changes: _Changes, note: str | None, confidence: float) -> Row:
    found = mean_change(changes.size, clusters=changes.sets, confidence=confidence)
    return {
        "metric": "attribute_change",
        "attribute": attribute,
        "value": found.value,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
        "n": found.pairs,
        "reason": found.reason if found.pairs == 0 else joined(found.reason, note),
    }


def _comparison(first: _Changes, second: _Changes, note: str | None, settings: MetricSettings) -> list[Row]:
    sets = None if first.sets is None or second.sets is None else (first.sets, second.sets)
    found = compare_changes(first.size, second.size, clusters=sets, confidence=settings.confidence)
    reason = found.reason if np.isnan(found.difference) else joined(found.reason, note)
    common: Row = {
        "metric": "confound_vs_protected",
        "n": len(first.size) + len(second.size),
        "reason": reason,
    }
    estimate: Row = {
        "value": found.difference,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
        "p": found.p,
    }
    return [common | estimate, common | {"statistic": "t", "value": found.t}]
