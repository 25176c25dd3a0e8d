"""Rows of the confound metrics: perceived traits of faces that vary in one thing: pose, lighting, a smile, age."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.metrics.cell import Cell, RowPart, SuiteLogits, base_row, compute_rows
from plumbline.metrics.confounds.slopes import (
    ConfoundFit,
    Floats,
    compare_changes,
    confound_fit,
    level_means,
    matched_pairs,
    mean_change,
)
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.perception import VALENCES, template_means, valence_words
from plumbline.reasons import Reason, joined, reason
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.jackknife import occurring_codes


@dataclass(frozen=True)
class VariedFaces:
    """The images of a cell on which one thing is varied, with their cosines to a perception suite's words.

    Attributes
    ----------
    common : Row
        Columns of every row about them.
    settings : MetricSettings
    records : DataFrame
        With `image_id`, `dimension`, `set_id`, `gender`, `race` and `level` as a number.
    outcome : (n, w) float64
        Template mean of cos(word) - cos(blank).
    raw : (n, w + 1) float64
        Template mean of the cosines themselves, the blank first.
    valence : (w,) str
        `positive` or `negative`.
    by_scale : dict of str to (n, w) float64
        The outcome with each word of every scale of the suite, those with one pole too (warmth, competence).
    controls : dict of str to (n, 1) float64
        Template mean of the cosines with prompts that name no trait: `blank`, and where the markedness prompts are
        asked too those that name a gender or race of the dataset, such as `race:White`.
    clusters : (n,) int64
        Cluster of each image; each image is its own cluster where the dataset has none.
    few_clusters : Reason or None
        Caveat on intervals from few clusters.
    clustered : bool
        Whether the dataset has clusters.
    """

    common: Row
    settings: MetricSettings
    records: pl.DataFrame
    outcome: Floats
    raw: Floats
    valence: NDArray[np.str_]
    by_scale: dict[str, Floats]
    controls: dict[str, Floats]
    clusters: NDArray[np.int64]
    few_clusters: Reason | None
    clustered: bool

    @property
    def dimensions(self) -> list[str]:
        """Return what is varied, by name."""
        return sorted(self.records["dimension"].unique())

    @property
    def labelled(self) -> tuple[str, ...]:
        """Return which of race and gender the dataset has."""
        return tuple(name for name in ("race", "gender") if self.records[name].count())

    def varied(self, dimension: str) -> NDArray[np.bool_]:
        """Return the (n,) mask of the faces on which `dimension` is varied."""
        return (self.records["dimension"] == dimension).to_numpy()

    def few_images(self, n: int) -> Reason | None:
        """Return the caveat on numbers of few images."""
        least = self.settings.min_group
        return reason("few_images", min_group=least) if n < least else None


def varied_faces(cell: Cell, settings: MetricSettings) -> Iterator[VariedFaces]:
    """Give the varied faces of a cell for every perception suite that has cosines and two-pole scales."""
    for logits in cell.logits.values():
        suite = logits.suite
        varied = {"dimension", "level"} <= set(cell.labels(suite.id).columns)
        if suite.family == "perception" and varied and logits.cosine is not None and valence_words(suite):
            faces = _faces(cell, logits, settings)
            if faces.records.height:
                yield faces


def _faces(cell: Cell, logits: SuiteLogits, settings: MetricSettings) -> VariedFaces:
    suite, records = logits.suite, cell.labels(logits.suite.id)
    chosen = ("image_id", "dimension", "level", "set_id", "gender", "race")
    labels = records.select(
        pl.col(name).cast(pl.String) if name in records.columns else pl.lit(None, pl.String).alias(name)
        for name in chosen
    ).with_columns(pl.col("level").cast(pl.Float64, strict=False))
    level = pl.col("level").is_not_null() & pl.col("level").is_finite()
    known = labels.select(level & pl.col("dimension").is_not_null()).to_series().fill_null(False).to_numpy()
    kept = known & cell.rows(suite.id)
    words, rows = valence_words(suite), np.flatnonzero(kept)
    every = dict.fromkeys(["", *words, *(word for scale in suite.scales.values() for word in scale)])
    means = dict(zip(every, logits.by_template(tuple(every), template_means, rows).T))
    raw = np.stack([means[word] for word in ("", *words)], axis=1)
    varied = labels.filter(pl.Series(kept))
    clusters = cluster_codes(varied)
    return VariedFaces(
        common=base_row(cell, suite=suite.id, suite_hash=suite.hash),
        settings=settings,
        records=varied,
        outcome=raw[:, 1:] - raw[:, :1],
        raw=raw,
        valence=np.array([valence for _, valence in words.values()]),
        by_scale={
            name: np.stack([means[word] - means[""] for word in scale], axis=1) for name, scale in suite.scales.items()
        },
        controls={"blank": means[""][:, None], **_marked(cell, varied, rows)},
        clusters=np.arange(varied.height) if clusters is None else clusters,
        few_clusters=few_clusters_reason(clusters),
        clustered=clusters is not None,
    )


def _marked(cell: Cell, varied: pl.DataFrame, rows: NDArray[np.int64]) -> dict[str, Floats]:
    """Return the cosines with the prompts that name a gender or race of these faces; none where they are not asked."""
    markedness = [
        each for each in cell.logits.values() if each.suite.family == "markedness" and each.cosine is not None
    ]
    if not markedness:
        return {}
    present = {f"{name}:{label}" for name in ("gender", "race") for label in varied[name].unique()}
    named = {f"{c.category}:{c.word}": None for c in markedness[0].suite.candidates}
    chosen = [name for name in named if name in present]
    return {name: markedness[0].by_template((name,), template_means, rows) for name in chosen}


# The mean perceived trait at every level


def level_rows(faces: VariedFaces) -> Iterator[Row]:
    """Give the points of every curve of every confound, see `_curves`."""
    for dimension in faces.dimensions:
        mask = faces.varied(dimension)
        levels, codes = np.unique(faces.records["level"].to_numpy()[mask], return_inverse=True)
        for definition, event, outcome, widening in _curves(faces, mask, len(levels)):
            named = {"metric": "perception_by_level", "definition": definition, "attribute": dimension, "event": event}
            clusters, confidence = faces.clusters[mask], faces.settings.confidence
            means = level_means(codes, outcome, levels=levels.tolist(), clusters=clusters, confidence=confidence)
            for level, mean in zip(levels, means):
                small = faces.few_images(mean.n or 0)
                yield (
                    faces.common
                    | mean.columns()
                    | named
                    | {
                        "group": f"{level:g}",
                        "ci_low": mean.value - widening * (mean.value - mean.ci_low),
                        "ci_high": mean.value + widening * (mean.ci_high - mean.value),
                        "reason": joined(mean.reason, faces.few_clusters, small),
                    }
                )


def _curves(faces: VariedFaces, mask: NDArray[np.bool_], levels: int) -> Iterator[tuple[str, str, Floats, float]]:
    """Give the curves of one confound: definition, event, outcome, and a factor that widens their intervals.

    `less_blank`: the outcome. `within_sets`: the same after every set was brought to the common mean, so that the
    interval is that of the curve's shape and not of where a person's curve lies; widened by √(L / (L - 1)) for the
    mean that was taken off (Morey 2008). `raw`: the cosines themselves (figure B.2), also of the blank.
    """
    for valence in VALENCES:
        words = faces.valence == valence
        outcome = faces.outcome[mask][:, words].mean(axis=1)
        yield "less_blank", valence, outcome, 1.0
        if faces.clustered and levels > 1:
            at_common_mean = outcome - _cluster_means(outcome, faces.clusters[mask]) + outcome.mean()
            yield "within_sets", valence, at_common_mean, float(np.sqrt(levels / (levels - 1)))
        yield "raw", valence, faces.raw[mask, 1:][:, words].mean(axis=1), 1.0
    yield "raw", "blank", faces.raw[mask, 0], 1.0


def _cluster_means(outcome: Floats, clusters: NDArray[np.int64]) -> Floats:
    _, places, sizes = occurring_codes(clusters)
    return (np.bincount(places, weights=outcome) / sizes)[places]


# Linear fits per confound

SPLIT_AT_ZERO = ("pose", "smiling")
"""Confounds whose two directions differ: a face turns left or right, a mouth bends down or up."""

_PARTS: dict[str, Callable[[Floats], NDArray[np.bool_]]] = {
    "all": np.isfinite,
    "below": lambda level: level <= 0,
    "above": lambda level: level >= 0,
}


def line_rows(faces: VariedFaces, dimension: str) -> Iterator[Row]:
    """Fit the lines of one confound: by part, valence and definition."""
    level, confidence = faces.records["level"].to_numpy(), faces.settings.confidence
    independent = "independent_words_and_images" if faces.clustered else "independent_words"
    parts = tuple(_PARTS) if dimension in SPLIT_AT_ZERO else ("all",)
    levels, level_codes = np.unique(level, return_inverse=True)
    for part, valence in product(parts, (None, *VALENCES)):
        chosen = faces.varied(dimension) & _PARTS[part](level)
        words = np.isin(faces.valence, VALENCES if valence is None else valence)
        x, outcome, n = level[chosen], faces.outcome[chosen][:, words], int(chosen.sum())
        present, code, _ = occurring_codes(level_codes[chosen])
        each = levels[present]
        means = level_means(code, outcome, levels=each.tolist()).value
        fits: dict[str, tuple[ConfoundFit, Reason | None]] = {
            "ols": (confound_fit(x, outcome, confidence=confidence), reason(independent, words=outcome.shape[1])),
            "cluster": (
                confound_fit(x, outcome, clusters=faces.clusters[chosen], confidence=confidence),
                faces.few_clusters,
            ),
            "level_means": (
                confound_fit(each, means, confidence=confidence),
                reason("line_through_means", means=len(each)),
            ),
        }
        common = faces.common | {"attribute": dimension, "group": part, "event": valence}
        for definition, (fit, note) in fits.items():
            reasons = joined(fit.reason, None if np.isnan(fit.slope.value) else note, faces.few_images(n))
            for row in _fit_rows(fit):
                yield common | row | {"definition": definition, "n": n, "reason": joined(row["reason"], reasons)}


def _fit_rows(fit: ConfoundFit) -> Iterator[dict[str, Any]]:
    """Give the columns of the numbers of a line; reasons are of a number that is missing."""
    for metric, coefficient in (("confound_slope", fit.slope), ("confound_intercept", fit.intercept)):
        yield coefficient.columns() | {"metric": metric}
        no_error = reason("no_error") if np.isnan(coefficient.error) else None
        error = {"statistic": "standard_error", "value": coefficient.error}
        yield error | {"metric": metric, "reason": joined(no_error)}
    no_interval = reason("no_interval") if np.isnan(fit.r_squared.ci_low) else None
    yield fit.r_squared.columns(no_interval) | {"metric": "confound_r_squared"}


# Change of a perceived trait when one attribute of a face is changed

PROTECTED = ("gender", "race", "age")
"""Protected attributes; everything else that a dataset varies is a confound (table B.2)."""


def change_rows(faces: VariedFaces) -> Iterator[Row]:
    """Compare what changing one attribute does (tables B.2 and figure 4).

    A change is that of two images of one set that differ in this attribute alone: two levels of a confound or of age
    in faces of one race and gender, or two races, or the two genders, at one level of one confound. Its size is the
    absolute difference of the outcome, averaged over the words of a valence.
    """
    confidence = faces.settings.confidence
    confounds = [name for name in faces.dimensions if name not in PROTECTED]
    protected = [name for name in PROTECTED if name in (*faces.dimensions, *faces.labelled)]
    pairs = {name: _pairs(faces, name) for name in (*confounds, *protected)}
    clusters = {name: faces.clusters[of[:, 0]] for name, of in pairs.items()}
    for valence, definition in product(VALENCES, ("ttest", "cluster")):
        robust = definition == "cluster"
        note = faces.few_clusters if robust else reason("independent_pairs")
        outcome = faces.outcome[:, faces.valence == valence]
        sizes = {name: np.abs(outcome[p[:, 0]] - outcome[p[:, 1]]).mean(axis=1) for name, p in pairs.items()}
        common = faces.common | {"event": valence, "definition": definition}
        for name, size in sizes.items():
            mean = mean_change(size, clusters=clusters[name] if robust else None, confidence=confidence)
            reasons = joined(mean.reason, note if mean.n else None)
            yield common | mean.columns() | {"metric": "attribute_change", "attribute": name, "reason": reasons}
        for one, other in product(confounds, protected):
            of_both = (clusters[one], clusters[other]) if robust else None
            change = compare_changes(sizes[one], sizes[other], clusters=of_both, confidence=confidence)
            named = {"metric": "confound_vs_protected", "attribute": one, "reference_group": other, "n": change.n}
            row = common | named | {"reason": joined(change.reason, None if np.isnan(change.value) else note)}
            yield change.columns() | row
            yield row | {"statistic": "t", "value": change.t}


def dimension_change_rows(faces: VariedFaces) -> Iterator[Row]:
    """Give the change of every dimension and of the control prompts when one attribute is changed (figure B.3).

    As `attribute_change` of a valence, with the interval over sets: of each scale by itself, and of the cosines with
    prompts that name no trait.
    """
    names = [*faces.dimensions, *(name for name in faces.labelled if name not in faces.dimensions)]
    outcomes = {**faces.by_scale, **faces.controls}
    for attribute in names:
        pairs = _pairs(faces, attribute)
        clusters = faces.clusters[pairs[:, 0]]
        for event, outcome in outcomes.items():
            size = np.abs(outcome[pairs[:, 0]] - outcome[pairs[:, 1]]).mean(axis=1)
            mean = mean_change(size, clusters=clusters, confidence=faces.settings.confidence)
            reasons = joined(mean.reason, faces.few_clusters if mean.n else None)
            named = {"metric": "attribute_change", "definition": "by_dimension", "attribute": attribute, "event": event}
            yield faces.common | mean.columns() | named | {"reason": reasons}


def _pairs(faces: VariedFaces, attribute: str) -> NDArray[np.int64]:
    if attribute in faces.labelled:
        others = [name for name in faces.labelled if name != attribute]
        return matched_pairs(faces.records, attribute, fixed=("set_id", "dimension", "level", *others))
    mine = pl.when(pl.col("dimension") == attribute).then("level").alias("varied")
    return matched_pairs(faces.records.with_columns(mine), "varied", fixed=("set_id", *faces.labelled))


def confound_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the confound rows of every perception suite of a cell.

    None where the dataset does not say what is varied in an image and how far (columns `dimension` and `level`), and
    none where the encoder has no cosines. An image without a level, or with one that is not a number, counts nowhere.
    """
    return metric_frame(compute_rows(_parts(cell, settings)))


def _parts(cell: Cell, settings: MetricSettings) -> Iterator[RowPart]:
    for faces in varied_faces(cell, settings):
        for dimension in faces.dimensions:
            yield partial(line_rows, faces, dimension)
        yield from (partial(level_rows, faces), partial(change_rows, faces), partial(dimension_change_rows, faces))


CONFOUNDS = Family(name="confound_metrics", needs=("perception",), compute=confound_rows)
