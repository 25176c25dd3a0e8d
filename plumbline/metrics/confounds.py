"""Confounds: how cosines change with pose, lighting and smiling, beside age, race and gender, which are protected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, RowPart, SuiteLogits, base_row, compute_rows
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.perception import VALENCES, template_means, valence_words
from plumbline.reasons import Reason, Reasons, joined, reason
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.jackknife import fisher_interval, occurring_codes, standard_errors, t_intervals

Floats = NDArray[np.float64]
_NAN = float("nan")


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of (n, w) outcomes for means and lines: mean and variance over the words of each image.

    Attributes
    ----------
    x, mean, spread : (n,) float64
        Level of each image, mean and variance of its outcomes.
    words : int
    clusters : (n,) int64 or None
    """

    x: Floats
    mean: Floats
    spread: Floats
    words: int
    clusters: NDArray[np.int64] | None

    @property
    def rows(self) -> int:
        """Return the number of outcomes."""
        return len(self.x) * self.words


def moments(levels: ArrayLike, outcomes: ArrayLike, clusters: NDArray[np.int64] | None) -> Moments:
    """Return the moments of outcomes, in an order of the images' own.

    Parameters
    ----------
    levels : (n,) float
    outcomes : (n,) or (n, w) float
        Of each image, or of each of its words.
    clusters : (n,) int or None
        Cluster of each image.

    Raises
    ------
    MetricError
        If the arrays do not describe the same images, or hold a value that is not finite.
    """
    x, y = np.asarray(levels, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    table = y[:, None] if y.ndim == 1 else y
    if x.ndim != 1 or table.ndim != 2 or len(table) != len(x) or not table.shape[1]:
        raise MetricError(
            "levels and outcomes must describe the same images",
            found=f"{x.shape} and {y.shape}",
            expected="(n,) and (n,) or (n, words)",
        )
    if clusters is not None and np.shape(clusters) != x.shape:
        raise MetricError("every image needs its cluster", found=f"{np.shape(clusters)} clusters of {x.shape} images")
    if not (np.isfinite(x).all() and np.isfinite(table).all()):
        raise MetricError("a level or an outcome is not a finite number", hint="leave out images without a level")
    mean = table.mean(axis=1)
    # In one order, so that sums do not depend on the order of the images.
    order = np.lexsort((mean, x))
    spread = ((table - mean[:, None]) ** 2).mean(axis=1)
    codes = None if clusters is None else np.asarray(clusters)[order]
    return Moments(x[order], mean[order], spread[order], table.shape[1], codes)


# The mean at every level of a confound


def level_means(
    codes: ArrayLike,
    outcomes: ArrayLike,
    *,
    levels: Sequence[object],
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> EstimateArray:
    """Return the mean outcome at each level of a confound, with t-intervals over images or clusters.

    Parameters
    ----------
    codes : (n,) int
        Position of each image's level in `levels`; -1 for none.
    outcomes : (n,) or (n, w) float
        Outcome of each image, or of each of its words, which are averaged first.
    levels : sequence
        The levels, in the order of the result.
    clusters : (n,) int, optional
        Cluster of each image: the errors are then cluster-robust.
    confidence : float
        Confidence level of the intervals.

    Returns
    -------
    EstimateArray
        Over the levels; n counts images, and a level without images is nan.

    Raises
    ------
    MetricError
        If the arrays do not describe the same images, or an outcome is not finite.
    """
    data = moments(codes, outcomes, clusters)
    unit = "image" if clusters is None else "set"
    means = []
    for code in range(len(levels)):
        chosen = data.x == code
        clusters = None if data.clusters is None else data.clusters[chosen]
        empty, single = reason("empty_level"), reason("single_unit", unit=unit)
        means.append(_mean_estimate(data.mean[chosen], clusters, confidence, empty=empty, single=single))
    value, low, high = np.array([(mean.value, mean.ci_low, mean.ci_high) for mean in means]).reshape(-1, 3).T
    n = np.array([mean.n for mean in means], dtype=np.int64)
    return EstimateArray(value, low, high, n, reason=[mean.reason for mean in means])


def _mean_estimate(
    values: Floats, clusters: NDArray[np.int64] | None, confidence: float, *, empty: Reason, single: Reason
) -> Estimate:
    """Return the mean of some values with its t-interval over values or clusters; reasons are of none and of one."""
    if not len(values):
        return Estimate(_NAN, _NAN, _NAN, 0, reason=(empty,))
    mean = _mean(values)
    error, units = standard_errors((values - mean) / len(values), clusters, every_unit=True)
    low, high = t_intervals(mean, error, units=units, confidence=confidence)
    return Estimate(mean, float(low), float(high), len(values), reason=(single,) if units < 2 else ())


# Linear fit along a confound


@dataclass(frozen=True)
class Coefficient(Estimate):
    """One coefficient of a straight line, its p two-sided against 0; nan where undefined.

    Attributes
    ----------
    error : float
        Standard error.
    """

    error: float = _NAN


@dataclass(frozen=True)
class ConfoundFit:
    """The line outcome = intercept + slope × level.

    Attributes
    ----------
    slope : Coefficient
        Change of the outcome per unit of the level; 0 where the confound does not matter.
    intercept : Coefficient
        Outcome at level 0.
    r_squared : Estimate
        Share of the outcome's variance that the line explains, in [0, 1].
    rows : int
        Rows that were fitted: images × words.
    units : int
        What the errors count as independent: the rows, or the clusters.
    reason : tuple of Reason
        Why something is undefined.
    """

    slope: Coefficient
    intercept: Coefficient
    r_squared: Estimate
    rows: int
    units: int
    reason: Reasons = ()


def confound_fit(
    levels: ArrayLike, outcomes: ArrayLike, *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> ConfoundFit:
    """Fit outcome ~ 1 + level by least squares (Hausladen et al., appendix B.2).

    Every word of every image is a row, as in the paper. Without `clusters` the errors are the classical ones, with
    rows - 2 degrees of freedom: they treat the words of one image, and the images of one person, as independent.
    With `clusters` they are cluster-robust (Liang & Zeger 1986; the factor G/(G - 1) · (N - 1)/(N - 2) and G - 1
    degrees of freedom, as statsmodels' `cov_type="cluster"`). The interval of R² goes through Fisher's z of the
    correlation: 1/√(N - 3) classically, by the influence of each cluster with `clusters`.

    Parameters
    ----------
    levels : (n,) float
        Level of the confound in each image.
    outcomes : (n,) or (n, w) float
        Outcome of each image, or of each of its words.
    clusters : (n,) int, optional
        Cluster of each image.
    confidence : float
        Confidence level of the intervals.

    Returns
    -------
    ConfoundFit
        All nan, with the reason, without images or with a single level. A single cluster leaves the errors undefined,
        and so do two rows. Where the outcome does not vary the slope is 0 and R² and p are nan.

    Raises
    ------
    MetricError
        If the arrays do not describe the same images, or hold a value that is not finite: images without a level
        are left out by the caller.
    """
    data = moments(levels, outcomes, clusters)
    nothing = Estimate(_NAN, _NAN, _NAN)
    if (seen := len(np.unique(data.x))) < 2:
        undefined = Coefficient(_NAN, _NAN, _NAN, p=_NAN)
        missing = joined(reason("one_level" if seen else "no_level"))
        return ConfoundFit(undefined, undefined, nothing, data.rows, 0, missing)
    centre, average = data.x.mean(), data.mean.mean()
    x, y = data.x - centre, data.mean - average
    per_slope = x / (x**2).sum()
    # Weight of each image's mean in slope and intercept, (n, 2).
    weights = np.stack([per_slope, 1 / len(x) - centre * per_slope], axis=1)
    slope = float((x * y).sum() / (x**2).sum())
    intercept = float(average - slope * centre)
    whole = float((y**2 + data.spread).sum())
    # Rounding leaves some 1e-17 of a line that fits, or of an outcome that is constant.
    if whole <= 1e-24 * float((data.mean**2).sum()):
        flat, height = (Coefficient(value, value, value, p=_NAN, error=0.0) for value in (0.0, intercept))
        return ConfoundFit(flat, height, nothing, data.rows, 0, joined(reason("constant_outcome")))
    errors, units, df = _line_errors(data, y - slope * x, weights)
    few = "one set" if clusters is not None else "two rows"
    return ConfoundFit(
        slope=_coefficient(slope, errors[0], df, confidence),
        intercept=_coefficient(intercept, errors[1], df, confidence),
        r_squared=_r_squared(data, x, y, slope, whole, confidence),
        rows=data.rows,
        units=units,
        reason=() if df > 0 else (reason("no_error_units", units=few),),
    )


def _line_errors(data: Moments, residual: Floats, weights: Floats) -> tuple[Floats, int, int]:
    """Return the standard errors of slope and intercept, the independent units behind them, and degrees of freedom."""
    rows = data.rows
    left = rows - 2 if rows > 2 else np.nan
    if data.clusters is None:
        variance = data.words * float((residual**2 + data.spread).sum()) / left
        return np.sqrt(variance * (weights**2).sum(axis=0) / data.words), rows, max(rows - 2, 0)
    errors, n_clusters = standard_errors(weights * residual[:, None], data.clusters, every_unit=True)
    return errors * np.sqrt((rows - 1) / left), n_clusters, n_clusters - 1


def _coefficient(value: float, error: float, df: int, confidence: float) -> Coefficient:
    from scipy.special import stdtr

    if not np.isfinite(error) or df < 1:
        return Coefficient(value, _NAN, _NAN, p=_NAN)
    low, high = t_intervals(value, error, units=df + 1, confidence=confidence)
    p = _NAN if error == value == 0 else 0.0 if error == 0 else float(2 * stdtr(df, -abs(value / error)))
    return Coefficient(value, float(low), float(high), p=p, error=float(error))


def _r_squared(data: Moments, x: Floats, y: Floats, slope: float, whole: float, confidence: float) -> Estimate:
    """Return R² of a line through centred levels and means, with the interval through Fisher's z."""
    r = float(np.clip(slope * np.sqrt((x**2).sum() / whole), -1.0, 1.0))
    if 1 - r**2 < 1e-12:
        return Estimate(r**2, 1.0, 1.0)
    n, error = data.rows, None
    if data.clusters is not None:
        u, v = x / np.sqrt((x**2).mean()), y / np.sqrt(whole / len(x))
        squares = v**2 + data.spread * len(x) / whole
        influence = (u * v - r * (u**2 + squares) / 2) / len(x) / (1 - r**2)
        error = standard_errors(influence, data.clusters, every_unit=True)
    low, high = fisher_interval(r, n, error=error, confidence=confidence)
    ends = (low**2, high**2)
    return Estimate(r**2, 0.0 if low <= 0 <= high else min(ends), max(ends))


# Change of an outcome when one attribute of a face is changed


@dataclass(frozen=True)
class ChangeComparison(Estimate):
    """Mean absolute change by one attribute minus that by another, see `compare_changes`.

    Attributes
    ----------
    t : float
        t statistic; nan where undefined.
    """

    t: float = _NAN


def matched_pairs(records: pl.DataFrame, attribute: str, *, fixed: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the pairs of images that differ in `attribute` and agree in every column of `fixed`.

    Parameters
    ----------
    records : DataFrame
        One row per image.
    attribute : str
        The column that is changed.
    fixed : tuple of str
        Columns that stay, the set among them. An image without one of these labels is in no pair.

    Returns
    -------
    (pairs, 2) int64
        Positions in `records`, each unordered pair once, in the order of the records.
    """
    known = (
        records.select(attribute, *fixed)
        .with_row_index("image")
        .drop_nulls()
        .with_columns(pl.col("image").cast(pl.Int64))
    )
    pairs = known.join(known, on=list(fixed), suffix="_other").filter(
        pl.col("image") < pl.col("image_other"), pl.col(attribute) != pl.col(f"{attribute}_other")
    )
    return pairs.select("image", "image_other").sort("image", "image_other").to_numpy()


def mean_change(changes: ArrayLike, *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95) -> Estimate:
    """Return the mean absolute change with its t-interval.

    Parameters
    ----------
    changes : (p,) float
        Absolute change of the outcome in every pair of images, at least 0.
    clusters : (p,) int, optional
        Cluster of each pair: the error is then cluster-robust. Otherwise every pair counts as independent.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    Estimate
        n counts pairs of images.

    Raises
    ------
    MetricError
        If a change is negative or not finite, or the lengths differ.
    """
    values, clusters = _checked(changes, clusters)
    none, single = reason("no_pair_of_images"), reason("too_few_changes")
    return _mean_estimate(values, clusters, confidence, empty=none, single=single)


def compare_changes(
    first: ArrayLike,
    second: ArrayLike,
    *,
    clusters: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    confidence: float = 0.95,
) -> ChangeComparison:
    """Test whether one attribute moves the outcome as much as another (Hausladen et al., table B.2).

    Without `clusters`: Student's two-sample t-test with equal variances, as scipy's default, every pair of images
    independent. With them: the same difference with its cluster-robust error and clusters - 1 degrees of freedom;
    where all clusters hold the same pairs that is the paired t-test on the clusters' means.

    Parameters
    ----------
    first, second : (p,), (r,) float
        Absolute changes of the outcome under each attribute.
    clusters : pair of (p,), (r,) int, optional
        Cluster of each pair, the same codes on both sides.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    ChangeComparison
        Below 0 where the first moves the outcome less than the second; n counts pairs of images.

    Raises
    ------
    MetricError
        As `mean_change`.
    """
    from scipy.special import stdtr

    (a, sets_a), (b, sets_b) = (
        _checked(values, clusters[side] if clusters else None) for side, values in enumerate((first, second))
    )
    n = len(a) + len(b)
    if not (len(a) and len(b)):
        return ChangeComparison(_NAN, _NAN, _NAN, n, _NAN, joined(reason("no_pair_of_either")))
    mean_a, mean_b = _mean(a), _mean(b)
    influence = np.concatenate([(a - mean_a) / len(a), (mean_b - b) / len(b)])
    difference = mean_a - mean_b
    if sets_a is None or sets_b is None:
        df = n - 2
        pooled = ((a - mean_a) ** 2).sum() + ((b - mean_b) ** 2).sum()
        error = float(np.sqrt(pooled / df * (1 / len(a) + 1 / len(b)))) if df else _NAN
    else:
        robust, n_clusters = standard_errors(influence, np.concatenate([sets_a, sets_b]), every_unit=True)
        error, df = float(robust), n_clusters - 1
    if df < 1 or not error > 0:
        return ChangeComparison(difference, _NAN, _NAN, n, _NAN, joined(reason("untested_changes")))
    low, high = t_intervals(difference, error, units=df + 1, confidence=confidence)
    t = difference / error
    return ChangeComparison(difference, float(low), float(high), n, float(2 * stdtr(df, -abs(t))), t=t)


def _mean(values: NDArray[np.float64]) -> float:
    # Sorted, so that the sum does not depend on the order of the pairs.
    return float(np.sort(values).mean())


def _checked(
    changes: ArrayLike, clusters: NDArray[np.int64] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    values = np.asarray(changes, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise MetricError("absolute changes must be finite numbers of at least 0", found=f"shape {values.shape}")
    if clusters is not None and np.shape(clusters) != values.shape:
        raise MetricError(
            "every change needs its cluster", found=f"{np.shape(clusters)} clusters of {values.shape} changes"
        )
    return values, clusters


# --- Rows of the confound metrics: perceived traits of faces that vary in one thing: pose, lighting, a
# smile, age.


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
    cosine : (e, n) float64
        Template mean of the cosine with each word: the blank first, the words of scales with two poles, all others.
        A row a word, since all that is computed reads a few words of many images.
    valence : (w,) str
        `positive` or `negative`, of the words that follow the blank.
    scales : dict of str to tuple of int
        Places of the words of every scale of the suite, those with one pole too (warmth, competence).
    controls : dict of str to (n,) float64
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
    cosine: Floats
    valence: NDArray[np.str_]
    scales: dict[str, tuple[int, ...]]
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

    def of_valence(self, valence: str | None) -> tuple[int, ...]:
        """Return the places of the words of a valence; without one of both."""
        return tuple(1 + np.flatnonzero(np.isin(self.valence, VALENCES if valence is None else valence)))

    def raw(self, words: Sequence[int], images: NDArray[np.bool_]) -> Floats:
        """Return the (k, w) cosines of some images with some words."""
        return np.stack([self.cosine[word][images] for word in words]).T

    def outcome(self, words: Sequence[int], images: NDArray[np.bool_]) -> Floats:
        """Return the (k, w) cos(word) - cos(blank) of some images and words."""
        return self.raw(words, images) - self.cosine[0][images][:, None]

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
    cosine = np.ascontiguousarray(logits.by_template(tuple(every), template_means, rows).T)
    place = {word: i for i, word in enumerate(every)}
    varied = labels.filter(pl.Series(kept))
    clusters = cluster_codes(varied)
    return VariedFaces(
        common=base_row(cell, suite=suite.id, suite_hash=suite.hash),
        settings=settings,
        records=varied,
        cosine=cosine,
        valence=np.array([valence for _, valence in words.values()]),
        scales={name: tuple(place[word] for word in scale) for name, scale in suite.scales.items()},
        controls={"blank": cosine[0], **_marked(cell, varied, rows)},
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
    return {name: markedness[0].by_template((name,), template_means, rows)[:, 0] for name in chosen}


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
        words = faces.of_valence(valence)
        outcome = faces.outcome(words, mask).mean(axis=1)
        yield "less_blank", valence, outcome, 1.0
        if faces.clustered and levels > 1:
            at_common_mean = outcome - _cluster_means(outcome, faces.clusters[mask]) + outcome.mean()
            yield "within_sets", valence, at_common_mean, float(np.sqrt(levels / (levels - 1)))
        yield "raw", valence, faces.raw(words, mask).mean(axis=1), 1.0
    yield "raw", "blank", faces.cosine[0][mask], 1.0


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
        x, outcome, n = level[chosen], faces.outcome(faces.of_valence(valence), chosen), int(chosen.sum())
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
    confounds = [name for name in faces.dimensions if name not in PROTECTED]
    protected = [name for name in PROTECTED if name in (*faces.dimensions, *faces.labelled)]
    pairs = {name: _pairs(faces, name) for name in (*confounds, *protected)}
    clusters = {name: faces.clusters[of[:, 0]] for name, of in pairs.items()}
    for valence in VALENCES:
        words = faces.of_valence(valence)
        sizes = {name: _changed(faces, of, words) for name, of in pairs.items()}
        yield from _compared_changes(faces, valence, sizes, clusters, [*product(confounds, protected)])


def _compared_changes(
    faces: VariedFaces,
    valence: str,
    sizes: dict[str, Floats],
    clusters: dict[str, NDArray[np.int64]],
    compared: Sequence[tuple[str, str]],
) -> Iterator[Row]:
    """Give the mean of each attribute's changes, and the comparisons of two; with pairs, and with sets as the unit."""
    confidence = faces.settings.confidence
    for definition in ("ttest", "cluster"):
        robust = definition == "cluster"
        note = faces.few_clusters if robust else reason("independent_pairs")
        common = faces.common | {"event": valence, "definition": definition}
        for name, size in sizes.items():
            mean = mean_change(size, clusters=clusters[name] if robust else None, confidence=confidence)
            reasons = joined(mean.reason, note if mean.n else None)
            yield common | mean.columns() | {"metric": "attribute_change", "attribute": name, "reason": reasons}
        for one, other in compared:
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
    for attribute in names:
        pairs = _pairs(faces, attribute)
        clusters = faces.clusters[pairs[:, 0]]
        sizes = {event: _changed(faces, pairs, words) for event, words in faces.scales.items()}
        for event, outcome in faces.controls.items():
            sizes[event] = _differences(outcome, pairs)
        for event, size in sizes.items():
            mean = mean_change(size, clusters=clusters, confidence=faces.settings.confidence)
            reasons = joined(mean.reason, faces.few_clusters if mean.n else None)
            named = {"metric": "attribute_change", "definition": "by_dimension", "attribute": attribute, "event": event}
            yield faces.common | mean.columns() | named | {"reason": reasons}


def _changed(faces: VariedFaces, pairs: NDArray[np.int64], words: Sequence[int]) -> Floats:
    """Return by how much the outcome of the two images of each pair differs, the mean over some words."""
    total = np.zeros(len(pairs))
    for word in words:
        total += _differences(faces.cosine[word] - faces.cosine[0], pairs)
    return total / len(words)


def _differences(values: Floats, pairs: NDArray[np.int64]) -> Floats:
    return np.abs(values[pairs[:, 0]] - values[pairs[:, 1]])


def _pairs(faces: VariedFaces, attribute: str) -> NDArray[np.int64]:
    if attribute in faces.labelled:
        others = [name for name in faces.labelled if name != attribute]
        return matched_pairs(faces.records, attribute, fixed=("set_id", "dimension", "level", *others))
    own_level = pl.when(pl.col("dimension") == attribute).then("level").alias("varied")
    return matched_pairs(faces.records.with_columns(own_level), "varied", fixed=("set_id", *faces.labelled))


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
