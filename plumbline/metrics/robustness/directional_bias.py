"""Directional bias: how much nearer an image lies to a task's positive prompts than to its negative ones.

Source: Al Sahili et al., "Data Matters Most", appendices A and C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.jackknife import hotelling_p_value, standard_errors, t_intervals, unit_sums

_NO_INTERVAL = "no interval: fewer than two independent images that differ"


@dataclass(frozen=True)
class DirectionalBias:
    """Directional bias of images, and its mean and spread over them.

    Attributes
    ----------
    delta : (n, ...) float64
        Of each image, in cosine units, within [-2, 2]. Below 0 the image lies nearer to the negative prompts.
    mean, sd : (...) float64
        Over the images; the standard deviation is that of a sample (n - 1). nan without images, for the sd with one.
    mean_interval, sd_interval : (..., 2) float64
        Linearised t intervals; whole sets are the units where images come in sets.
    n : int
    reason : str or None
        Why something is undefined.
    """

    delta: NDArray[np.float64]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    mean_interval: NDArray[np.float64]
    sd_interval: NDArray[np.float64]
    n: int
    reason: str | None


@dataclass(frozen=True)
class TemplateShift:
    """Largest difference between templates of the mean directional bias.

    Attributes
    ----------
    value : float
        In cosine units, at least 0; nan without images.
    ci_low, ci_high : float
        Linearised interval of the paired difference, nan where it does not vary.
    p : float
        Against "no template differs from another", Hotelling's T² over the images' paired differences; nan where
        they do not vary freely.
    templates : (int, int)
        The two templates that are furthest apart, as positions.
    n : int
    reason : str or None
    """

    value: float
    ci_low: float
    ci_high: float
    p: float
    templates: tuple[int, int]
    n: int
    reason: str | None


@dataclass(frozen=True)
class BiasGap:
    """Largest difference between groups of the mean directional bias.

    Attributes
    ----------
    value : float
        In cosine units, at least 0; nan with fewer than two groups that have images.
    ci_low, ci_high : float
        Linearised interval; nan where the bias does not vary within groups.
    p : float
        Against "the groups' means are equal", a Wald test over all groups at once; nan where it is not defined.
    groups : tuple of label
        The group nearest to the negative prompts, then the one nearest to the positive ones; empty without a value.
    n : int
        Labelled images.
    reason : str or None
    """

    value: float
    ci_low: float
    ci_high: float
    p: float
    groups: tuple[Any, ...]
    n: int
    reason: str | None


def directional_bias(
    positive: ArrayLike,
    negative: ArrayLike,
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> DirectionalBias:
    """Return Δ = mean cosine to the positive prompts - mean cosine to the negative prompts, of every image.

    Parameters
    ----------
    positive : (n, ..., p) float
        Cosines to the positive prompts; axes between may be templates.
    negative : (n, ..., q) float
    clusters : (n,) int, optional
        Set of each image, where images come in sets.

    Raises
    ------
    MetricError
        If the images or templates of the two differ, a side has no prompt, or a cosine is not finite.
    """
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
    return bias_over_images(
        sides[0].mean(axis=-1) - sides[1].mean(axis=-1), clusters=clusters, confidence=confidence
    )


def bias_over_images(
    delta: NDArray[np.float64], *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> DirectionalBias:
    """Return mean and standard deviation of the images' (n, ...) directional biases, with their intervals."""
    n = len(delta)
    undefined = np.full(delta.shape[1:], np.nan)
    if n == 0:
        none = np.stack([undefined, undefined], axis=-1)
        return DirectionalBias(delta, undefined, undefined, none, none, 0, "no images")
    mean = delta.mean(axis=0)
    squares = (delta - mean) ** 2
    variance = squares.mean(axis=0)
    sd = np.sqrt(variance * n / (n - 1)) if n > 1 else undefined
    # The sd is the root of the variance: its influence is that of the variance over twice itself.
    of_sd = np.divide(squares - variance, 2 * n * sd, out=np.zeros_like(delta), where=sd > 0)
    errors, units = standard_errors(np.stack([(delta - mean) / n, of_sd], axis=1), clusters)
    intervals = [
        np.stack(t_intervals(value, error, units=units, confidence=confidence), axis=-1)
        for value, error in zip((mean, sd), errors)
    ]
    return DirectionalBias(
        delta, mean, sd, intervals[0], intervals[1], n, _NO_INTERVAL if units < 2 else None
    )


def template_shift(
    delta: ArrayLike, *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> TemplateShift:
    """Return Δμ, the largest absolute difference between templates of the mean directional bias (appendix C).

    The templates see the same images, so differences are taken image by image. A largest difference cannot be
    negative: where the joint test does not reject "no template differs" the interval reaches 0, and `reason` says so.
    Its upper end is the furthest of all pairs.

    Parameters
    ----------
    delta : (n, t) float
        Directional bias of each image under each template.
    clusters : (n,) int, optional
        Set of each image, where images come in sets.

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
    n, nan = len(values), float("nan")
    if n == 0:
        return TemplateShift(nan, nan, nan, nan, (0, 1), 0, "no images")
    pairs = list(combinations(range(values.shape[1]), 2))
    apart = np.stack([values[:, b] - values[:, a] for a, b in pairs], axis=1)
    mean = apart.mean(axis=0)
    errors, units = standard_errors((apart - mean) / n, clusters)
    largest = int(np.abs(mean).argmax())
    value = float(abs(mean[largest]))
    # The pairs with the first template span all others.
    basis = values.shape[1] - 1
    p = hotelling_p_value(mean[:basis], (apart[:, :basis] - mean[:basis]) / n, clusters)
    low, high, reason = _interval(np.abs(mean), errors, largest, units, p, confidence, "templates")
    return TemplateShift(value, low, high, p, pairs[largest], n, reason)


def directional_bias_gap(
    delta: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> BiasGap:
    """Return the largest difference between groups of the mean directional bias.

    As with `template_shift`, the interval reaches 0 where the joint test does not reject "no difference".

    Parameters
    ----------
    delta : (n,) float
        Directional bias of each image.
    groups : (n,) labels
        None is an unlabelled image: in no group.
    clusters : (n,) int, optional
        Set of each image, where images come in sets.

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
) -> BiasGap:
    """Return the gap between groups that are given as positions in `names`; -1 is an image in no group."""
    sizes = np.bincount(codes[codes >= 0], minlength=len(names))
    seen, n, nan = np.flatnonzero(sizes), int(sizes.sum()), float("nan")
    if len(seen) < 2:
        return BiasGap(nan, nan, nan, nan, (), n, "fewer than two groups have images")
    member = codes[:, None] == seen
    mean = np.array([values[codes == code].mean() for code in seen])
    influence = np.where(member, values[:, None] - mean, 0.0) / sizes[seen]
    lowest, highest = int(mean.argmin()), int(mean.argmax())
    pairs = list(combinations(range(len(seen)), 2))
    apart = np.array([abs(mean[b] - mean[a]) for a, b in pairs])
    sums = unit_sums(influence, clusters)
    units = len(sums)
    # Of many pairs of groups the errors follow from the covariance of the means: no column a pair.
    spread = sums.T @ sums * (units / (units - 1) if units > 1 else np.nan)
    error = np.sqrt([max(0.0, spread[a, a] + spread[b, b] - 2 * spread[a, b]) for a, b in pairs])
    p = hotelling_p_value(mean[1:] - mean[0], sums[:, 1:] - sums[:, :1])
    low, high, reason = _interval(apart, error, int(apart.argmax()), units, p, confidence, "groups")
    ends = (names[seen[lowest]], names[seen[highest]])
    return BiasGap(float(mean[highest] - mean[lowest]), low, high, p, ends, n, reason)


def _interval(
    value: NDArray[np.float64],
    error: NDArray[np.float64],
    largest: int,
    units: int,
    p: float,
    confidence: float,
    compared: str,
) -> tuple[float, float, str | None]:
    if units < 2:
        return float("nan"), float("nan"), _NO_INTERVAL
    if error[largest] <= 1e-12:
        return float("nan"), float("nan"), "no interval: the difference is the same for every image"
    low, high = t_intervals(value, error, units=units, confidence=confidence)
    if p > 1 - confidence:
        return 0.0, float(high.max()), f"interval reaches 0: no significant difference between {compared}"
    return max(0.0, float(low[largest])), float(high.max()), None


# --- How alike a set of images is to a model: the cosines of all pairs of their embeddings.
#
# Source: Al Sahili et al., "Data Matters Most", appendix A, on feature-neutral portraits.


@dataclass(frozen=True)
class IntraSetCosine:
    """Mean and spread of the cosines of all pairs of images.

    Attributes
    ----------
    mean : float
        In [-1, 1]; nan with fewer than two images.
    sd : float
        Sample standard deviation over the pairs (pairs - 1); nan with fewer than three images.
    mean_interval, sd_interval : (float, float)
        From the influence of each image on all its pairs (Hoeffding 1948): pairs share images and are not
        independent. nan with fewer than three images.
    n, pairs : int
        Images and unordered pairs.
    reason : str or None
        Why something is undefined.
    """

    mean: float
    sd: float
    mean_interval: tuple[float, float]
    sd_interval: tuple[float, float]
    n: int
    pairs: int
    reason: str | None


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
            "cosines need finite embeddings that are not zero",
            found=f"{images.shape}",
            expected="(n, d)",
        )
    n, nan = len(images), float("nan")
    pairs = n * (n - 1) // 2
    if n < 2:
        return IntraSetCosine(nan, nan, (nan, nan), (nan, nan), n, pairs, "fewer than two images")
    # In an order of their own, so that sums round alike however the images are listed.
    units = (images / norms[:, None])[np.lexsort(images.T)]
    cosines = units @ units.T
    of_pairs = cosines[np.triu_indices(n, k=1)]
    mean = float(of_pairs.mean())
    if n < 3:
        return IntraSetCosine(mean, nan, (nan, nan), (nan, nan), n, pairs, "one pair: no spread, no interval")
    sd = float(of_pairs.std(ddof=1))
    np.fill_diagonal(cosines, 0.0)
    of_image = cosines.sum(axis=1) / (n - 1)
    squares = (cosines**2).sum(axis=1) / (n - 1)
    # An image's influence on a mean over pairs is twice what its own pairs differ from it.
    on_mean = 2 * (of_image - of_image.mean()) / n
    on_variance = 2 * (squares - squares.mean()) / n - 2 * mean * on_mean
    on_sd = on_variance / (2 * sd) if sd > 0 else np.zeros(n)
    errors, seen = standard_errors(np.stack([on_mean, on_sd], axis=1))
    low, high = t_intervals([mean, sd], errors, units=seen, confidence=confidence)
    return IntraSetCosine(
        mean, sd, (float(low[0]), float(high[0])), (float(low[1]), float(high[1])), n, pairs, None
    )
