"""Rows of the mean perceived trait of faces at every level of pose, lighting, a smile or age."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell
from plumbline.metrics.families.varied_faces import VariedFaces, faces_row, few_images
from plumbline.metrics.level_means import level_means
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.valence_words import VALENCES
from plumbline.statistics.reasons import joined
from plumbline.tables.schema import Row


@dataclass(frozen=True)
class _Curve:
    """One outcome along one confound; `widening` is what its intervals are multiplied by."""

    definition: str
    event: str
    outcome: NDArray[np.float64]
    widening: float = 1.0


def level_rows(cell: Cell, faces: VariedFaces, settings: MetricSettings) -> list[Row]:
    """Return the points of every curve of every confound, see `_curves`."""
    rows: list[Row] = []
    for dimension in faces.dimensions:
        mine = (faces.records["dimension"] == dimension).to_numpy()
        levels, codes = np.unique(faces.records["level"].to_numpy()[mine], return_inverse=True)
        for curve in _curves(faces, mine, len(levels)):
            common = faces_row(
                cell,
                faces,
                metric="perception_by_level",
                definition=curve.definition,
                attribute=dimension,
                event=curve.event,
            )
            found = level_means(
                codes,
                curve.outcome,
                levels=levels.tolist(),
                clusters=faces.sets[mine],
                confidence=settings.confidence,
            )
            for i, level in enumerate(levels):
                value = float(found.value[i])
                small = few_images(int(found.n[i]), settings)
                rows.append(
                    common
                    | {
                        "group": f"{level:g}",
                        "value": value,
                        "ci_low": value - curve.widening * (value - float(found.ci_low[i])),
                        "ci_high": value + curve.widening * (float(found.ci_high[i]) - value),
                        "n": int(found.n[i]),
                        "reason": joined(found.reasons[i], faces.few_sets, small),
                    }
                )
    return rows


def _curves(faces: VariedFaces, mine: NDArray[np.bool_], levels: int) -> Iterator[_Curve]:
    """Give the curves of one confound.

    `less_blank`: the outcome. `within_sets`: the same after every set was brought to the common mean, so that the
    interval is that of the curve's shape and not of where a person's curve lies; widened by √(L / (L - 1)) for the
    mean that was taken off (Morey 2008). `raw`: the cosines themselves (figure B.2), also of the blank.
    """
    for valence in VALENCES:
        words = faces.words(valence)
        outcome = faces.outcome[mine][:, words].mean(axis=1)
        yield _Curve("less_blank", valence, outcome)
        if faces.in_sets and levels > 1:
            widening = float(np.sqrt(levels / (levels - 1)))
            yield _Curve("within_sets", valence, _at_common_mean(outcome, faces.sets[mine]), widening)
        yield _Curve("raw", valence, faces.raw[mine, 1:][:, words].mean(axis=1))
    yield _Curve("raw", "blank", faces.raw[mine, 0])


def _at_common_mean(outcome: NDArray[np.float64], sets: NDArray[np.int64]) -> NDArray[np.float64]:
    _, codes, sizes = np.unique(sets, return_inverse=True, return_counts=True)
    means = np.bincount(codes, weights=outcome) / sizes
    return outcome - means[codes] + outcome.mean()
