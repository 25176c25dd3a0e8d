"""Directional bias: how much nearer an image lies to a task's positive prompts than to its negative ones.

Source: Al Sahili et al., "Data Matters Most", appendices A and C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import MIN_GROUP, Reason, joined, reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.jackknife import hotelling_p_value, occurring_codes, standard_errors, t_intervals, unit_sums
from plumbline.statistics.maxima import largest_difference
from plumbline.statistics.power import Detectable, detectable_by_f


@dataclass(frozen=True)
class DirectionalBias:
    """Directional bias of images, and its mean and spread over them.

    Attributes
    ----------
    delta : (n, ...) float64
        Of each image, in cosine units, within [-2, 2]. Below 0 the image lies nearer to the negative prompts.
    mean, sd : EstimateArray of shape (...)
        Over the images; the standard deviation is that of a sample (n - 1). nan without images, for the sd with one.
        t intervals from the infinitesimal jackknife, over clusters where images come in them.
    """

    delta: NDArray[np.float64]
    mean: EstimateArray
    sd: EstimateArray


@dataclass(frozen=True)
class MaxDifference(Estimate):
    """The largest difference of the mean directional bias between templates, or between groups.

    In cosine units, at least 0. p is against "none differs from another": Hotelling's T² (templates, and groups
    that share clusters) or Welch's analysis of variance; nan where their covariance is singular.

    Attributes
    ----------
    between : tuple
        The two templates that are furthest apart, as positions. Of groups the labels of the one nearest to the
        negative prompts and of the one nearest to the positive ones; empty without a value.
    """

    between: tuple[Any, ...] = ()


def directional_bias(
    positive: ArrayLike, negative: ArrayLike, *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> DirectionalBias:
    """Return Δ = mean cosine to the positive prompts - mean cosine to the negative prompts, of every image.

    Parameters
    ----------
    positive : (n, ..., p) float
        Cosines to the positive prompts; axes between may be templates.
    negative : (n, ..., q) float
    clusters : (n,) int, optional
        Cluster of each image, where images come in clusters.

    Raises
    ------
    MetricError
        If the images or templates of the two differ, a side has no prompt, or a cosine is not finite.
    """
    return bias_over_images(bias_of_images(positive, negative), clusters=clusters, confidence=confidence)


def bias_of_images(positive: ArrayLike, negative: ArrayLike) -> NDArray[np.float64]:
    """Return Δ of every image, (n, ...) float64, of the cosines that `directional_bias` takes."""
    sides = [np.asarray(side, dtype=np.float64) for side in (positive, negative)]
    shapes = [side.shape for side in sides]
    if min(map(len, shapes)) < 2 or shapes[0][:-1] != shapes[1][:-1] or 0 in (shapes[0][-1], shapes[1][-1]):
        raise MetricError(
            "both poles need cosines of the same images, to at least one prompt",
            found=f"positive {shapes[0]}, negative {shapes[1]}",
            expected="(n, ..., p) and (n, ..., q)",
        )
    if not all(np.isfinite(side).all() for side in sides):
        raise MetricError("a cosine is not finite", expected="finite cosines")
    return np.asarray(sides[0].mean(axis=-1) - sides[1].mean(axis=-1))


def bias_over_images(
    delta: NDArray[np.float64], *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> DirectionalBias:
    """Return mean and standard deviation of the images' (n, ...) directional biases, with their intervals."""
    n, shape = len(delta), delta.shape[1:]
    undefined = np.full(shape, np.nan)
    if n == 0:
        nothing = _estimates(undefined, undefined, undefined, 0, reason("no_images"))
        return DirectionalBias(delta, nothing, nothing)
    mean = delta.mean(axis=0)
    squares = (delta - mean) ** 2
    variance = squares.mean(axis=0)
    sd = np.sqrt(variance * n / (n - 1)) if n > 1 else undefined
    # The sd is the root of the variance: its influence is that of the variance over twice itself.
    of_sd = np.divide(squares - variance, 2 * n * sd, out=np.zeros_like(delta), where=sd > 0)
    errors, units = standard_errors(np.stack([(delta - mean) / n, of_sd], axis=1), clusters)
    missing = reason("too_few_differing_images") if units < 2 else None
    estimates = [
        _estimates(value, *t_intervals(value, error, units=units, confidence=confidence), n, missing)
        for value, error in zip((mean, sd), errors)
    ]
    return DirectionalBias(delta, *estimates)


def _estimates(
    value: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], n: int, missing: Reason | None
) -> EstimateArray:
    value = np.asarray(value)
    return EstimateArray(value, low, high, n=np.full(value.shape, n), reason=[joined(missing)] * value.size)


def template_shift(
    delta: ArrayLike, *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> MaxDifference:
    """Return Δμ, the largest absolute difference between templates of the mean directional bias (appendix C).

    The templates see the same images, so differences are taken image by image. A largest difference cannot be
    negative: where the joint test does not reject "no template differs" the interval reaches 0, and `reason` says so.
    The ends are those of `plumbline.statistics.maxima.largest_difference`.

    Parameters
    ----------
    delta : (n, t) float
        Directional bias of each image under each template.
    clusters : (n,) int, optional
        Cluster of each image, where images come in clusters.

    Raises
    ------
    MetricError
        If there are fewer than two templates, or a value is not finite.
    """
    values = np.asarray(delta, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or not np.isfinite(values).all():
        raise MetricError(
            "a shift needs the finite biases of images under several templates",
            found=f"{values.shape}",
            expected="(n, t), t at least 2",
        )
    n = len(values)
    if n == 0:
        return _undefined((0, 1), n, reason("no_images"))
    pairs = list(combinations(range(values.shape[1]), 2))
    apart = np.stack([values[:, b] - values[:, a] for a, b in pairs], axis=1)
    mean = apart.mean(axis=0)
    errors, units = standard_errors((apart - mean) / n, clusters)
    largest = int(np.abs(mean).argmax())
    # Differences to the first template determine all pairwise differences.
    basis = values.shape[1] - 1
    means, sums = values.mean(axis=0), unit_sums((values - values.mean(axis=0)) / n, clusters)
    joint = _hotelling(means, sums, hotelling_p_value(mean[:basis], sums[:, 1:] - sums[:, :1]), confidence)
    if units < 2:
        why = reason("too_few_differing_images")
        return _without_interval(float(np.abs(mean[largest])), joint.p, n, why, pairs[largest])
    return _largest(np.abs(mean), errors, units - 1, joint, n, confidence, "templates", pairs[largest])


def directional_bias_gap(
    delta: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> MaxDifference:
    """Return the largest difference between groups of the mean directional bias.

    As with `template_shift`, the interval reaches 0 where the joint test does not reject "no difference". Every pair of
    groups has its own degrees of freedom: Welch's (1947) where no image or cluster belongs to both, else the number of
    clusters that hold either, less 1.

    Parameters
    ----------
    delta : (n,) float
        Directional bias of each image.
    groups : (n,) labels
        None is an unlabelled image: in no group.
    clusters : (n,) int, optional
        Cluster of each image, where images come in clusters.

    Raises
    ------
    MetricError
        If the lengths differ or a value is not finite.
    """
    values, labels = np.asarray(delta, dtype=np.float64), list(groups)
    if values.shape != (len(labels),) or not np.isfinite(values).all():
        raise MetricError(
            "a gap needs a finite bias and a group for each image",
            found=f"{values.shape}, {len(labels)} labels",
            expected="(n,) and (n,)",
        )
    names = tuple(sorted({label for label in labels if label is not None}))
    position = {name: i for i, name in enumerate(names)}
    codes = np.array([position.get(label, -1) for label in labels], dtype=np.int64)
    return gap_of_codes(values, codes, names, clusters=clusters, confidence=confidence)


def gap_of_codes(
    values: NDArray[np.float64],
    codes: NDArray[np.int64],
    names: tuple[Any, ...],
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> MaxDifference:
    """Return the gap between groups that are given as positions in `names`; -1 is an image in no group."""
    sizes = np.bincount(codes[codes >= 0], minlength=len(names))
    seen, n = np.flatnonzero(sizes), int(sizes.sum())
    if len(seen) < 2:
        return _undefined((), n, reason("too_few_groups"))
    of_groups = [values[codes == code] for code in seen]
    mean, units = np.array([each.mean() for each in of_groups]), sizes[seen]
    lowest, highest = int(mean.argmin()), int(mean.argmax())
    between = (names[seen[lowest]], names[seen[highest]])
    first, second = np.triu_indices(len(seen), k=1)
    apart = np.abs(mean[first] - mean[second])
    if clusters is None and units.min() > 1:
        # Images are of one group each: what their values vary by is all that is needed.
        variance = np.array([each.var(ddof=1) for each in of_groups]) / units
        if (variance > 0).all():
            error, df = _welch_errors(variance, units, first, second)
            joint = _welch(mean, variance, units, confidence)
            return _largest(apart, error, df, joint, n, confidence, "groups", between)
    member = codes[:, None] == seen
    influence = np.where(member, values[:, None] - mean, 0.0) / units
    sums = unit_sums(influence, clusters)
    held = member if clusters is None else _held_by_clusters(member, clusters)
    units, p = held.sum(axis=0), hotelling_p_value(mean[1:] - mean[0], sums[:, 1:] - sums[:, :1])
    if len(sums) < 2 or units.min() < 2:
        why = reason("too_few_differing_images" if len(sums) < 2 else "one_unit_in_group")
        return _without_interval(float(np.ptp(mean)), p, n, why, between)
    if (held.sum(axis=1) <= 1).all():
        variance = (sums**2).sum(axis=0) * units / (units - 1)
        error, df = _welch_errors(variance, units, first, second)
        varies = (variance > 0).all()
        joint = _welch(mean, variance, units, confidence) if varies else _hotelling(mean, sums, p, confidence)
    else:
        error, df = _shared_errors(sums, held, first, second)
        joint = _hotelling(mean, sums, p, confidence)
    return _largest(apart, error, df, joint, n, confidence, "groups", between)


class _JointTest(NamedTuple):
    """A test that several means are equal.

    Attributes
    ----------
    p, least : float
        Its p, and the least that the largest mean must exceed the smallest by.
    detectable : Detectable
        By how much the mean that is known least must differ from the others to be found.
    """

    p: float
    least: float
    detectable: Detectable = Detectable()


def _welch(
    mean: NDArray[np.float64], variance: NDArray[np.float64], units: NDArray[np.int64], confidence: float
) -> _JointTest:
    """Test (g,) means of groups that share no unit, each with its own variance (Welch 1951, Biometrika 38)."""
    from scipy.special import fdtrc, fdtri

    g, weight = len(mean), 1 / variance
    contrast = weight * (mean - (weight * mean).sum() / weight.sum())
    distance = float(contrast @ mean)
    unequal = float(((1 - weight / weight.sum()) ** 2 / (units - 1)).sum())
    factor, df = (g - 1) * (1 + 2 * (g - 2) / (g**2 - 1) * unequal), (g**2 - 1) / (3 * unequal)
    critical = factor * float(fdtri(g - 1, df, confidence))
    # The noncentrality of one mean apart by 1, of those whose group is large enough to be told.
    information = weight * (1 - weight / weight.sum())
    enough = units >= MIN_GROUP
    detectable = detectable_by_f(float(information[enough if enough.any() else units > 0].min()), groups=g, df=df)
    return _JointTest(float(fdtrc(g - 1, df, distance / factor)), _least(contrast, distance, critical), detectable)


def _hotelling(mean: NDArray[np.float64], sums: NDArray[np.float64], p: float, confidence: float) -> _JointTest:
    """Complete the test of (g,) means with the p of `hotelling_p_value`, from the (u, g) influence of units."""
    from scipy.special import fdtri

    if np.isnan(p):
        return _JointTest(p, 0.0)
    (u, g), rows = sums.shape, sums[:, 1:] - sums[:, :1]
    covariance = rows.T @ rows * u / (u - 1)
    contrast = np.linalg.solve(covariance, mean[1:] - mean[0])
    precision = np.linalg.inv(covariance)
    information = min(float(precision.sum()), float(np.diag(precision).min()))
    detectable = detectable_by_f(information * (u - g + 1) / (u - 1), groups=g, df=u - g + 1)
    critical = float(fdtri(g - 1, u - g + 1, confidence)) * (g - 1) * (u - 1) / (u - g + 1)
    distance = float(contrast @ (mean[1:] - mean[0]))
    return _JointTest(p, _least(np.append(contrast, -contrast.sum()), distance, critical), detectable)


def _least(contrast: NDArray[np.float64], distance: float, critical: float) -> float:
    """Return Scheffé's (1953) lower end for the contrast that the test looks at, as a difference of two means.

    A contrast is at most half its absolute weights times the largest difference. Above 0 where the test rejects.
    """
    half = np.abs(contrast).sum() / 2
    distance = max(distance, 0.0)  # but for rounding
    return float((distance - np.sqrt(critical * distance)) / half) if half > 0 else 0.0


def _held_by_clusters(member: NDArray[np.bool_], clusters: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (u, g) whether a cluster has an image of a group."""
    codes, units, _ = occurring_codes(clusters)
    held = np.zeros((len(codes), member.shape[1]), dtype=bool)
    np.logical_or.at(held, units, member)
    return held


def _welch_errors(
    variance: NDArray[np.float64], units: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the standard errors of differences of pairs of means that share no unit, and their degrees of freedom.

    Parameters
    ----------
    variance : (g,) float64
        Of each group's mean.
    units : (g,) int64
        Images or clusters of each group.
    first, second : (p,) int64
    """
    either = variance[first] + variance[second]
    weight = variance**2 / (units - 1)
    spread = weight[first] + weight[second]
    df = np.divide(either**2, spread, out=np.ones(len(first)), where=spread > 0)
    return np.sqrt(either), df


def _shared_errors(
    sums: NDArray[np.float64], held: NDArray[np.bool_], first: NDArray[np.int64], second: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the same of means that share units.

    Parameters
    ----------
    sums : (u, g) float64
        Influence of each unit, an image or a cluster, on each group's mean.
    held : (u', g) bool
        Whether a unit has an image of a group; also units without influence.
    first, second : (p,) int64
    """
    covariance = sums.T @ sums
    units = (held[:, first] | held[:, second]).sum(axis=0)
    either = covariance[first, first] + covariance[second, second] - 2 * covariance[first, second]
    return np.sqrt(np.maximum(either, 0.0) * units / (units - 1)), units - 1.0


def _undefined(between: tuple[Any, ...], n: int, why: Reason) -> MaxDifference:
    return _without_interval(float("nan"), float("nan"), n, why, between)


def _without_interval(value: float, p: float, n: int, why: Reason, between: tuple[Any, ...]) -> MaxDifference:
    nan = float("nan")
    return MaxDifference(value, nan, nan, n, p, (why,), None, between)


def _largest(
    apart: NDArray[np.float64],
    error: NDArray[np.float64],
    df: ArrayLike,
    joint: _JointTest,
    n: int,
    confidence: float,
    compared: str,
    between: tuple[Any, ...],
) -> MaxDifference:
    """Return the largest of some differences; its interval reaches 0 where the joint test does not reject."""
    value = float(apart.max())
    if error[apart.argmax()] <= 1e-12:
        return _without_interval(value, joint.p, n, reason("constant_difference"), between)
    low, high = largest_difference(apart, error, df=df, confidence=confidence)
    low, why = low if low > 0 else max(joint.least, 0.0), None
    if joint.p > 1 - confidence:
        low, why = 0.0, reason("reaches_zero", compared=compared)
    return MaxDifference(value, low, high, n, joint.p, joined(why), joint.detectable, between)


# The neutral control (Al Sahili et al., appendix A): how alike portraits that show no gender and no race look.


class IntraSetCosine(NamedTuple):
    """Mean and spread of the cosines of all pairs of images.

    Attributes
    ----------
    mean : Estimate
        In [-1, 1]; nan with fewer than two images. Intervals are from the influence of each image on all its pairs
        (Hoeffding 1948), since pairs share images and are not independent; nan with fewer than three images.
    sd : Estimate
        Sample standard deviation over the pairs (pairs - 1); nan with fewer than three images.
    pairs : int
        Unordered pairs of images.
    """

    mean: Estimate
    sd: Estimate
    pairs: int


def intra_set_cosine(embeddings: ArrayLike, *, confidence: float = 0.95) -> IntraSetCosine:
    """Return the mean and standard deviation of the pairwise cosines of a set of images.

    Parameters
    ----------
    embeddings : (n, d) float
        Of any length; the order of the images changes nothing, not even the last bit.

    Raises
    ------
    MetricError
        If the embeddings are not a table of finite numbers, or one of them is zero and has no direction.
    """
    images = np.asarray(embeddings, dtype=np.float64)
    norms = np.linalg.norm(images, axis=1) if images.ndim == 2 else np.zeros(1)
    if images.ndim != 2 or not np.isfinite(images).all() or not (norms > 0).all():
        raise MetricError(
            "cosines need finite embeddings that are not zero", found=f"{images.shape}", expected="(n, d)"
        )
    n, nan = len(images), float("nan")
    pairs = n * (n - 1) // 2
    if n < 2:
        undefined = Estimate(nan, nan, nan, n, reason=joined(reason("too_few_images")))
        return IntraSetCosine(undefined, undefined, pairs)
    # In a canonical order, so that sums round alike however the images are listed.
    units = (images / norms[:, None])[np.lexsort(images.T)]
    cosines = units @ units.T
    of_pairs = cosines[np.triu_indices(n, k=1)]
    mean = float(of_pairs.mean())
    if n < 3:
        one_pair = joined(reason("one_pair_of_images"))
        mean_of_one, no_sd = (Estimate(value, nan, nan, n, reason=one_pair) for value in (mean, nan))
        return IntraSetCosine(mean_of_one, no_sd, pairs)
    sd = float(of_pairs.std(ddof=1))
    np.fill_diagonal(cosines, 0.0)
    of_image = cosines.sum(axis=1) / (n - 1)
    squares = (cosines**2).sum(axis=1) / (n - 1)
    # An image's influence on a mean over pairs is twice the deviation of its own pairs' mean, over n.
    on_mean = 2 * (of_image - of_image.mean()) / n
    on_variance = 2 * (squares - squares.mean()) / n - 2 * mean * on_mean
    on_sd = on_variance / (2 * sd) if sd > 0 else np.zeros(n)
    errors, seen = standard_errors(np.stack([on_mean, on_sd], axis=1))
    low, high = t_intervals([mean, sd], errors, units=seen, confidence=confidence)
    of_mean, of_sd = (Estimate(v, float(a), float(b), n) for v, a, b in zip((mean, sd), low, high))
    return IntraSetCosine(of_mean, of_sd, pairs)
