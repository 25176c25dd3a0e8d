"""Rows and word table of the valence geometry of one encoder's text space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.metrics.principal_axes import AXES
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.valence_geometry import (
    DimensionGeometry,
    ValenceGap,
    ValenceGeometry,
    WordEstimate,
    valence_geometry,
)
from plumbline.metrics.valence_words import valence_words
from plumbline.statistics.reasons import joined
from plumbline.tables.schema import Row, metric_frame
from plumbline.tables.suites import Suite

TEXT = "text"
"""Column `dataset` of numbers that are of a text space alone: there are no images."""

GEOMETRY_SCHEMA: dict[str, pl.DataType] = {
    "model": pl.String(),
    "word": pl.String(),
    "dimension": pl.String(),
    "valence": pl.String(),
    "x": pl.Float64(),
    "y": pl.Float64(),
    "z": pl.Float64(),
    "share_x": pl.Float64(),
    "share_y": pl.Float64(),
    "share_z": pl.Float64(),
    "cosines": pl.List(pl.Float64),
}
"""One row a word and model: its principal coordinates, the share of variance along each axis (equal in all rows of a
model), and its cosines to the model's words in the order of their rows."""

_PAIRS_SHARE_WORDS = "p takes pairs that share a word for independent"


def prompt_embeddings(suite: Suite, embedded: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the (t, w, d) embeddings of the two-pole words of a perception suite.

    Parameters
    ----------
    suite : Suite
        With templates and scales.
    embedded : mapping of str to (d,) float32
        Prompt to its embedding.

    Raises
    ------
    MetricError
        If a prompt has no embedding.
    """
    text = {(c.template, c.word): c.text for c in suite.candidates}
    wanted = [[text[template, word] for word in valence_words(suite)] for template in suite.templates]
    if lacking := [prompt for row in wanted for prompt in row if prompt not in embedded]:
        raise MetricError(
            f"{len(lacking)} prompts of the suite `{suite.id}` have no embedding",
            found=f"nothing for `{lacking[0]}`",
            hint="materialise `text_embeddings` of this encoder again",
        )
    return np.array([[embedded[prompt] for prompt in row] for row in wanted])


def geometry_rows(
    model: str, suite: Suite, embeddings: NDArray[np.float32], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the metric rows of the valence geometry.

    `valence_cosine`: mean cosine of the words of a dimension within a valence (`group`) or across. `valence_gap`:
    within minus across, with the p of the paper's t-test (`ttest`), of the permutation of the words (`permutation`),
    and of the t-test on cosines that were taken template by template (`per_template`). `text_axis_share`: share of
    the words' variance along principal axis `k`.

    Parameters
    ----------
    embeddings : (t, w, d) float32
        As `prompt_embeddings` gives them.
    """
    common: Row = {
        "model": model,
        "dataset": TEXT,
        "condition": "before",
        "statistic": "estimate",
        "suite": suite.id,
        "suite_hash": suite.hash,
    }
    rows: list[Row] = []
    mean, by_template = (
        _geometry(suite, embeddings, average, settings) for average in ("embeddings", "cosines")
    )
    for geometry, definition in ((mean, "template_mean"), (by_template, "per_template")):
        rows += [common | row for each in geometry.dimensions for row in _cosines(each, definition)]
    for definition, geometry in (("ttest", mean), ("permutation", mean), ("per_template", by_template)):
        rows += [common | row for each in geometry.dimensions for row in _gaps(each, definition)]
    for axis in range(AXES):
        share = float(mean.shares[axis])
        rows.append(
            common
            | {
                "metric": "text_axis_share",
                "definition": "pca",
                "k": axis + 1,
                "value": share,
                "n": len(mean.cosines),
                "reason": "the words do not vary" if np.isnan(share) else None,
            }
        )
    return metric_frame(rows)


def geometry_words(
    model: str, suite: Suite, embeddings: NDArray[np.float32], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the words of a text space with their principal coordinates and cosines, as `GEOMETRY_SCHEMA` says."""
    geometry = _geometry(suite, embeddings, "embeddings", settings)
    words = valence_words(suite)
    columns = {
        "model": [model] * len(words),
        "word": list(words),
        "dimension": [dimension for dimension, _ in words.values()],
        "valence": [valence for _, valence in words.values()],
        **{axis: geometry.coordinates[:, i] for i, axis in enumerate("xyz")},
        **{f"share_{axis}": [float(geometry.shares[i])] * len(words) for i, axis in enumerate("xyz")},
        "cosines": geometry.cosines.tolist(),
    }
    return pl.DataFrame(columns, schema=GEOMETRY_SCHEMA)


def _geometry(
    suite: Suite, embeddings: NDArray[np.float32], average: str, settings: MetricSettings
) -> ValenceGeometry:
    words = valence_words(suite).values()
    return valence_geometry(
        embeddings,
        dimensions=[dimension for dimension, _ in words],
        valences=[valence for _, valence in words],
        average="embeddings" if average == "embeddings" else "cosines",
        confidence=settings.confidence,
    )


def _cosines(each: DimensionGeometry, definition: str) -> Iterator[Row]:
    for group, estimate in (("positive", each.positive), ("negative", each.negative), ("cross", each.cross)):
        yield {
            "metric": "valence_cosine",
            "definition": definition,
            "attribute": each.name,
            "group": group,
            **_columns(estimate),
        }


def _gaps(each: DimensionGeometry, definition: str) -> Iterator[Row]:
    for group, gap in (("positive", each.positive_gap), ("negative", each.negative_gap)):
        yield {
            "metric": "valence_gap",
            "definition": definition,
            "attribute": each.name,
            "group": group,
            "reference_group": "cross",
            "p": gap.p_permutation if definition == "permutation" else gap.p,
            **_columns(gap.estimate, _note(gap, definition)),
        }


def _note(gap: ValenceGap, definition: str) -> str | None:
    if definition != "permutation":
        return "no test: the cosines do not vary" if np.isnan(gap.p) else _PAIRS_SHARE_WORDS
    return "no test: too many ways to deal the words" if np.isnan(gap.p_permutation) else None


def _columns(estimate: WordEstimate, note: str | None = None) -> Row:
    undefined = np.isnan(estimate.value)
    return {
        "value": estimate.value,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "n": estimate.words,
        "reason": estimate.reason if undefined else joined(estimate.reason, note),
    }
