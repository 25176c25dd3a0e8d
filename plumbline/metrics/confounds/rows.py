"""Rows of the confound metrics: perceived traits of faces that vary in one thing: pose, lighting, a smile, age."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.catalog.suites import Suite
from plumbline.concurrency import run_threads
from plumbline.metrics.cell import Cell, SuiteLogits, base_row
from plumbline.metrics.confounds.slopes import (
    ConfoundFit,
    compare_changes,
    confound_fit,
    level_means,
    matched_pairs,
    mean_change,
)
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.perception import VALENCES, valence_words
from plumbline.reasons import Reason, joined, reason
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason


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
    clusters : (n,) int64
        Cluster of each image; every image for itself where the dataset has none.
    clustered : bool
        Whether the dataset has clusters.
    """

    suite: Suite
    records: pl.DataFrame
    outcome: NDArray[np.float64]
    raw: NDArray[np.float64]
    valence: NDArray[np.str_]
    clusters: NDArray[np.int64]
    clustered: bool

    @property
    def few_clusters(self) -> Reason | None:
        """Return the caveat on intervals from few clusters."""
        return few_clusters_reason(self.clusters) if self.clustered else None

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
    varied = labels.filter(pl.Series(kept))
    clusters = cluster_codes(varied)
    return VariedFaces(
        suite=logits.suite,
        records=varied,
        outcome=raw[:, 1:] - raw[:, :1],
        raw=raw,
        valence=np.array([valence for _, valence in words.values()]),
        clusters=np.arange(varied.height) if clusters is None else clusters,
        clustered=clusters is not None,
    )


def faces_row(cell: Cell, faces: VariedFaces, **columns: object) -> Row:
    """Return the columns that every row about the faces has."""
    return base_row(cell, suite=faces.suite.id, suite_hash=faces.suite.hash, **columns)


def _few_images(n: int, settings: MetricSettings) -> Reason | None:
    return reason("few_images", min_group=settings.min_group) if n < settings.min_group else None


# The mean perceived trait at every level


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
            means = level_means(
                codes,
                curve.outcome,
                levels=levels.tolist(),
                clusters=faces.clusters[mine],
                confidence=settings.confidence,
            )
            for level, mean in zip(levels, means):
                small = _few_images(mean.n or 0, settings)
                rows.append(
                    common
                    | mean.columns()
                    | {
                        "group": f"{level:g}",
                        "ci_low": mean.value - curve.widening * (mean.value - mean.ci_low),
                        "ci_high": mean.value + curve.widening * (mean.ci_high - mean.value),
                        "reason": joined(mean.reason, faces.few_clusters, small),
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
        if faces.clustered and levels > 1:
            widening = float(np.sqrt(levels / (levels - 1)))
            yield _Curve("within_sets", valence, _at_common_mean(outcome, faces.clusters[mine]), widening)
        yield _Curve("raw", valence, faces.raw[mine, 1:][:, words].mean(axis=1))
    yield _Curve("raw", "blank", faces.raw[mine, 0])


def _at_common_mean(outcome: NDArray[np.float64], sets: NDArray[np.int64]) -> NDArray[np.float64]:
    _, codes, sizes = np.unique(sets, return_inverse=True, return_counts=True)
    means = np.bincount(codes, weights=outcome) / sizes
    return outcome - means[codes] + outcome.mean()


# Linear fits per confound

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
        rows += _definitions(common, level[chosen], outcome, faces, faces.clusters[chosen], settings)
    return rows


def _definitions(
    common: Row,
    level: NDArray[np.float64],
    outcome: NDArray[np.float64],
    faces: VariedFaces,
    clusters: NDArray[np.int64],
    settings: MetricSettings,
) -> list[Row]:
    confidence = settings.confidence
    each, code = np.unique(level, return_inverse=True)
    means = level_means(code, outcome, levels=each.tolist()).value
    independent = "independent_words_and_images" if faces.clustered else "independent_words"
    fits: dict[str, tuple[ConfoundFit, Reason | None]] = {
        "ols": (confound_fit(level, outcome, confidence=confidence), reason(independent, words=outcome.shape[1])),
        "cluster": (confound_fit(level, outcome, clusters=clusters, confidence=confidence), faces.few_clusters),
        "level_means": (
            confound_fit(each, means, confidence=confidence),
            reason("line_through_means", means=len(each)),
        ),
    }
    small = _few_images(len(level), settings)
    return [
        row
        for definition, (fit, note) in fits.items()
        for row in _fit_rows(common | {"definition": definition}, fit, note, small)
    ]


def _fit_rows(common: Row, fit: ConfoundFit, note: Reason | None, small: Reason | None) -> Iterator[Row]:
    reasons = joined(fit.reason, None if np.isnan(fit.slope.value) else note, small)
    for metric, coefficient in (("confound_slope", fit.slope), ("confound_intercept", fit.intercept)):
        row = common | {"metric": metric, "reason": reasons}
        yield coefficient.columns() | row
        no_error = reason("no_error") if np.isnan(coefficient.error) else None
        error: Row = {"statistic": "standard_error", "value": coefficient.error}
        yield row | error | {"reason": joined(no_error, reasons)}
    no_interval = reason("no_interval") if np.isnan(fit.r_squared.ci_low) else None
    row = common | {"metric": "confound_r_squared", "reason": joined(no_interval, reasons)}
    yield fit.r_squared.columns() | row


# Change of a perceived trait when one attribute of a face is changed

PROTECTED = ("gender", "race", "age")
"""Attributes that the law protects; everything else that a dataset varies is a confound (table B.2)."""


class _Changes(NamedTuple):
    """What changing one attribute does, pair by pair of images.

    Attributes
    ----------
    size : (p,) float64
    clusters : (p,) int64 or None
        Cluster of each pair; None where pairs count as independent.
    """

    size: NDArray[np.float64]
    clusters: NDArray[np.int64] | None


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
            robust = definition == "cluster"
            note = faces.few_clusters if robust else reason("independent_pairs")
            changes = {
                name: _Changes(size, faces.clusters[pairs[name][:, 0]] if robust else None)
                for name, size in sizes.items()
            }
            common = faces_row(cell, faces, event=valence, definition=definition)
            for name, change in changes.items():
                mean = mean_change(change.size, clusters=change.clusters, confidence=settings.confidence)
                columns = mean.columns() | {"reason": joined(mean.reason, note if mean.n else None)}
                rows.append(common | {"metric": "attribute_change", "attribute": name} | columns)
            for first, second in product(confounds, protected):
                compared = common | {"attribute": first, "reference_group": second}
                rows += [compared | row for row in _comparison(changes[first], changes[second], note, settings)]
    return rows


def _pairs(faces: VariedFaces, attribute: str) -> NDArray[np.int64]:
    if attribute in faces.labelled:
        others = [name for name in faces.labelled if name != attribute]
        return matched_pairs(faces.records, attribute, fixed=("set_id", "dimension", "level", *others))
    mine = pl.when(pl.col("dimension") == attribute).then("level").alias("varied")
    return matched_pairs(faces.records.with_columns(mine), "varied", fixed=("set_id", *faces.labelled))


def _comparison(first: _Changes, second: _Changes, note: Reason | None, settings: MetricSettings) -> list[Row]:
    clusters = None
    if first.clusters is not None and second.clusters is not None:
        clusters = (first.clusters, second.clusters)
    compared = compare_changes(first.size, second.size, clusters=clusters, confidence=settings.confidence)
    reasons = joined(compared.reason, None if np.isnan(compared.value) else note)
    common: Row = {"metric": "confound_vs_protected", "n": compared.n, "reason": reasons}
    return [compared.columns() | common, common | {"statistic": "t", "value": compared.t}]


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
    return metric_frame(list(chain.from_iterable(run_threads(parts))))


CONFOUNDS = Family(name="confound_metrics", code_version="1", needs=("perception",), compute=confound_rows)
