"""Markedness: for which groups the plain prompt fits, and who has to be named.

Source: Hausladen et al., "Social perception of faces in a vision-language model", appendix A.3, equation 7, after Wolfe
& Caliskan (2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.intervals import wilson
from plumbline.statistics.linearised import standard_errors
from plumbline.statistics.reasons import MIN_GROUP, group_size_reason


@dataclass(frozen=True)
class Markedness:
    """Preference of a group's images for the neutral prompt, see `markedness`.

    Attributes
    ----------
    percent : float
        0 .. 100; 100: every image lies closer to the neutral prompt, so the group is unmarked. nan without images.
    ci_low, ci_high : float
        In percent too.
    n : int
    reason : str or None
        Empty or small group.
    """

    percent: float
    ci_low: float
    ci_high: float
    n: int
    reason: str | None


def markedness(
    cos_neutral: ArrayLike,
    cos_marked: ArrayLike,
    *,
    confidence: float = 0.95,
    min_group: int = MIN_GROUP,
) -> Markedness:
    """Return the percentage of images that prefer the neutral to the marked prompt, with Wilson's interval (eq. 7).

    Parameters
    ----------
    cos_neutral, cos_marked : (n,) float
        Cosine of each image of one group with "a photo of a person", and with the prompt that names the group. A tie is
        no preference for the neutral prompt.
    confidence : float
        Of the interval.
    min_group : int
        Smaller groups are flagged.

    Raises
    ------
    MetricError
        If the lengths differ or a cosine is not finite.
    """
    neutral, marked = np.asarray(cos_neutral, dtype=np.float64), np.asarray(cos_marked, dtype=np.float64)
    if neutral.ndim != 1 or neutral.shape != marked.shape:
        raise MetricError(
            "the cosines must be of the same images",
            found=f"{neutral.shape} and {marked.shape}",
            expected="(n,) twice",
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
) -> Markedness:
    """Return the markedness of one group, averaged over templates.

    Parameters
    ----------
    prefers_neutral : (n, t) bool
        By image and template.
    clusters : (n,) int, optional
        Set of each image.

    Returns
    -------
    Markedness
        The interval is Wilson's with the number of independent yes-or-no answers that would vary as much as these do
        (Korn & Graubard 1998): n of them for one template and images without sets, fewer where images of a set agree,
        more where templates disagree. Where all answers agree it is the number of images or sets.
    """
    n = len(prefers_neutral)
    if n == 0:
        return Markedness(np.nan, np.nan, np.nan, 0, group_size_reason(0, min_group))
    share = prefers_neutral.mean(axis=1)
    mean = float(share.mean())
    trials = float(n)
    if clusters is not None or prefers_neutral.shape[1] > 1:
        trials = _trials(share, mean, clusters)
    low, high = wilson(mean * trials, trials, confidence=confidence)
    reason = group_size_reason(n, min_group)
    return Markedness(100 * mean, 100 * float(low), 100 * float(high), n, reason)


def _trials(share: NDArray[np.float64], mean: float, clusters: NDArray[np.int64] | None) -> float:
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
