"""How sure a word association is: its standard error over blocks of whole sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError


def association_errors(times: ArrayLike, words: ArrayLike, *, log_base: float = 2) -> NDArray[np.float64]:
    """Return the standard error of every word's association with every group.

    The association log(f_g / N_g) - log(f_o / N_o) is a smooth function of four sums over blocks b of independent
    sets, so its error is that of the sum of its linear parts (Taylor linearisation of a ratio of clustered counts;
    Wolter 2007, Introduction to Variance Estimation, chapter 6):

        z_b = f_gb / f_g - N_gb / N_g - f_ob / f_o + N_ob / N_o,    variance = B / (B - 1) × Σ z_b²  / ln(base)²

    A word that one text repeats, or that the same scene calls for in every answer, is counted often but is in few
    blocks, and gets the wide error that it should; a test that takes every count as independent (such as Dunning's
    log-likelihood ratio) calls nearly all of them significant. Only that whole sets are independent is assumed; groups
    may be related within a set in any way. Its degrees of freedom are B - 1.

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
    (g, w) float64
        nan where a group never says the word, where there is one block, or there are no words of other groups. A word
        that others never say is counted there as one half, as in the association, with the variance of such a count:
        2 in natural logarithms, as in Haldane's correction.

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
    blocks, all_times, all_words = f.shape[1], f.sum(axis=0), n.sum(axis=0)
    found = np.full((f.shape[0], f.shape[2]), np.nan)
    for group in range(len(f) if blocks > 1 else 0):
        f_others, n_others = all_times - f[group], all_words - n[group]
        if n_others.sum() == 0:
            continue
        never = f_others.sum(axis=0) == 0
        others = np.where(never, 0.0, _shares(f_others) - _shares(n_others)[:, None])
        z = _shares(f[group]) - _shares(n[group])[:, None] - others
        found[group] = np.sqrt(blocks / (blocks - 1) * (z**2).sum(axis=0) + np.where(never, 2.0, 0.0))
    return found / np.log(log_base)


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each block's share of the sum over blocks, axis 0; nan where that is 0."""
    total = np.broadcast_to(counts.sum(axis=0), counts.shape)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)
