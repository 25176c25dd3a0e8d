"""SC-WEAT and WEAT: how much closer one group's images lie to a word, or to one pole of words, than another's.

Sources: Hausladen et al., "Social perception of faces in a vision-language model", appendix A.2, equations 2 to 6,
after Steed & Caliskan (2021); Caliskan, Bryson & Narayanan (2017), "Semantics derived automatically from language
corpora contain human-like biases".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.blocks import blocks
from plumbline.catalog.schema import Row, metric_frame
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, CellName, RowPart, base_row, compute_rows
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.inputs import as_generator
from plumbline.metrics.markedness import markedness_parts
from plumbline.metrics.perception import Perception, correlation_rows, perception_of
from plumbline.reasons import Reasons, joined, reason, small_groups_reason
from plumbline.statistics.cluster_bootstrap import undefined
from plumbline.statistics.clusters import few_clusters_reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.jackknife import ErrorSums, occurring_codes, standard_errors, t_intervals
from plumbline.statistics.partitions import (
    SLACK,
    Alternative,
    PartitionTests,
    exact_partition_test,
    is_exact,
    random_partition_test,
    random_subset_chains,
    random_subsets,
    smaller_size,
)

Test = Literal["studentised", "raw_means"]


@dataclass(frozen=True)
class Association:
    """The association of one set of words, see `sc_weat` and `weat`.

    Attributes
    ----------
    statistic : float
        SC-WEAT: mean of s over the words. WEAT: sum over X of s minus sum over Y of s.
    effect_size : float
        In standard deviations; nan where s does not vary.
    p_value : float
        Of the permutation test of "the groups are exchangeable".
    exact : bool
        Whether p comes from all partitions.
    reason : tuple of Reason
        Why something is nan.
    """

    statistic: float
    effect_size: float
    p_value: float
    exact: bool
    reason: Reasons = ()


@dataclass(frozen=True)
class Associations:
    """Associations of words with two groups of images, see `sc_weat`.

    Attributes
    ----------
    statistic : (m,) float64
        Mean cosine of the first group minus that of the second; positive: the word lies closer to the first.
    effect_size : (m,) float64
        The statistic over the standard deviation of all images (eq. 4): not Cohen's d, whose standard deviation is
        within groups; with equal groups it stays within -2 and 2.
    p_value : (m,) float64
        Of the permutation test of "the groups are exchangeable".
    exact : bool
        Whether p comes from all partitions.
    category : Association
        The same for the mean over the words.
    reason : tuple of Reason
        Why something is nan.
    """

    statistic: NDArray[np.float64]
    effect_size: NDArray[np.float64]
    p_value: NDArray[np.float64]
    exact: bool
    category: Association
    reason: Reasons = ()


def sc_weat(
    similarities: ArrayLike,
    in_a: ArrayLike,
    *,
    permutations: int = 10_000,
    seed: int | np.random.Generator = 0,
    alternative: Alternative = "greater",
    test: Test = "studentised",
    strict: bool = False,
    ddof: int = 1,
    interval: bool | float = False,
) -> Associations | EstimateArray:
    """Return the single-category word embedding association test of every column.

    s(x, A, B) = mean over A of cos(x, a) - mean over B of cos(x, b) (eq. 2); es = s / sd of cos(x, z) over all z in A
    and B (eq. 4). `category` has the means of both over the columns (eqs. 3 and 5). Its studentised test is of the mean
    es, which may have another sign than the mean s where words vary unequally; with `raw_means` it is the paper's, of
    the mean s (eq. 6).

    Parameters
    ----------
    similarities : (n, m) float
        Cosine of each image with each word.
    in_a : (n,) bool
        Images of the first group A; the others are B. Sizes may differ, and the partitions keep them.
    permutations : int
        Number of random partitions, drawn where more than `plumbline.statistics.partitions.EXACT_LIMIT` exist.
    seed : int or Generator
        Of the random partitions; not used where all are enumerated.
    alternative : {"greater", "less", "two-sided"}
        "greater" is the paper's: A is closer to the word than B.
    test : {"studentised", "raw_means"}
        What is compared between partitions: the difference of means over its standard error, sqrt(s_A² / a + s_B² / b),
        which keeps the level of the test where the groups have unequal spread (Janssen 1997; Chung & Romano 2013), or
        the difference itself, as in the paper. The two agree where both groups have equally many images; a group of
        one image has no spread, and the difference itself is compared. Where the groups differ in size and the smaller
        has 2 to 39 images, the studentised p is no less than Welch's; where no partition is as extreme, it comes from
        a fitted tail (`plumbline.statistics.permutation.tail_p_values`).
    strict : bool
        False: partitions that tie with the observed one (to 1e-12) count as extreme, and with random partitions p is
        (1 + count) / (1 + permutations). True: the share of strictly more extreme partitions, as the paper writes it.
    ddof : int
        Delta degrees of freedom of the standard deviation: 1 or 0. An interval is of the effect size with 1.
    interval : bool or float
        Whether the effect sizes, with `ddof` 1, are returned with intervals of 95%, or of the confidence that is given.

    Returns
    -------
    Associations, or with `interval` an EstimateArray (m,) of the effect sizes
        Effect sizes are nan where a column does not vary (by over 1e-12), and so is the category's then; everything
        is nan where a group is empty.

    Raises
    ------
    MetricError
        If the shapes do not fit, a similarity is not finite, there is no column, or a parameter is unknown.

    Examples
    --------
    >>> import plumbline
    >>> found = plumbline.sc_weat([[0.3], [0.4], [0.1], [0.2]], [True, True, False, False])
    >>> round(found.effect_size[0], 2), round(found.p_value[0], 3), found.exact
    (1.55, 0.167, True)
    """
    columns, members = _checked(similarities, in_a, permutations, alternative, test)
    m = columns.shape[1]
    if members.all() or not members.any():
        nothing, empty = np.full(m, np.nan), joined(reason("empty_group"))
        if interval is not False:
            return EstimateArray(nothing, nothing, nothing, p=nothing, n=np.full(m, len(columns)), reason=(empty,) * m)
        category = Association(np.nan, np.nan, np.nan, False, empty)
        return Associations(nothing, nothing, nothing, False, category, empty)
    statistic, effect_size = association_sizes(columns, members, ddof=ddof)
    of_mean = columns if test == "raw_means" else _in_deviations(columns)
    with_mean = np.column_stack([columns, of_mean.mean(axis=1)])
    raw = slice(None) if test == "raw_means" else slice(0)
    if is_exact(members):
        tests = exact_partition_test(with_mean, members, raw=raw)
    else:
        size = smaller_size(members)
        drawn = random_subsets(len(columns), [size], count=permutations, rng=as_generator(seed))
        tests = random_partition_test(with_mean, [members], [size], drawn, raw=raw)[0]
    counts = tests.raw if test == "raw_means" else tests.studentised
    p_value, constant = counts.p_values(alternative, strict=strict), int(np.isnan(effect_size).sum())
    reasons = joined(reason("constant_columns", constant=constant, columns=m) if constant else None)
    if interval is not False:
        level = 0.95 if interval is True else interval
        weights = np.full((m, 1), 1 / m)
        return replace(association_estimates(columns, members, weights, confidence=level).effect_size, p=p_value[:m])
    category = Association(float(statistic.mean()), float(effect_size.mean()), float(p_value[m]), counts.exact, reasons)
    return Associations(statistic, effect_size, p_value[:m], counts.exact, category, reasons)


class AssociationSizes(NamedTuple):
    """Statistics s and effect sizes es of columns, (m,) each."""

    statistic: NDArray[np.float64]
    effect_size: NDArray[np.float64]


def association_sizes(columns: NDArray[np.float64], in_a: NDArray[np.bool_], *, ddof: int = 1) -> AssociationSizes:
    """Return the difference of means of each column (n, m) and its effect size, which is nan without variation."""
    statistic = columns[in_a].mean(axis=0) - columns[~in_a].mean(axis=0)
    return AssociationSizes(statistic, statistic / column_spread(columns, ddof=ddof))


def column_spread(columns: NDArray[np.float64], *, ddof: int = 0) -> NDArray[np.float64]:
    """Return the standard deviation of each column (n, m); nan without variation."""
    if len(columns) <= ddof:
        return np.full(columns.shape[1], np.nan)
    return np.where(np.ptp(columns, axis=0) > SLACK, columns.std(axis=0, ddof=ddof), np.nan)


def _in_deviations(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return columns (n, m) over their standard deviations; 0 without variation.

    Every partition of the images leaves these as they are, so that a test of a mean of such columns is one of the mean
    effect size.
    """
    return columns * _per_deviation(column_spread(columns))


def _per_deviation(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(1, spread, out=np.zeros_like(spread), where=~np.isnan(spread))


def _checked(
    similarities: ArrayLike, in_a: ArrayLike, permutations: int, alternative: str, test: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    columns, members = np.asarray(similarities, dtype=np.float64), np.asarray(in_a)
    if columns.ndim != 2 or columns.shape[1] == 0 or members.shape != columns.shape[:1]:
        raise MetricError(
            "similarities and group must describe the same images",
            found=f"similarities {columns.shape}, in_a {members.shape}",
            expected="(n, m) with m at least 1, and (n,)",
        )
    if members.dtype != np.bool_:
        raise MetricError(
            "the group must be a mask", found=members.dtype, expected="bool: True for the images of the first group"
        )
    if not np.isfinite(columns).all():
        bad = np.argwhere(~np.isfinite(columns))[0]
        raise MetricError("a similarity is not finite", where=f"row {bad[0]}, column {bad[1]}")
    if permutations < 1:
        raise MetricError("a test needs permutations", found=f"permutations={permutations}", expected="at least 1")
    if alternative not in ("greater", "less", "two-sided") or test not in get_args(Test):
        raise MetricError(
            "unknown test",
            found=f"alternative={alternative!r}, test={test!r}",
            expected='"greater", "less" or "two-sided"; "studentised" or "raw_means"',
        )
    return columns, members


def weat(
    x: ArrayLike,
    y: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    *,
    permutations: int = 10_000,
    seed: int | np.random.Generator = 0,
    alternative: Alternative = "greater",
    test: Test = "studentised",
    ddof: int = 1,
    interval: bool | float = False,
) -> Association | Estimate:
    """Return the association of targets X against Y with attributes A against B.

    s(w) = mean over A of cos(w, a) - mean over B of cos(w, b); S = sum over X of s - sum over Y of s;
    d = (mean over X of s - mean over Y of s) / sd of s over X and Y.

    Parameters
    ----------
    x, y : (., d) float
        Embeddings of the two sets of targets, images or texts, of any norm; sizes may differ, and partitions keep them.
    a, b : (., d) float
        Embeddings of the two sets of attributes.
    permutations, seed, alternative, test, ddof, interval
        As in `sc_weat`; the interval is over the targets.

    Returns
    -------
    Association, or with `interval` an Estimate of the effect size
        The effect size is positive where X lies closer to A. All nan where a set of targets or of attributes is empty.

    Raises
    ------
    MetricError
        If the dimensions differ, or an embedding is not finite or has no direction.

    Examples
    --------
    >>> import plumbline
    >>> found = plumbline.weat([[1, 0], [2, 1]], [[0, 1], [1, 3]], a=[[1, 0]], b=[[0, 1]])
    >>> round(found.effect_size, 2)
    1.66
    """
    unit_embeddings = [_directions(e, name) for e, name in ((x, "x"), (y, "y"), (a, "a"), (b, "b"))]
    if len({e.shape[1] for e in unit_embeddings}) > 1:
        raise MetricError(
            "embeddings of different dimensions cannot be compared", found=[e.shape for e in unit_embeddings]
        )
    if not all(len(e) for e in unit_embeddings):
        if interval is not False:
            return undefined(reason("empty_set"), n=len(unit_embeddings[0]) + len(unit_embeddings[1]))
        return Association(np.nan, np.nan, np.nan, False, joined(reason("empty_set")))
    targets = np.concatenate(unit_embeddings[:2])
    association = targets @ unit_embeddings[2].mean(axis=0) - targets @ unit_embeddings[3].mean(axis=0)
    in_x = np.arange(len(targets)) < len(unit_embeddings[0])
    # With the sizes fixed, S rises with the difference of means, so the test is that of one SC-WEAT column.
    column: Any = sc_weat(
        association[:, None], in_x, permutations=permutations, seed=seed, alternative=alternative, test=test, ddof=ddof,
        interval=interval,
    )  # fmt: skip
    if interval is not False:
        return column[0]
    return Association(
        statistic=float(association[in_x].sum() - association[~in_x].sum()),
        effect_size=float(column.effect_size[0]),
        p_value=float(column.p_value[0]),
        exact=column.exact,
        reason=joined(reason("constant_association") if column.reason else None),
    )


def _directions(embeddings: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return embeddings with unit norm."""
    values = np.asarray(embeddings, dtype=np.float64)
    if values.ndim != 2:
        raise MetricError("a set of embeddings must be a table", where=name, found=values.shape, expected="(., d)")
    norm = np.linalg.norm(values, axis=1, keepdims=True)
    if not np.isfinite(values).all() or (norm == 0).any():
        raise MetricError("an embedding is not finite, or is zero and has no direction", where=name)
    return values / norm


# Inference: intervals from the influence of every image.


_COLUMNS = 8
"""Columns of a million images whose influences are in memory at a time; more of fewer images."""


class AssociationEstimates(NamedTuple):
    """Estimates of s and es of columns, (m,), and of their means, (c,), see `association_estimates`."""

    statistic: EstimateArray
    effect_size: EstimateArray
    mean_statistic: EstimateArray
    mean_effect_size: EstimateArray


def association_estimates(
    columns: NDArray[np.float64],
    in_a: NDArray[np.bool_],
    category_weights: NDArray[np.float64],
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
    spread: NDArray[np.float64] | None = None,
) -> AssociationEstimates:
    """Return s and es of every column with intervals from the infinitesimal jackknife.

    Parameters
    ----------
    columns : (n, m) float64
    in_a : (n,) bool
        Images of the first group; both groups have images.
    category_weights : (m, c) float64
        Weights of the columns in each category, whose s and es are weighted sums (equations 3 and 5).
    clusters : (n,) int, optional
        Cluster of each image; errors are then cluster-robust.
    confidence : float
    spread : (m,) float64, optional
        `column_spread` of the columns, which other contrasts of the same images share.

    Returns
    -------
    AssociationEstimates
        p is two-sided, of the t test that the value is 0. Group sizes are treated as fixed. Degrees of freedom are
        those of the group with fewer images, or clusters: conservative (Welch's lie between these and those of all).
        No interval where a group has one image, or one cluster.
    """
    from scipy.special import stdtr

    n, m = columns.shape
    units = min(
        int(mask.sum()) if clusters is None else len(occurring_codes(clusters[mask]).codes) for mask in (in_a, ~in_a)
    )
    spread = column_spread(columns) if spread is None else spread
    # The images of A, then those of B.
    order, first = np.argsort(~in_a, kind="stable"), int(in_a.sum())
    clusters = None if clusters is None else clusters[order]
    errors, of_effects = ErrorSums(clusters), ErrorSums(clusters)
    of_means = AssociationInfluences(*np.zeros((2, n, category_weights.shape[1])))
    statistics = []
    # Some columns at a time: the influences of all would take several times the memory of the columns.
    for part in blocks(0, m, n // _COLUMNS):
        few, weights = columns[:, part].take(order, axis=0), category_weights[part]
        statistics.append(few[:first].mean(axis=0) - few[first:].mean(axis=0))
        of_statistic, of_effect = influences(few, first, spread[part])
        errors.add(of_statistic)
        of_effects.add(of_effect)
        of_means.statistic[:] += of_statistic @ weights
        of_means.effect_size[:] += _weighted(of_effect, weights)
    statistic = np.concatenate(statistics)
    # The effect size is over the standard deviation of a sample.
    effect_size = statistic / (spread * np.sqrt(n / (n - 1)))

    def estimates(value: NDArray[np.float64], error: NDArray[np.float64]) -> EstimateArray:
        low, high = t_intervals(value, error, units=units, confidence=confidence)
        known = (error > 0) & ~np.isnan(low)
        score = np.divide(value, error, out=np.full(value.shape, np.nan), where=known)
        missing = [
            "constant_cosines" if np.isnan(v) else "one_unit_in_group" if np.isnan(end) else None
            for v, end in zip(value, low)
        ]
        return EstimateArray(
            value,
            low,
            high,
            n=np.full(value.shape, n),
            p=2 * stdtr(max(units - 1, 1), -np.abs(score)),
            reason=[joined(reason(code) if code else None) for code in missing],
        )

    of_mean, of_mean_effect = (standard_errors(each, clusters).error for each in of_means)
    return AssociationEstimates(
        statistic=estimates(statistic, errors.total().error),
        effect_size=estimates(effect_size, of_effects.total().error),
        mean_statistic=estimates(statistic @ category_weights, of_mean),
        mean_effect_size=estimates(_weighted(effect_size, category_weights), of_mean_effect),
    )


class AssociationInfluences(NamedTuple):
    """Influences of each image on the statistics and effect sizes of columns, (n, m) each."""

    statistic: NDArray[np.float64]
    effect_size: NDArray[np.float64]


def influences(columns: NDArray[np.float64], first: int, spread: NDArray[np.float64]) -> AssociationInfluences:
    """Return the (n, m) influence of each image on s and on es, within its own group.

    The variance over both groups is the mean of the groups' variances, weighted by their shares, plus the product of
    the shares times s²: an image influences it through its own squared deviation, and through s.

    Parameters
    ----------
    columns : (n, m) float64
    first : int
        How many images, the first ones, are of A.
    spread : (m,) float64
        `column_spread` of the columns.
    """
    n = len(columns)
    share, means = first / n, [part.mean(axis=0) for part in (columns[:first], columns[first:])]
    shift = means[0] - means[1]
    linear = (1 - share * (1 - share) * (shift / spread) ** 2) / spread
    quadratic = shift / (2 * spread**3 * n)
    of_statistic, of_effect = np.empty_like(columns), np.empty_like(columns)
    for rows, mean, sign in zip((slice(first), slice(first, None)), means, (1, -1)):
        centred, effect = of_statistic[rows], of_effect[rows]
        np.subtract(columns[rows], mean, out=centred)
        np.square(centred, out=effect)
        effect -= effect.mean(axis=0)
        effect *= -quadratic
        centred *= sign / len(centred)
        effect += centred * linear
    return AssociationInfluences(of_statistic, of_effect)


def _weighted(values: NDArray[np.float64], category_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values @ category_weights; nan only for categories with an undefined column."""
    missing = np.isnan(values)
    if not missing.any():
        return values @ category_weights
    total = np.where(missing, 0.0, values) @ category_weights
    return np.where(missing.astype(np.float64) @ (category_weights != 0) > 0, np.nan, total)


# Rows: the contrasts of groups, for every word, scale and dimension.

COMPOSITE = "gender_race"
OTHERS = "others"
"""The reference group where there are more than two: all labelled images that are not of the group."""


@dataclass(frozen=True)
class Contrast:
    """Two groups of images: A against B."""

    group: str
    reference: str
    in_a: NDArray[np.bool_]


def association_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the metric rows of the perception and markedness suites that the cell has cosines and labels for.

    With two groups the first by name is compared with the second (man - woman); with more each with all others. The
    test is one-sided as in the paper: p is small where the group lies closer to the word, large where its reference
    does; `two_sided` rows test both directions. The difference of means is studentised; `raw_means` rows, and those of
    `strict`, have the paper's test of the difference itself. Partitions treat images as exchangeable. With clustered
    images that is conservative where groups vary within clusters and liberal where they vary between clusters:
    `cluster_t` rows then have the two-sided t test with the cluster-robust errors of the intervals.
    """
    return metric_frame(compute_rows(_parts(cell, settings)))


def _parts(cell: Cell, settings: MetricSettings) -> Iterator[RowPart]:
    # Random partitions are drawn by position: sorted by id, results do not depend on the order of the records.
    order = cell.records["image_id"].arg_sort().to_numpy()
    for logits in cell.logits.values():
        if logits.cosine is None:
            continue
        if logits.suite.family == "perception":
            kept = order[cell.rows(logits.suite.id)[order]]
            labels = cell.labels(logits.suite.id)[kept]
            attributes, perception = attribute_groups(labels), perception_of(logits, kept, labels)
            for groups in attributes:
                if groups.attribute != COMPOSITE:
                    yield partial(_attribute_rows, cell.name, perception, groups, settings)
            yield partial(correlation_rows, cell.name, perception, attributes, settings)
        elif logits.suite.family == "markedness":
            yield from markedness_parts(cell, logits, order, settings)


def _contrasts(groups: Groups) -> list[Contrast]:
    """Return the pairs of groups to compare; none with fewer than two groups."""
    if len(groups.names) == 2:
        return [Contrast(*groups.names, groups.codes == 0)]
    if len(groups.names) < 2:
        return []
    return [Contrast(name, OTHERS, groups.codes == i) for i, name in enumerate(groups.names)]


def _attribute_rows(cell: CellName, perception: Perception, groups: Groups, settings: MetricSettings) -> Iterator[Row]:
    labelled = groups.codes >= 0
    contrasts = _contrasts(replace(groups, codes=groups.codes[labelled]))
    if not contrasts:
        return
    columns = perception.cosine if labelled.all() else perception.cosine[labelled]
    clusters = None if perception.clusters is None else perception.clusters[labelled]
    scales = np.stack(list(perception.scales.values()), axis=1)
    # A dimension is a column of its own: the words of one pole minus those of the other, image by image. So is the
    # mean effect size of a scale: the mean of its words, each over its standard deviation.
    of_words = column_spread(columns)
    in_deviations = scales * _per_deviation(of_words)[:, None]
    mixtures = np.column_stack([*perception.dimensions.values(), scales, in_deviations])
    tested = np.column_stack([columns, columns @ mixtures])
    permuted = _partition_tests(tested, contrasts, settings, mixtures, of_scales=scales.shape[1])
    with_dimensions = tested[:, : columns.shape[1] + len(perception.dimensions)]
    spread = np.concatenate([of_words, column_spread(with_dimensions[:, columns.shape[1] :])])
    category_weights = np.concatenate([scales, np.zeros((len(perception.dimensions), scales.shape[1]))])
    suite = base_row(cell, suite=perception.suite_id, suite_hash=perception.suite_hash, attribute=groups.attribute)
    for contrast, tests in zip(contrasts, permuted):
        estimates = association_estimates(
            with_dimensions,
            contrast.in_a,
            category_weights,
            clusters=clusters,
            confidence=settings.confidence,
            spread=spread,
        )
        inside = int(contrast.in_a.sum())
        names, sizes = (contrast.group, contrast.reference), [inside, len(contrast.in_a) - inside]
        reasons = joined(small_groups_reason(names, sizes, settings.min_group), few_clusters_reason(clusters))
        common = suite | {"group": contrast.group, "reference_group": contrast.reference}
        for row in _contrast_columns(perception, estimates, tests, n=len(columns), clustered=clusters is not None):
            yield common | row | {"reason": joined(row["reason"], reasons)}


def _partition_tests(
    columns: NDArray[np.float64],
    contrasts: list[Contrast],
    settings: MetricSettings,
    mixtures: NDArray[np.float64],
    *,
    of_scales: int,
) -> list[PartitionTests]:
    """Compare the words, dimensions and scales of every contrast with other partitions of the same sizes.

    Parameters
    ----------
    mixtures : (w, e) float64
        Weights of the words in dimensions, scales, and scales in standard deviations: the last e columns. Of dimensions
        and scales raw means are tested too.
    of_scales : int
        How many scales there are.
    """
    raw = slice(len(mixtures), columns.shape[1] - of_scales)
    tests: dict[str, PartitionTests] = {}
    sampled: list[Contrast] = []
    for contrast in contrasts:
        if is_exact(contrast.in_a):
            tests[contrast.group] = exact_partition_test(columns, contrast.in_a, raw=raw)
        else:
            sampled.append(contrast)
    sizes = [smaller_size(contrast.in_a) for contrast in sampled]
    for chained, drawn in random_subset_chains(len(columns), sizes, count=settings.permutations, seed=settings.seed):
        chosen = [c for c, size in zip(sampled, sizes) if size in chained]
        of_chain = random_partition_test(columns, [c.in_a for c in chosen], chained, drawn, raw=raw, mixtures=mixtures)
        tests |= {contrast.group: each for contrast, each in zip(chosen, of_chain)}
    return [tests[contrast.group] for contrast in contrasts]


def _contrast_columns(
    perception: Perception, estimates: AssociationEstimates, tests: PartitionTests, *, n: int, clustered: bool
) -> Iterator[dict[str, Any]]:
    """Give the columns of the rows of one contrast: words, then scales, then dimensions.

    Columns were tested in the order of words, dimensions, scales, scales in standard deviations; the raw means of
    dimensions and scales alone.
    """
    greater, two_sided = both = tests.studentised.p_values(), tests.studentised.p_values("two-sided")
    raw, strict = tests.raw.p_values(), tests.raw.p_values(strict=True)
    words, dimensions = len(perception.words), len(perception.dimensions)

    def tested(metric: str, definition: str, estimate: Estimate, p: float | None) -> dict[str, Any]:
        named = {"metric": metric, "definition": definition, "p": None if p is None else float(p)}
        return estimate.columns() | named

    for i, word in enumerate(perception.words):
        yield tested("sc_weat_effect", "studentised", estimates.effect_size[i], greater[i]) | {"probe": word}
    # From effect sizes with ddof = 1 to those with ddof = 0.
    factor = float(np.sqrt(n / (n - 1)))
    for i, scale in enumerate(perception.scales):
        effect, statistic, place = estimates.mean_effect_size[i], estimates.mean_statistic[i], words + dimensions + i
        of_effect = [p[place + len(perception.scales)] for p in both]
        ends = {name: getattr(effect, name) * factor for name in ("value", "ci_low", "ci_high")}
        rows = [
            tested("sc_weat_effect", "studentised", effect, of_effect[0]),
            tested("sc_weat_effect", "ddof_0", replace(effect, **ends), of_effect[0]),
            tested("sc_weat_effect", "raw_means", effect, raw[place - words]),
            tested("sc_weat_effect", "strict", effect, strict[place - words]),
            tested("sc_weat_effect", "two_sided", effect, of_effect[1]),
            tested("sc_weat_statistic", "studentised", statistic, greater[place]),
        ]
        if clustered:
            rows.append(tested("sc_weat_effect", "cluster_t", effect, effect.p))
        yield from (row | {"event": scale} for row in rows)
    for i, dimension in enumerate(perception.dimensions):
        effect, place = estimates.effect_size[words + i], words + i
        rows = [
            tested("weat_effect", "studentised", effect, greater[place]),
            tested("weat_effect", "raw_means", effect, raw[i]),
            tested("weat_effect", "two_sided", effect, two_sided[place]),
        ]
        if clustered:
            rows.append(tested("weat_effect", "cluster_t", effect, estimates.statistic[words + i].p))
        yield from (row | {"event": dimension} for row in rows)


ASSOCIATIONS = Family(name="association_metrics", needs=("perception", "markedness"), compute=association_rows)
