"""SC-WEAT: how much closer one group's images lie to a word than another's.

Source: Hausladen et al., "Social perception of faces in a vision-language model", appendix A.2, equations 2 to 6, after
Steed & Caliskan (2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.partition_tests import (
    SLACK,
    Alternative,
    Tails,
    exact_tails,
    random_tails,
    smaller_size,
    standardised,
    takes_all,
)
from plumbline.statistics.partitions import random_subsets


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
) -> Tails:
    """Compare the columns and their mean with other partitions."""
    m = columns.shape[1]
    if takes_all(in_a):
        return exact_tails(np.concatenate([columns, columns.mean(axis=1, keepdims=True)], axis=1), in_a)
    size = smaller_size(in_a)
    blocks = random_subsets(len(columns), [size], count=permutations, rng=rng)
    mean = np.full((m, 1), 1 / m)
    return random_tails(standardised(columns), mean, [in_a], [size], blocks)[0]


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
