"""WEAT: whether two sets of targets lie differently between two sets of attributes.

Source: Caliskan, Bryson & Narayanan (2017), "Semantics derived automatically from language corpora contain human-like
biases"; with images on either side, Steed & Caliskan (2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.metrics.sc_weat import sc_weat
from plumbline.statistics.partition_tests import Alternative


@dataclass(frozen=True)
class Weat:
    """A word (or image) embedding association test, see `weat`.

    Attributes
    ----------
    statistic : float
        Sum over X of s minus sum over Y of s.
    effect_size : float
        Mean over X of s minus mean over Y of s, in standard deviations of s over both; positive: X lies closer to A.
        nan where s does not vary.
    p_value : float
    exact : bool
        Whether p comes from all partitions.
    reason : str or None
        Why something is nan.
    """

    statistic: float
    effect_size: float
    p_value: float
    exact: bool
    reason: str | None


def weat(
    x: ArrayLike,
    y: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    *,
    permutations: int = 10_000,
    rng: np.random.Generator,
    alternative: Alternative = "greater",
    ddof: int = 1,
) -> Weat:
    """Return the association of targets X against Y with attributes A against B.

    s(w) = mean over A of cos(w, a) - mean over B of cos(w, b); S = sum over X of s - sum over Y of s;
    d = (mean over X of s - mean over Y of s) / sd of s over X and Y.

    Parameters
    ----------
    x, y : (., d) float
        Embeddings of the two sets of targets, images or texts, of any norm; sizes may differ, and partitions keep them.
    a, b : (., d) float
        Embeddings of the two sets of attributes.
    permutations, rng, alternative, ddof
        As in `sc_weat`.

    Returns
    -------
    Weat
        All nan where a set of targets or of attributes is empty.

    Raises
    ------
    MetricError
        If the dimensions differ, or an embedding is not finite or has no direction.
    """
    targets, attributes = (
        [_directions(e, name) for e, name in ((x, "x"), (y, "y"))],
        [_directions(e, name) for e, name in ((a, "a"), (b, "b"))],
    )
    sets = (*targets, *attributes)
    if len({e.shape[1] for e in sets}) > 1:
        raise MetricError(
            "embeddings of different dimensions cannot be compared", found=[e.shape for e in sets]
        )
    if not all(len(e) for e in sets):
        return Weat(np.nan, np.nan, np.nan, False, "empty set")
    every = np.concatenate(targets)
    association = every @ attributes[0].mean(axis=0) - every @ attributes[1].mean(axis=0)
    in_x = np.arange(len(every)) < len(targets[0])
    # With the sizes fixed, S rises with the difference of means, so the test is that of one SC-WEAT column.
    found = sc_weat(
        association[:, None], in_x, permutations=permutations, rng=rng, alternative=alternative, ddof=ddof
    )
    return Weat(
        statistic=float(association[in_x].sum() - association[~in_x].sum()),
        effect_size=float(found.effect_size[0]),
        p_value=float(found.p_value[0]),
        exact=found.exact,
        reason="the association does not vary: no effect size" if found.reason else None,
    )


def _directions(embeddings: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return embeddings with unit norm."""
    values = np.asarray(embeddings, dtype=np.float64)
    if values.ndim != 2:
        raise MetricError(
            "a set of embeddings must be a table", where=name, found=values.shape, expected="(., d)"
        )
    norm = np.linalg.norm(values, axis=1, keepdims=True)
    if not np.isfinite(values).all() or (norm == 0).any():
        raise MetricError("an embedding is not finite, or is zero and has no direction", where=name)
    return values / norm
