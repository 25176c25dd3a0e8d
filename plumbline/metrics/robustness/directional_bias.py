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
from plumbline.reasons import Reason, joined, reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.jackknife import hotelling_p_value, standard_errors, t_intervals, unit_sums


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

    In cosine units, at least 0. p is against "none differs from another": Hotelling's T² (templates) or a Wald test
    (groups) of all at once; nan where their covariance is singular.

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
    Its upper end is the furthest of all pairs.

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
    p = hotelling_p_value(mean[:basis], (apart[:, :basis] - mean[:basis]) / n, clusters)
    return _largest(np.abs(mean), errors, largest, units, p, n, confidence, "templates", pairs[largest])


def directional_bias_gap(
    delta: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> MaxDifference:
    """Return the largest difference between groups of the mean directional bias.

    As with `template_shift`, the interval reaches 0 where the joint test does not reject "no difference".

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
    member = codes[:, None] == seen
    mean = np.array([values[codes == code].mean() for code in seen])
    influence = np.where(member, values[:, None] - mean, 0.0) / sizes[seen]
    lowest, highest = int(mean.argmin()), int(mean.argmax())
    pairs = list(combinations(range(len(seen)), 2))
    apart = np.array([abs(mean[b] - mean[a]) for a, b in pairs])
    sums = unit_sums(influence, clusters)
    units = len(sums)
    # The errors of many pairs of groups follow from the covariance of the means, so no column per pair is needed.
    spread = sums.T @ sums * (units / (units - 1) if units > 1 else np.nan)
    error = np.sqrt([max(0.0, spread[a, a] + spread[b, b] - 2 * spread[a, b]) for a, b in pairs])
    p = hotelling_p_value(mean[1:] - mean[0], sums[:, 1:] - sums[:, :1])
    between = (names[seen[lowest]], names[seen[highest]])
    return _largest(apart, error, int(apart.argmax()), units, p, n, confidence, "groups", between)


def _undefined(between: tuple[Any, ...], n: int, why: Reason) -> MaxDifference:
    nan = float("nan")
    return MaxDifference(nan, nan, nan, n, nan, (why,), between)


def _largest(
    value: NDArray[np.float64],
    error: NDArray[np.float64],
    largest: int,
    units: int,
    p: float,
    n: int,
    confidence: float,
    compared: str,
    between: tuple[Any, ...],
) -> MaxDifference:
    """Return the largest of some differences; its interval reaches 0 where the joint test does not reject."""
    low, high, why = float("nan"), float("nan"), None
    if units < 2:
        why = reason("too_few_differing_images")
    elif error[largest] <= 1e-12:
        why = reason("constant_difference")
    else:
        lows, highs = t_intervals(value, error, units=units, confidence=confidence)
        low, high = max(0.0, float(lows[largest])), float(highs.max())
        if p > 1 - confidence:
            low, why = 0.0, reason("reaches_zero", compared=compared)
    return MaxDifference(float(value[largest]), low, high, n, p, joined(why), between)


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
