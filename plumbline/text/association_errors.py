"""How sure a word association is: its standard error over blocks of whole sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError


@dataclass(frozen=True)
class AssociationErrors:
    """How sure associations are.

    Attributes
    ----------
    error : (g, w) float64
        Standard errors, in the associations' logarithm. nan where a group never says the word, where fewer than two
        blocks hold it, or where there are no words of other groups.
    degrees : (w,) int64
        Degrees of freedom of each word: the blocks in which anyone says it, less one.
    """

    error: NDArray[np.float64]
    degrees: NDArray[np.int64]


def association_errors(times: ArrayLike, words: ArrayLike, *, log_base: float = 2) -> AssociationErrors:
    """Return the standard error of every word's association with every group.

    The association log(f_g / N_g) - log(f_o / N_o) is a smooth function of four sums over blocks b of independent
    sets, so its variance is that of the sum of its linear parts (Taylor linearisation of a ratio of clustered counts;
    Wolter 2007, Introduction to Variance Estimation, chapter 6), and never below that of independent counts:

        z_b = f_gb / f_g - N_gb / N_g - f_ob / f_o + N_ob / N_o
        variance = max(B / (B - 1) × Σ z_b², 1 / f_g + 1 / f_o) / ln(base)²

    A word that one text repeats, or that one scene calls for in every answer, is counted often but is in few blocks,
    and gets the wide error and the few degrees of freedom that it should; a test that takes every count as independent
    (such as Dunning's log-likelihood ratio) calls nearly all such words significant. The bound is for words of few
    blocks, whose shares of two groups may agree by chance. Only that whole sets are independent is assumed; groups may
    be related within a set in any way.

    Parameters
    ----------
    times : (g, b, w) int
        How often each group's texts say each word, by block of sets.
    words : (g, b) int
        All words of a group's texts, by block.
    log_base : float
        Of the associations.

    Returns
    -------
    AssociationErrors
        A word that others never say is counted there as one half, as in the association: its error has the own part
        of the variance and 1 / ½ = 2.

    Raises
    ------
    MetricError
        If the shapes disagree.
    """
    f, n = np.asarray(times), np.asarray(words)
    if f.ndim != 3 or n.shape != f.shape[:2]:
        raise MetricError(
            "counts and numbers of words must be of the same groups and blocks",
            found=f"{f.shape}, {n.shape}",
            expected="(g, b, w), (g, b)",
        )
    all_times, all_words = f.sum(axis=0), n.sum(axis=0)
    degrees = (all_times > 0).sum(axis=0) - 1
    found = np.full((f.shape[0], f.shape[2]), np.nan)
    for group in range(len(f)):
        n_others = all_words - n[group]
        if n_others.sum() > 0:
            found[group] = np.sqrt(_variance(f[group], n[group], all_times - f[group], n_others))
    found[:, degrees < 1] = np.nan
    return AssociationErrors(found / np.log(log_base), degrees.astype(np.int64))


def _variance(
    f: NDArray[np.int64], n: NDArray[np.int64], f_others: NDArray[np.int64], n_others: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return (w,) the variances of one group, of natural logarithms."""
    blocks, own_total, others_total = len(f), f.sum(axis=0), f_others.sum(axis=0)
    never = others_total == 0
    own = _shares(f) - _shares(n)[:, None]
    others = np.where(never, 0.0, _shares(f_others) - _shares(n_others)[:, None])
    of_counts = _inverse(own_total)
    clustered = blocks / max(blocks - 1, 1) * ((own - others) ** 2).sum(axis=0)
    return np.where(
        never, np.maximum(clustered, of_counts) + 2, np.maximum(clustered, of_counts + _inverse(others_total))
    )


def _inverse(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(1.0, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each block's share of the sum over blocks, axis 0; nan where that is 0."""
    total = np.broadcast_to(counts.sum(axis=0), counts.shape)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)
