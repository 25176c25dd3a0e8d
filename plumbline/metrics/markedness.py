"""Markedness: share of a group's images closer to the neutral prompt than to the prompt naming the group.

Source: Hausladen et al., "Social perception of faces in a vision-language model", appendix A.3, equation 7, after Wolfe
& Caliskan (2022).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import Row
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, RowPart, SuiteLogits, base_row
from plumbline.metrics.disparities import ImageOutcomes, batched_parity_difference, group_rates
from plumbline.metrics.family import MetricSettings
from plumbline.reasons import MIN_GROUP, empty_groups_reason, group_size_reason, joined, small_groups_reason
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.intervals import wilson
from plumbline.statistics.jackknife import standard_errors
from plumbline.statistics.maxima import Disparity
from plumbline.statistics.power import detectable_gap


def markedness(
    cos_neutral: ArrayLike, cos_marked: ArrayLike, *, confidence: float = 0.95, min_group: int = MIN_GROUP
) -> Estimate:
    """Return the percentage of images that prefer the neutral to the marked prompt, with Wilson's interval (eq. 7).

    Parameters
    ----------
    cos_neutral, cos_marked : (n,) float
        Cosine of each image of one group with "a photo of a person", and with the prompt that names the group. A tie is
        no preference for the neutral prompt.
    confidence : float
        Confidence level of the interval.
    min_group : int
        Smaller groups are flagged.

    Returns
    -------
    Estimate
        0 .. 100; 100: every image lies closer to the neutral prompt, so the group is unmarked. nan without images.

    Raises
    ------
    MetricError
        If the lengths differ or a cosine is not finite.

    Examples
    --------
    >>> import plumbline
    >>> found = plumbline.markedness([0.30, 0.20, 0.25, 0.31], [0.20, 0.25, 0.20, 0.22])
    >>> found.value, found.n
    (75.0, 4)
    """
    neutral, marked = np.asarray(cos_neutral, dtype=np.float64), np.asarray(cos_marked, dtype=np.float64)
    if neutral.ndim != 1 or neutral.shape != marked.shape:
        raise MetricError(
            "the cosines must be of the same images", found=f"{neutral.shape} and {marked.shape}", expected="(n,) twice"
        )
    if not (np.isfinite(neutral).all() and np.isfinite(marked).all()):
        raise MetricError("a cosine is not finite")
    return mean_markedness((neutral > marked)[:, None], confidence=confidence, min_group=min_group)


def mean_markedness(
    prefers_neutral: NDArray[np.bool_],
    clusters: NDArray[np.int64] | None = None,
    *,
    confidence: float = 0.95,
    min_group: int = MIN_GROUP,
) -> Estimate:
    """Return the markedness of one group, averaged over templates.

    Parameters
    ----------
    prefers_neutral : (n, t) bool
        By image and template.
    clusters : (n,) int, optional
        Cluster of each image.

    Returns
    -------
    Estimate
        In percent. The interval is Wilson's with the effective sample size (Korn & Graubard 1998): n for one template
        and images without clusters, less where images of a cluster agree, more where templates disagree. Where all
        answers agree it is the number of images or clusters.
    """
    n = len(prefers_neutral)
    reasons = joined(group_size_reason(n, min_group))
    if n == 0:
        return Estimate(np.nan, np.nan, np.nan, 0, reason=reasons)
    share = prefers_neutral.mean(axis=1)
    mean = float(share.mean())
    trials = float(n)
    if clusters is not None or prefers_neutral.shape[1] > 1:
        trials = _effective_trials(share, mean, clusters)
    low, high = wilson(mean * trials, trials, confidence=confidence)
    return Estimate(100 * mean, 100 * float(low), 100 * float(high), n, reason=reasons)


def _effective_trials(share: NDArray[np.float64], mean: float, clusters: NDArray[np.int64] | None) -> float:
    units = len(share) if clusters is None else len(np.unique(clusters))
    error, _ = standard_errors((share - mean) / len(share), clusters)
    return mean * (1 - mean) / float(error) ** 2 if error > 0 else float(units)


def markedness_gap(percent: ArrayLike) -> float:
    """Return the largest minus the smallest markedness of several groups, in percentage points.

    Parameters
    ----------
    percent : (g,) float
        nan for a group without images, which is left out.

    Returns
    -------
    float
        At least 0; nan with fewer than two groups.
    """
    values = np.asarray(percent, dtype=np.float64)
    values = values[~np.isnan(values)]
    return float(np.ptp(values)) if values.size > 1 else float("nan")


# Rows

AVERAGED = "mean_over_templates"


def markedness_parts(
    cell: Cell, logits: SuiteLogits, order: NDArray[np.int64], settings: MetricSettings
) -> Iterator[RowPart]:
    """Give one function per attribute with prompts in the suite, which computes the rows of that attribute.

    Parameters
    ----------
    order : (n,) int64
        The images in the order of their ids.
    """
    suite = logits.suite
    kept = order[cell.rows(suite.id)[order]]
    labels = cell.labels(suite.id)[kept]
    marked = {(candidate.category, candidate.word) for candidate in suite.candidates}
    for groups in attribute_groups(labels):
        names = tuple(name for name in groups.names if (groups.attribute, name) in marked)
        if names:
            # Labels without a prompt that names them are left out.
            places = np.array([names.index(n) if n in names else -1 for n in groups.names] + [-1])
            chosen = Groups(groups.attribute, names, places[groups.codes])
            common = base_row(cell, suite=suite.id, suite_hash=suite.hash, attribute=groups.attribute)
            yield partial(_attribute_rows, common, logits, kept, chosen, cluster_codes(labels), settings)


def _attribute_rows(
    common: Row,
    logits: SuiteLogits,
    kept: NDArray[np.int64],
    groups: Groups,
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> Iterator[Row]:
    prefers = _prefers_neutral(logits, kept, groups)
    for i, name in enumerate(groups.names):
        mask = groups.codes == i
        of_group = None if clusters is None else clusters[mask]
        by_template = [(template, prefers[mask, t : t + 1]) for t, template in enumerate(logits.suite.templates)]
        for definition, answers in [*by_template, (AVERAGED, prefers[mask])]:
            estimate = mean_markedness(answers, of_group, confidence=settings.confidence, min_group=settings.min_group)
            columns = estimate.columns() | {"metric": "markedness", "definition": definition, "group": name}
            if mask.any():
                columns["reason"] = joined(estimate.reason, few_clusters_reason(of_group))
            yield common | columns
    yield from _gap_rows(common, groups, prefers, clusters, settings)


def _prefers_neutral(logits: SuiteLogits, kept: NDArray[np.int64], groups: Groups) -> NDArray[np.bool_]:
    """Return the (n, t) answers: whether an image is closer to the neutral prompt than to its own group's."""
    names = ["", *(f"{groups.attribute}:{name}" for name in groups.names)]
    prefers = logits.by_template(names, lambda cosine: cosine[..., :1] > cosine[..., 1:], kept)
    known, codes = groups.codes >= 0, np.maximum(groups.codes, 0)
    own_group = np.take_along_axis(prefers, codes[:, None, None], axis=2)[..., 0]
    return np.asarray(own_group & known[:, None])


def _gap_rows(
    common: Row,
    groups: Groups,
    prefers: NDArray[np.bool_],
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> Iterator[Row]:
    """Give the gap between the most and the least marked group.

    The outcome of an image is the number of templates under which it prefers the neutral prompt to its own group's.
    Bootstrap and permutation test are those of `ImageOutcomes`, over clusters where images come in them.
    """
    n_templates = prefers.shape[1]
    answers = ImageOutcomes(groups, prefers.sum(axis=1), np.arange(n_templates + 1)[None], clusters)
    sizes = answers.table.sum(axis=1)
    if np.count_nonzero(sizes) < 2:
        return
    percent = 100 * np.arange(n_templates + 1) / n_templates

    def gap(tables: NDArray[np.int64]) -> NDArray[np.float64]:
        return batched_parity_difference(tables @ percent, tables.sum(axis=-1))

    def of_groups(tables: NDArray[np.int64]) -> NDArray[np.float64]:
        return group_rates(tables @ percent, tables.sum(axis=-1))[..., None, :]

    names = [str(common[key]) for key in ("model", "dataset", "suite", "attribute")]
    draws = answers.draws([*names, "markedness_gap"], settings)
    estimate = draws.estimate(Disparity(gap, of_groups), confidence=settings.confidence)
    reasons = (
        empty_groups_reason(sizes),
        small_groups_reason(groups.names, sizes.tolist(), settings.min_group),
        few_clusters_reason(clusters),
    )
    seen = np.flatnonzero(sizes)
    detectable = detectable_gap(
        of_groups(draws.permuted)[:, 0, seen],
        lambda means: np.ptp(means, axis=-1),
        apart=int(sizes[seen].argmin()),
        units=draws.clusters or int(sizes[seen].min()),
        least_p=draws.least_p,
        mixing=None if draws.mixing is None else draws.mixing[np.ix_(seen, seen)],
    )
    columns = {"metric": "markedness_gap", "definition": AVERAGED, "n": int(sizes.sum())}
    yield common | replace(estimate, detectable=detectable).columns(*reasons) | columns
