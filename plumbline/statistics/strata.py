"""Tests of "no difference between groups within any stratum", such as a scene: labels are dealt out within each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plumbline.statistics.permutation import permute_tables


def permute_strata(
    tables: NDArray[np.int64], *, permutations: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the tables of several strata with the same margins, each as if its group labels had been shuffled.

    What the strata themselves bring about (a scene in which everyone is taken for a thief, and which shows more of one
    group) is then no evidence of a difference between groups.

    Parameters
    ----------
    tables : (s, g, c) int
        Counts of each stratum.
    permutations : int
        At least 1.

    Returns
    -------
    (permutations, s, g, c) int64
    """
    drawn = [permute_tables(table, permutations=permutations, rng=rng) for table in tables]
    return np.stack(drawn, axis=1) if drawn else np.empty((permutations, *tables.shape), dtype=np.int64)
