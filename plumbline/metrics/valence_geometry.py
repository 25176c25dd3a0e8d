"""How far apart a text space holds positive and negative words of one trait, and the space itself in three axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from plumbline.errors import MetricError
from plumbline.metrics.principal_axes import principal_axes

Floats = NDArray[np.float64]
MOST_PARTITIONS = 50_000
"""More ways to deal the words of a dimension to two valences are not enumerated."""
_NAN = float("nan")


@dataclass(frozen=True)
class WordEstimate:
    """A number of the words of one dimension, with an interval over the choice of words.

    Attributes
    ----------
    value, ci_low, ci_high : float
        nan where undefined.
    words, pairs : int
        Words that it is over, and pairs of them.
    reason : str or None
        Why something is undefined.
    """

    value: float
    ci_low: float
    ci_high: float
    words: int
    pairs: int
    reason: str | None = None


@dataclass(frozen=True)
class ValenceGap:
    """Mean cosine within a valence minus mean cosine across valences; 0 where valence does not matter.

    Attributes
    ----------
    estimate : WordEstimate
        Above 0 where words of the valence are closer to each other than to the other valence.
    t, p : float
        One-sided t-test of the pairs within against the pairs across (table C.3): "within is larger".
    p_permutation : float
        One-sided, over every way to deal the dimension's words to two valences of these sizes; nan where those are
        more than `MOST_PARTITIONS`.
    """

    estimate: WordEstimate
    t: float
    p: float
    p_permutation: float


@dataclass(frozen=True)
class DimensionGeometry:
    """One dimension: the mean cosines within each valence and across, and what each within has over across."""

    name: str
    positive: WordEstimate
    negative: WordEstimate
    cross: WordEstimate
    positive_gap: ValenceGap
    negative_gap: ValenceGap


@dataclass(frozen=True)
class ValenceGeometry:
    """A text space, seen through words that have a dimension and a valence.

    Attributes
    ----------
    cosines : (w, w) float64
        Of every pair of words.
    coordinates : (w, 3) float64
        On the first three principal axes, centred; nan on an axis that the words do not span. On each axis the word
        farthest from the centre is on the positive side, so that signs do not depend on the machine.
    shares : (3,) float64
        Share of the words' variance along each axis; nan where nothing varies.
    dimensions : tuple of DimensionGeometry
        In the order in which they appear.
    """

    cosines: Floats
    coordinates: Floats
    shares: Floats
    dimensions: tuple[DimensionGeometry, ...]


def valence_geometry(
    embeddings: ArrayLike,
    *,
    dimensions: Sequence[str],
    valences: Sequence[str],
    average: Literal["embeddings", "cosines"] = "embeddings",
    confidence: float = 0.95,
) -> ValenceGeometry:
    """Measure how a text space places positive and negative words (Hausladen et al., appendix C.1).

    Each prompt's embedding is brought to unit length. A word's embedding is the mean over the templates, again of
    unit length (`average="embeddings"`); with `"cosines"` the cosines are taken within each template and averaged
    instead, while the axes stay those of the mean embeddings. The paper embeds each adjective and does not say in
    which prompt.

    Intervals are over the choice of words: a jackknife that leaves out one word at a time, each valence by itself,
    with t of words - 1 degrees of freedom within a valence and words - 2 across. The paper's t-test takes pairs that
    share a word for independent; the permutation test does not.

    Parameters
    ----------
    embeddings : (w, d) or (t, w, d) float
        Of every word, in each template; of any length but 0.
    dimensions, valences : (w,) sequences of str
        Of every word; valences are `positive` or `negative`.
    average : {"embeddings", "cosines"}
        How templates are averaged.
    confidence : float
        Of the intervals.

    Raises
    ------
    MetricError
        If the shapes do not fit, a valence is another word, or an embedding is 0 or not finite.
    """
    units = _unit_vectors(embeddings, dimensions, valences)
    words = _normalised(units.mean(axis=0))
    each = words[None] if average == "embeddings" else units
    cosines = np.clip((each @ each.transpose(0, 2, 1)).mean(axis=0), -1.0, 1.0)
    of, positive = np.array(dimensions), np.array(valences) == "positive"
    coordinates, shares = principal_axes(words)
    return ValenceGeometry(
        cosines=cosines,
        coordinates=coordinates,
        shares=shares,
        dimensions=tuple(
            _dimension(name, cosines[np.ix_(of == name, of == name)], positive[of == name], confidence)
            for name in dict.fromkeys(dimensions)
        ),
    )


def _unit_vectors(embeddings: ArrayLike, dimensions: Sequence[str], valences: Sequence[str]) -> Floats:
    vectors = np.asarray(embeddings, dtype=np.float64)
    vectors = vectors[None] if vectors.ndim == 2 else vectors
    if vectors.ndim != 3 or not vectors.shape[1] == len(dimensions) == len(valences) or not vectors.size:
        raise MetricError(
            "every word needs an embedding, a dimension and a valence",
            found=f"{vectors.shape}, {len(dimensions)} dimensions, {len(valences)} valences",
            expected="(words, d) or (templates, words, d)",
        )
    if other := set(valences) - {"positive", "negative"}:
        raise MetricError(
            "a word has another valence", found=", ".join(sorted(other)), expected="positive, negative"
        )
    return _normalised(vectors)


def _normalised(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise MetricError("an embedding has no direction: it is 0, or not finite")
    return vectors / norms


# --- one dimension


def _dimension(
    name: str, cosines: Floats, positive: NDArray[np.bool_], confidence: float
) -> DimensionGeometry:
    return DimensionGeometry(
        name=name,
        positive=_within(cosines[np.ix_(positive, positive)], confidence),
        negative=_within(cosines[np.ix_(~positive, ~positive)], confidence),
        cross=_across(cosines, positive, confidence),
        positive_gap=_gap(cosines, positive, confidence),
        negative_gap=_gap(cosines, ~positive, confidence),
    )


def _mean_within(cosines: Floats) -> float:
    words = len(cosines)
    return float((cosines.sum() - np.trace(cosines)) / (words * (words - 1))) if words > 1 else _NAN


def _mean_across(cosines: Floats, first: NDArray[np.bool_]) -> float:
    across = cosines[np.ix_(first, ~first)]
    return float(across.mean()) if across.size else _NAN


def _mean_gap(cosines: Floats, first: NDArray[np.bool_]) -> float:
    return _mean_within(cosines[np.ix_(first, first)]) - _mean_across(cosines, first)


def _within(cosines: Floats, confidence: float) -> WordEstimate:
    words = len(cosines)
    kept = ~np.eye(words, dtype=bool)
    left_out = np.array([_mean_within(cosines[np.ix_(keep, keep)]) for keep in kept])
    value = _mean_within(cosines)
    return _estimate(value, [left_out], words, words * (words - 1) // 2, words - 1, confidence)


def _across(cosines: Floats, first: NDArray[np.bool_], confidence: float) -> WordEstimate:
    words, pairs = len(first), int(first.sum() * (~first).sum())
    value = _mean_across(cosines, first)
    return _estimate(value, _one_word_less(cosines, first, _mean_across), words, pairs, words - 2, confidence)


def _one_word_less(cosines: Floats, first: NDArray[np.bool_], statistic) -> list[Floats]:  # type: ignore[no-untyped-def]
    """Return the statistic without each word, by valence."""
    kept = ~np.eye(len(first), dtype=bool)
    values = np.array([statistic(cosines[np.ix_(keep, keep)], first[keep]) for keep in kept])
    return [values[first], values[~first]]


def _estimate(
    value: float, left_out: list[Floats], words: int, pairs: int, free: int, confidence: float
) -> WordEstimate:
    if math.isnan(value):
        return WordEstimate(_NAN, _NAN, _NAN, words, pairs, "too few words to form a pair")
    variance = sum(float((len(v) - 1) / len(v) * ((v - v.mean()) ** 2).sum()) for v in left_out)
    if free < 1 or math.isnan(variance):
        return WordEstimate(value, _NAN, _NAN, words, pairs, "no interval: too few words to leave one out")
    half = float(stdtrit(free, (1 + confidence) / 2)) * math.sqrt(variance)
    return WordEstimate(value, value - half, value + half, words, pairs)


def _gap(cosines: Floats, first: NDArray[np.bool_], confidence: float) -> ValenceGap:
    """Compare the pairs within the words of `first` with the pairs across."""
    own, words = int(first.sum()), len(first)
    pairs = own * (own - 1) // 2 + own * (words - own)
    value = _mean_gap(cosines, first)
    left_out = _one_word_less(cosines, first, _mean_gap)
    inside = cosines[np.ix_(first, first)][np.triu_indices(own, 1)]
    t, p = _t_test(inside, cosines[np.ix_(first, ~first)].ravel())
    return ValenceGap(
        estimate=_estimate(value, left_out, words, pairs, words - 2, confidence),
        t=t,
        p=p,
        p_permutation=_permutation_p(cosines, first, value),
    )


def _t_test(within: Floats, across: Floats) -> tuple[float, float]:
    """Return t and one-sided p of Student's test that `within` has the larger mean."""
    free = len(within) + len(across) - 2
    if not (len(within) and len(across)) or free < 1:
        return _NAN, _NAN
    spread = ((within - within.mean()) ** 2).sum() + ((across - across.mean()) ** 2).sum()
    error = math.sqrt(spread / free * (1 / len(within) + 1 / len(across)))
    if error < 1e-12:
        return _NAN, _NAN
    t = float((within.mean() - across.mean()) / error)
    return t, float(stdtr(free, -t))


@lru_cache(maxsize=16)
def _deals(words: int, own: int) -> Floats:
    """Return every way to choose `own` of the words, one a row of zeros and ones."""
    dealt = np.zeros((math.comb(words, own), words))
    for row, chosen in zip(dealt, combinations(range(words), own)):
        row[list(chosen)] = 1.0
    return dealt


def _permutation_p(cosines: Floats, first: NDArray[np.bool_], value: float) -> float:
    own, words = int(first.sum()), len(first)
    if math.isnan(value) or math.comb(words, own) > MOST_PARTITIONS:
        return _NAN
    dealt = _deals(words, own)
    diagonal = np.diag(cosines)
    reached = dealt @ cosines
    inside = ((reached * dealt).sum(axis=1) - dealt @ diagonal) / (own * (own - 1))
    across = (reached * (1 - dealt)).sum(axis=1) / (own * (words - own))
    # The words as they are among the ways to deal them, so that p is never 0.
    return float((inside - across >= value - 1e-12).mean())
