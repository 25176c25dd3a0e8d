"""Directional bias: how much nearer an image lies to a task's positive prompts than to its negative ones.

Source: Al Sahili et al., "Data Matters Most", appendices A and C.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.joint_test import joint_p_value
from plumbline.statistics.linearised import standard_errors, t_intervals

_NO_INTERVAL = "no interval: fewer than two independent images"


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
    p = joint_p_value(mean[:basis], (apart[:, :basis] - mean[:basis]) / n, clusters)
    low, high, reason = _interval(np.abs(mean), errors, largest, units, p, confidence)
    return TemplateShift(value, low, high, p, pairs[largest], n, reason)


def _interval(
    value: NDArray[np.float64],
    error: NDArray[np.float64],
    largest: int,
    units: int,
    p: float,
    confidence: float,
) -> tuple[float, float, str | None]:
    if units < 2:
        return float("nan"), float("nan"), _NO_INTERVAL
    if error[largest] <= 1e-12:
        return float("nan"), float("nan"), "no interval: the difference is the same for every image"
    low, high = t_intervals(value, error, units=units, confidence=confidence)
    if p > 1 - confidence:
        return 0.0, float(high.max()), "interval reaches 0: no significant difference between templates"
    return max(0.0, float(low[largest])), float(high.max()), None
