"""SC-WEAT: how much closer one group's images lie to a word than another's.

Source: Hausladen et al., "Social perception of faces in a vision-language model", appendix A.2, equations 2 to 6, after
Steed & Caliskan (2021).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from plumbline.catalog.schema import Row, metric_frame
from plumbline.concurrency import run_threads
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, SuiteLogits, base_row
from plumbline.metrics.family import Family, MetricSettings, Traits
from plumbline.metrics.markedness import markedness, markedness_gap, markedness_parts
from plumbline.metrics.perception import Perception, perception_of
from plumbline.metrics.valence_correlation import correlation_rows, valence_correlation
from plumbline.statistics.clusters import few_clusters_reason
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.jackknife import standard_errors, t_intervals
from plumbline.statistics.partitions import (
    SLACK,
    Alternative,
    PermutationCounts,
    exact_permutation,
    is_exact,
    random_permutation,
    random_subset_chains,
    random_subsets,
    smaller_size,
    standardised,
)
from plumbline.statistics.reasons import joined, small_groups_reason


@dataclass(frozen=True)
class CategoryAssociation:
    """The association of a set of words, see `sc_weat`.

    Attributes
    ----------
    statistic, effect_size, p_value : float
        nan where undefined.
    """

    statistic: float
    effect_size: float
    p_value: float


@dataclass(frozen=True)
class Associations:
    """Associations of words with two groups of images, see `sc_weat`.

    Attributes
    ----------
    statistic : (m,) float64
        Mean cosine of the first group minus that of the second; positive: the word lies closer to the first.
    effect_size : (m,) float64
        The statistic in standard deviations over all images (Cohen's d).
    p_value : (m,) float64
        Against "the groups are interchangeable".
    exact : bool
        Whether p comes from all partitions.
    category : CategoryAssociation
        The same for the mean over the words.
    reason : str or None
        Why something is nan.
    """

    statistic: NDArray[np.float64]
    effect_size: NDArray[np.float64]
    p_value: NDArray[np.float64]
    exact: bool
    category: CategoryAssociation
    reason: str | None


def sc_weat(
    similarities: ArrayLike,
    in_a: ArrayLike,
    *,
    permutations: int = 10_000,
    rng: np.random.Generator,
    alternative: Alternative = "greater",
    strict: bool = False,
    ddof: int = 1,
) -> Associations:
    """Return the single-category word embedding association test of every column.

    s(x, A, B) = mean over A of cos(x, a) - mean over B of cos(x, b) (eq. 2); es = s / sd over A and B of cos(x, z)
    (eq. 4); over the columns their means (eqs. 3 and 5), tested by the mean of s (eq. 6).

    Parameters
    ----------
    similarities : (n, m) float
        Cosine of each image with each word.
    in_a : (n,) bool
        Images of the first group A; the others are B. Sizes may differ, and the partitions keep them.
    permutations : int
        Random partitions, where there are more than `plumbline.statistics.partitions.EXACT_LIMIT` in all.
    rng : Generator
        Source of the random partitions; not used where all are enumerated.
    alternative : {"greater", "less", "two-sided"}
        "greater" is the paper's: A is closer than interchangeable groups would be.
    strict : bool
        False: partitions that tie with the observed one (to 1e-12) count, and of random ones p is (1 + count) /
        (1 + permutations). True: the share of partitions strictly beyond, as the paper writes it.
    ddof : int
        Of the standard deviation: 1, or 0.

    Returns
    -------
    Associations
        Effect sizes are nan where a column does not vary (by over 1e-12), and so is the category's then; everything
        is nan where a group is empty.

    Raises
    ------
    MetricError
        If the shapes do not fit, a similarity is not finite, there is no column, or a parameter is unknown.
    """
    columns, members = _checked(similarities, in_a, permutations, alternative)
    m = columns.shape[1]
    if members.all() or not members.any():
        nothing, undefined = np.full(m, np.nan), CategoryAssociation(np.nan, np.nan, np.nan)
        return Associations(nothing, nothing, nothing, False, undefined, "empty group")
    statistic, effect_size = association_sizes(columns, members, ddof=ddof)
    tails, flat = _tails(columns, members, permutations, rng), int(np.isnan(effect_size).sum())
    p_value = tails.p_values(alternative, strict=strict)
    return Associations(
        statistic=statistic,
        effect_size=effect_size,
        p_value=p_value[:m],
        exact=tails.exact,
        category=CategoryAssociation(float(statistic.mean()), float(effect_size.mean()), float(p_value[m])),
        reason=f"{flat} of {m} columns do not vary: no effect size" if flat else None,
    )


class AssociationSizes(NamedTuple):
    """The statistics s and effect sizes es of columns: (m,) float64 both; or how each of n images moves them."""

    statistic: NDArray[np.float64]
    effect_size: NDArray[np.float64]


def association_sizes(
    columns: NDArray[np.float64], in_a: NDArray[np.bool_], *, ddof: int = 1
) -> AssociationSizes:
    """Return the difference of means of each column (n, m) and its effect size, which is nan without variation."""
    n = len(columns)
    statistic = columns[in_a].mean(axis=0) - columns[~in_a].mean(axis=0)
    varies = np.ptp(columns, axis=0) > SLACK
    spread = columns.std(axis=0, ddof=ddof) if n > ddof else np.full(columns.shape[1], np.nan)
    effect_size = np.divide(statistic, spread, out=np.full(statistic.shape, np.nan), where=varies)
    return AssociationSizes(statistic, effect_size)


def _tails(
    columns: NDArray[np.float64], in_a: NDArray[np.bool_], permutations: int, rng: np.random.Generator
) -> PermutationCounts:
    """Compare the columns and their mean with other partitions."""
    m = columns.shape[1]
    if is_exact(in_a):
        return exact_permutation(np.concatenate([columns, columns.mean(axis=1, keepdims=True)], axis=1), in_a)
    size = smaller_size(in_a)
    blocks = random_subsets(len(columns), [size], count=permutations, rng=rng)
    mean = np.full((m, 1), 1 / m)
    return random_permutation(standardised(columns), mean, [in_a], [size], blocks)[0]


def _checked(
    similarities: ArrayLike, in_a: ArrayLike, permutations: int, alternative: str
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
            "the group must be a mask",
            found=members.dtype,
            expected="bool: True for the images of the first group",
        )
    if not np.isfinite(columns).all():
        bad = np.argwhere(~np.isfinite(columns))[0]
        raise MetricError("a similarity is not finite", where=f"row {bad[0]}, column {bad[1]}")
    if permutations < 1 or alternative not in ("greater", "less", "two-sided"):
        raise MetricError(
            "unknown test",
            found=f"permutations={permutations}, alternative={alternative!r}",
            expected='at least 1; "greater", "less" or "two-sided"',
        )
    return columns, members


# --- WEAT: whether two sets of targets lie differently between two sets of attributes.
#
# Source: Caliskan, Bryson & Narayanan (2017), "Semantics derived automatically from language corpora
# contain human-like biases"; with images on either side, Steed & Caliskan (2021).


@dataclass(frozen=True)
class Weat:
    """A word (or image) embedding association test, see `weat`.

    Attributes
    ----------
    statistic : float
        Sum over X of s minus sum over Y of s.
    effect_size : float
        Mean over X of s minus mean over Y of s, in standard deviations of s over both; positive: X lies closer to A.
        nan where s does not vary.
    p_value : float
    exact : bool
        Whether p comes from all partitions.
    reason : str or None
        Why something is nan.
    """

    statistic: float
    effect_size: float
    p_value: float
    exact: bool
    reason: str | None


def weat(
    x: ArrayLike,
    y: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    *,
    permutations: int = 10_000,
    rng: np.random.Generator,
    alternative: Alternative = "greater",
    ddof: int = 1,
) -> Weat:
    """Return the association of targets X against Y with attributes A against B.

    s(w) = mean over A of cos(w, a) - mean over B of cos(w, b); S = sum over X of s - sum over Y of s;
    d = (mean over X of s - mean over Y of s) / sd of s over X and Y.

    Parameters
    ----------
    x, y : (., d) float
        Embeddings of the two sets of targets, images or texts, of any norm; sizes may differ, and partitions keep them.
    a, b : (., d) float
        Embeddings of the two sets of attributes.
    permutations, rng, alternative, ddof
        As in `sc_weat`.

    Returns
    -------
    Weat
        All nan where a set of targets or of attributes is empty.

    Raises
    ------
    MetricError
        If the dimensions differ, or an embedding is not finite or has no direction.
    """
    targets, attributes = (
        [_directions(e, name) for e, name in ((x, "x"), (y, "y"))],
        [_directions(e, name) for e, name in ((a, "a"), (b, "b"))],
    )
    sets = (*targets, *attributes)
    if len({e.shape[1] for e in sets}) > 1:
        raise MetricError(
            "embeddings of different dimensions cannot be compared", found=[e.shape for e in sets]
        )
    if not all(len(e) for e in sets):
        return Weat(np.nan, np.nan, np.nan, False, "empty set")
    every = np.concatenate(targets)
    association = every @ attributes[0].mean(axis=0) - every @ attributes[1].mean(axis=0)
    in_x = np.arange(len(every)) < len(targets[0])
    # With the sizes fixed, S rises with the difference of means, so the test is that of one SC-WEAT column.
    found = sc_weat(
        association[:, None], in_x, permutations=permutations, rng=rng, alternative=alternative, ddof=ddof
    )
    return Weat(
        statistic=float(association[in_x].sum() - association[~in_x].sum()),
        effect_size=float(found.effect_size[0]),
        p_value=float(found.p_value[0]),
        exact=found.exact,
        reason="the association does not vary: no effect size" if found.reason else None,
    )


def _directions(embeddings: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return embeddings with unit norm."""
    values = np.asarray(embeddings, dtype=np.float64)
    if values.ndim != 2:
        raise MetricError(
            "a set of embeddings must be a table", where=name, found=values.shape, expected="(., d)"
        )
    norm = np.linalg.norm(values, axis=1, keepdims=True)
    if not np.isfinite(values).all() or (norm == 0).any():
        raise MetricError("an embedding is not finite, or is zero and has no direction", where=name)
    return values / norm


# --- How sure a difference of means and its effect size are, from the influence of every image.


@dataclass(frozen=True)
class Bounded:
    """Values with their intervals.

    Attributes
    ----------
    value, low, high : (m,) float64
        nan where undefined.
    p_value : (m,) float64
        Two-sided, of the t test that the value is 0 with the error of the interval; nan without one.
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    p_value: NDArray[np.float64]


@dataclass(frozen=True)
class BoundedAssociations:
    """Statistics and effect sizes of columns and of their means, see `bounded_associations`."""

    statistic: Bounded
    effect_size: Bounded
    mean_statistic: Bounded
    mean_effect_size: Bounded


def bounded_associations(
    columns: NDArray[np.float64],
    in_a: NDArray[np.bool_],
    means: NDArray[np.float64],
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> BoundedAssociations:
    """Return s and es of every column (`plumbline.metrics.associations`) with linearised intervals.

    Parameters
    ----------
    columns : (n, m) float64
    in_a : (n,) bool
        Images of the first group; both groups have images.
    means : (m, c) float64
        Weights of the columns in each category, whose s and es are weighted sums (equations 3 and 5).
    clusters : (n,) int, optional
        Set of each image; errors are then cluster-robust.
    confidence : float

    Returns
    -------
    BoundedAssociations
        Group sizes count as given. The t quantile is that of the group with fewer images, or sets: cautious (Welch's
        degrees of freedom lie between that and all). No interval where a group has one image, or one set.
    """
    statistic, effect_size = association_sizes(columns, in_a)
    of_statistic, of_effect = influences(columns, in_a)
    units = min(_units(in_a, clusters), _units(~in_a, clusters))

    def bounded(value: NDArray[np.float64], influence: NDArray[np.float64]) -> Bounded:
        error, _ = standard_errors(influence, clusters)
        low, high = t_intervals(value, error, units=units, confidence=confidence)
        known = (error > 0) & ~np.isnan(low)
        score = np.divide(value, error, out=np.full(value.shape, np.nan), where=known)
        return Bounded(value, low, high, 2 * stdtr(max(units - 1, 1), -np.abs(score)))

    return BoundedAssociations(
        statistic=bounded(statistic, of_statistic),
        effect_size=bounded(effect_size, of_effect),
        mean_statistic=bounded(statistic @ means, of_statistic @ means),
        mean_effect_size=bounded(_weighted(effect_size, means), _weighted(of_effect, means)),
    )


def influences(columns: NDArray[np.float64], in_a: NDArray[np.bool_]) -> AssociationSizes:
    """Return the (n, m) influence of each image on s and on es, within its own group.

    The variance over both groups is the mean of the groups' variances, weighted by their shares, and the product of
    the shares times s²: an image moves it by its own square, and through s.
    """
    n = len(columns)
    share = in_a.mean()
    spread = np.where(np.ptp(columns, axis=0) > SLACK, columns.std(axis=0), np.nan)
    shift = columns[in_a].mean(axis=0) - columns[~in_a].mean(axis=0)
    of_statistic, of_effect = np.empty_like(columns), np.empty_like(columns)
    linear = (1 - share * (1 - share) * (shift / spread) ** 2) / spread
    quadratic = shift / (2 * spread**3 * n)
    for mask, sign in ((in_a, 1), (~in_a, -1)):
        centred = columns[mask] - columns[mask].mean(axis=0)
        squares = centred**2
        moved = centred * (sign / mask.sum())
        of_statistic[mask] = moved
        of_effect[mask] = moved * linear - (squares - squares.mean(axis=0)) * quadratic
    return AssociationSizes(of_statistic, of_effect)


def _weighted(values: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values @ means where nan counts only in the categories that hold it."""
    missing = np.isnan(values)
    if not missing.any():
        return values @ means
    total = np.where(missing, 0.0, values) @ means
    return np.where(missing.astype(np.float64) @ (means != 0) > 0, np.nan, total)


def _units(mask: NDArray[np.bool_], clusters: NDArray[np.int64] | None) -> int:
    return int(mask.sum()) if clusters is None else len(np.unique(clusters[mask]))


# --- Rows of the associations between groups of faces and the words of social perception.

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
    does; `two_sided` rows ask for either. Partitions count images as exchangeable. Where they come in sets that is too
    cautious for groups within sets and too bold for groups between them: `cluster_t` rows then test, two-sided, with
    the errors of the intervals, which respect sets.
    """
    # Drawn partitions belong to places: in the order of the images' ids, whatever order they came in.
    order = cell.records["image_id"].arg_sort().to_numpy()
    parts: list[Callable[[], list[Row]]] = []
    for logits in cell.logits.values():
        if logits.cosine is None:
            continue
        if logits.suite.family == "perception":
            parts += _perception_parts(cell, logits, order, settings)
        elif logits.suite.family == "markedness":
            parts += markedness_parts(cell, logits, order, settings)
    return metric_frame(list(chain.from_iterable(run_threads(parts))))


def _perception_parts(
    cell: Cell, logits: SuiteLogits, order: NDArray[np.int64], settings: MetricSettings
) -> list[Callable[[], list[Row]]]:
    kept = order[cell.rows(logits.suite.id)[order]]
    labels = cell.labels(logits.suite.id)[kept]
    attributes = attribute_groups(labels)
    perception = perception_of(logits, kept, labels)
    parts: list[Callable[[], list[Row]]] = [
        partial(_attribute_rows, cell, perception, groups, settings)
        for groups in attributes
        if groups.attribute != COMPOSITE
    ]
    return [*parts, partial(correlation_rows, cell, perception, attributes, settings)]


def _comparisons(groups: Groups) -> list[Contrast]:
    """Return whom to compare with whom; nothing where only one group has a name."""
    if len(groups.names) == 2:
        return [Contrast(*groups.names, groups.codes == 0)]
    if len(groups.names) < 2:
        return []
    return [Contrast(name, OTHERS, groups.codes == i) for i, name in enumerate(groups.names)]


def _attribute_rows(
    cell: Cell, perception: Perception, groups: Groups, settings: MetricSettings
) -> list[Row]:
    labelled = groups.codes >= 0
    known = Groups(groups.attribute, groups.names, groups.codes[labelled])
    comparisons = _comparisons(known)
    if not comparisons:
        return []
    columns = perception.cosine[labelled]
    clusters = None if perception.clusters is None else perception.clusters[labelled]
    scales = np.stack(list(perception.scales.values()), axis=1)
    mixtures = np.column_stack([scales, *perception.dimensions.values()])
    tails = _compare(columns, mixtures, comparisons, settings)
    # A dimension is a column of its own: the words of one pole minus those of the other, image by image.
    poles = np.column_stack([columns, columns @ mixtures[:, scales.shape[1] :]])
    means = np.concatenate([scales, np.zeros((len(perception.dimensions), scales.shape[1]))])
    rows = []
    for comparison, compared in zip(comparisons, tails):
        found = bounded_associations(
            poles, comparison.in_a, means, clusters=clusters, confidence=settings.confidence
        )
        common = _common(cell, perception, groups.attribute, comparison, clusters, settings)
        rows += _comparison_rows(common, perception, found, compared)
        if clusters is not None:
            rows += _cluster_rows(common, perception, found)
    return rows


def _compare(
    columns: NDArray[np.float64],
    mixtures: NDArray[np.float64],
    comparisons: list[Contrast],
    settings: MetricSettings,
) -> list[PermutationCounts]:
    """Compare the words, scales and dimensions of every comparison with other partitions of the same sizes."""
    tails: dict[str, PermutationCounts] = {}
    by_chance: list[Contrast] = []
    for comparison in comparisons:
        if is_exact(comparison.in_a):
            every = np.concatenate([columns, columns @ mixtures], axis=1)
            tails[comparison.group] = exact_permutation(every, comparison.in_a)
        else:
            by_chance.append(comparison)
    ready = standardised(columns)
    sizes = [smaller_size(comparison.in_a) for comparison in by_chance]
    for chained, blocks in random_subset_chains(
        len(columns), sizes, count=settings.permutations, seed=settings.seed
    ):
        chosen = [c for c, size in zip(by_chance, sizes) if size in chained]
        found = random_permutation(ready, mixtures, [c.in_a for c in chosen], chained, blocks)
        tails |= {comparison.group: tail for comparison, tail in zip(chosen, found)}
    return [tails[comparison.group] for comparison in comparisons]


def _common(
    cell: Cell,
    perception: Perception,
    attribute: str,
    comparison: Contrast,
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> Row:
    inside, n = int(comparison.in_a.sum()), len(comparison.in_a)
    names = (comparison.group, comparison.reference)
    return base_row(
        cell,
        suite=perception.suite_id,
        suite_hash=perception.suite_hash,
        attribute=attribute,
        group=comparison.group,
        reference_group=comparison.reference,
        n=n,
        reason=joined(
            small_groups_reason(names, [inside, n - inside], settings.min_group),
            few_clusters_reason(clusters),
        ),
    )


def _comparison_rows(
    common: Row, perception: Perception, found: BoundedAssociations, tails: PermutationCounts
) -> list[Row]:
    words, scales, dimensions = perception.words, list(perception.scales), list(perception.dimensions)
    greater, either = tails.p_values(), tails.p_values("two-sided")
    beyond = tails.p_values(strict=True)
    n = int(str(common["n"]))
    rows = [
        _row(common, "sc_weat_effect", "paper", found.effect_size, i, greater[i], probe=word)
        for i, word in enumerate(words)
    ]
    # The sample standard deviation over n instead of n - 1.
    wider = _scaled(found.mean_effect_size, np.sqrt(n / (n - 1)))
    for i, scale in enumerate(scales):
        place = len(words) + i
        effect, event = found.mean_effect_size, {"event": scale}
        rows += [
            _row(common, "sc_weat_effect", "paper", effect, i, greater[place], **event),
            _row(common, "sc_weat_effect", "ddof_0", wider, i, greater[place], **event),
            _row(common, "sc_weat_effect", "strict", effect, i, beyond[place], **event),
            _row(common, "sc_weat_effect", "two_sided", effect, i, either[place], **event),
            _row(common, "sc_weat_statistic", "paper", found.mean_statistic, i, greater[place], **event),
        ]
    for i, dimension in enumerate(dimensions):
        place, column = len(words) + len(scales) + i, len(words) + i
        for definition, p in (("paper", greater[place]), ("two_sided", either[place])):
            rows.append(
                _row(common, "weat_effect", definition, found.effect_size, column, p, event=dimension)
            )
    return rows


def _cluster_rows(common: Row, perception: Perception, found: BoundedAssociations) -> list[Row]:
    """Return the scales and dimensions tested with set-respecting errors."""
    words = len(perception.words)
    rows = [
        _row(
            common,
            "sc_weat_effect",
            "cluster_t",
            found.mean_effect_size,
            i,
            found.mean_statistic.p_value[i],
            event=scale,
        )
        for i, scale in enumerate(perception.scales)
    ]
    for i, dimension in enumerate(perception.dimensions, start=words):
        p = found.statistic.p_value[i]
        rows.append(_row(common, "weat_effect", "cluster_t", found.effect_size, i, p, event=dimension))
    return rows


def _scaled(bounded: Bounded, factor: float) -> Bounded:
    return replace(
        bounded, value=bounded.value * factor, low=bounded.low * factor, high=bounded.high * factor
    )


def _row(
    common: Row, metric: str, definition: str, found: Bounded, i: int, p: float, **columns: object
) -> Row:
    value, low = float(found.value[i]), float(found.low[i])
    missing = None
    if np.isnan(value):
        missing = "the cosines do not vary"
    elif np.isnan(low):
        missing = "no interval: one image or set in a group"
    estimate = {"value": value, "ci_low": low, "ci_high": float(found.high[i]), "p": float(p)}
    reason = joined(missing, None if common["reason"] is None else str(common["reason"]))
    return common | {"metric": metric, "definition": definition, "reason": reason} | estimate | columns


# --- The association family: which groups a model sees as warm, competent, powerful, and whom it has to
# name.

_DESCRIPTION = """
Which groups a model associates with warmth, competence, agency, belief and communion. SC-WEAT compares the
cosines of two groups' faces with a word (the effect size counts standard deviations; positive: the first
group is closer), WEAT those with the positive against the negative words of a dimension. Markedness is the
percentage of a group's faces that lie closer to "a photo of a person" than to the prompt that names the
group: 100 is unmarked, low is marked. Valence correlation says whether faces closer to the positive words
are also closer to the negative ones. Every number has its sample size and a 95% interval; comparisons of
groups have a permutation p-value.
"""


_TRAITS = (
    Traits(
        name="sc_weat_effect",
        meaning=(
            "How much closer a group's images lie to a word, or a scale of words, than those of its "
            "reference; in standard deviations."
        ),
        formula=(
            "es = s / sd over A and B of cos(x, z), s = mean over A of cos(x, a) - mean over B of cos(x, b)"
        ),
        source=(
            "Hausladen et al., Social perception of faces, A.2, equations 2 to 6; after Steed & Caliskan "
            "(2021)"
        ),
        headline="paper",
        function=sc_weat,
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
    ),
    Traits(
        name="sc_weat_statistic",
        meaning="The same as a difference of cosines.",
        formula="s = mean over A of cos(x, a) - mean over B of cos(x, b)",
        source="Hausladen et al., Social perception of faces, A.2, equation 2",
        function=sc_weat,
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
        scale="equivariant",
    ),
    Traits(
        name="weat_effect",
        meaning=(
            "Whether a group lies nearer the one pole of a dimension and its reference nearer the other, "
            "in standard deviations."
        ),
        formula=(
            "d = (mean over X of s - mean over Y of s) / sd of s over X and Y, s(w) = mean over A of "
            "cos(w, a) - mean over B of cos(w, b)"
        ),
        source="Caliskan, Bryson & Narayanan (2017); with images, Steed & Caliskan (2021)",
        headline="paper",
        function=weat,
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
        scale=None,
        shift=None,
    ),
    Traits(
        name="markedness",
        meaning=(
            "For how many images of a group the plain prompt fits better than the one that names the group."
        ),
        formula="100 · |images with cos(neutral) > cos(marked)| / n_g, averaged over templates",
        source="Hausladen et al., Social perception of faces, A.3, equation 7; after Wolfe & Caliskan (2022)",
        function=markedness,
        bounds=(0, 100),
        shape="by_group",
        when_identical=None,
        empty_group="nan",
    ),
    Traits(
        name="markedness_gap",
        meaning="By how many percentage points markedness differs between groups.",
        formula="max_g m_g - min_g m_g",
        source="Plumbline, on the markedness of Hausladen et al., Social perception of faces, A.3",
        headline="mean_over_templates",
        function=markedness_gap,
        bounds=(0, 100),
        shape="scalar",
        when_identical=0.0,
        empty_group="left_out",
    ),
    Traits(
        name="valence_correlation",
        meaning=(
            "Whether a model that sees more of a good trait in a face sees less of its opposite; above 0 "
            "it sees more of both."
        ),
        formula=(
            "Pearson's r over a group's images of their mean cosines with the positive and with the "
            "negative words"
        ),
        source="Hausladen et al., Social perception of faces, appendix C and figure C.5",
        function=valence_correlation,
        bounds=(-1, 1),
        shape="by_group",
        when_identical=None,
        empty_group="nan",
        ties="no effect",
    ),
)

ASSOCIATIONS = Family(
    name="association_metrics",
    title="Social perception: associations",
    description=" ".join(_DESCRIPTION.split()),
    code_version="1",
    needs=("perception", "markedness"),
    traits=_TRAITS,
    compute=association_rows,
)
