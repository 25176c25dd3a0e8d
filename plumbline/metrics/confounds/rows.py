"""Faces that vary in one thing, such as pose or age, with what a perception suite says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import Any, NamedTuple

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
from plumbline.metrics.family import Family, MetricSettings, Traits
from plumbline.metrics.perception import VALENCES, valence_words
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.reasons import joined


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
    def few_clusters(self) -> str | None:
        """Return what to say of few sets."""
        return few_clusters_reason(self.sets) if self.in_sets else None

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


# --- Rows of the mean perceived trait of faces at every level of pose, lighting, a smile or age.


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
                        "reason": joined(found.reasons[i], faces.few_clusters, small),
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


# --- Rows of the lines that perceived traits of faces follow along pose, lighting, a smile or age.

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
        "cluster": faces.few_clusters,
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


# --- Rows of how far a perceived trait moves when one thing about a face is changed.

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
            note = faces.few_clusters if in_sets else "interval takes pairs of images for independent"
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


# --- Rows of the confound metrics: perceived traits of faces that vary in one thing: pose, lighting, a
# smile, age.


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


# --- The confound family: what pose, lighting, a smile and age do to what a model sees in a face.

_DESCRIPTION = """
How far a model's reading of a face follows things that say nothing about the person, on synthetic faces in
which one thing is varied at a time. For pose, lighting and smiling, and for age: the mean perceived trait at
every level; the slope of a straight line through it, with its errors as in the paper and with errors that
respect that the faces of one seed are one person; and whether changing a confound moves the reading as much
as changing gender, race or age. Every number has its sample size, an interval and, where it tests something,
a p-value.
"""


_OF_A_LINE: dict[str, Any] = {
    "function": confound_fit,
    "shape": "scalar",
    "when_identical": None,
    "empty_group": "left_out",
    "ties": "no effect",
}

_TRAITS = (
    Traits(
        name="confound_slope",
        meaning="By how much the perceived trait moves with a step of pose, lighting, smiling or age.",
        formula="β of outcome ~ α + β · level, least squares over the words of all images",
        source="Hausladen et al., Social perception of faces, appendix B.2",
        headline="cluster",
        bounds=(-np.inf, np.inf),
        **_OF_A_LINE,
    ),
    Traits(
        name="confound_intercept",
        meaning="The perceived trait at level 0 of pose, lighting, smiling or age.",
        formula="α of outcome ~ α + β · level",
        source="Hausladen et al., Social perception of faces, appendix B.2",
        bounds=(-np.inf, np.inf),
        scale="equivariant",
        # Level and outcome are shifted together.
        shift=None,
        **_OF_A_LINE,
    ),
    Traits(
        name="confound_r_squared",
        meaning=(
            "The share of the variance of the perceived trait that a straight line through the levels "
            "explains."
        ),
        formula="R² of outcome ~ α + β · level",
        source="Hausladen et al., Social perception of faces, appendix B.2",
        bounds=(0, 1),
        **_OF_A_LINE,
    ),
    Traits(
        name="perception_by_level",
        meaning="The mean perceived trait at one level of pose, lighting, smiling or age.",
        formula="mean over the images of a level of the outcome",
        source="Hausladen et al., Social perception of faces, appendix B.2 and figure B.2",
        function=level_means,
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
        scale="equivariant",
        shift="equivariant",
    ),
    Traits(
        name="attribute_change",
        meaning="By how much the perceived trait moves when one thing about a face is changed.",
        formula="mean over pairs of images of a set that differ in this alone of |difference of the outcome|",
        source="Hausladen et al., Social perception of faces, table B.2 and figure 4",
        function=mean_change,
        bounds=(0, np.inf),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
        ties="no effect",
        scale="equivariant",
    ),
    Traits(
        name="confound_vs_protected",
        meaning=(
            "Whether changing a confound moves the reading as much as changing gender, race or age; below "
            "0: less."
        ),
        formula="mean change by the confound - mean change by the protected attribute",
        source="Hausladen et al., Social perception of faces, table B.2",
        function=compare_changes,
        bounds=(-np.inf, np.inf),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
        ties="no effect",
        scale="equivariant",
        # Absolute values are taken after the shift.
        shift=None,
    ),
)

CONFOUNDS = Family(
    name="confound_metrics",
    title="Confounds",
    description=" ".join(_DESCRIPTION.split()),
    code_version="1",
    needs=("perception",),
    traits=_TRAITS,
    compute=confound_rows,
)
