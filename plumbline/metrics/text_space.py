"""Valence geometry: how far apart text embeddings of a trait's positive and negative words lie, and principal axes.

Source: Hausladen et al., "Social perception of faces in a vision-language model", appendix C.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.catalog.suites import Suite
from plumbline.errors import MetricError
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.perception import valence_words
from plumbline.reasons import Reason, joined, reason
from plumbline.statistics.estimates import Estimate

Floats = NDArray[np.float64]
AXES = 3
MAX_PARTITIONS = 50_000
"""Above this number of partitions of a dimension's words into two valences there is no permutation p-value."""
_NAN = float("nan")

Average = Literal["embeddings", "cosines"]
"""How templates are averaged, see `valence_geometry`."""


@dataclass(frozen=True)
class ValenceGap(Estimate):
    """Mean cosine within a valence minus mean cosine across valences; 0 where valence does not matter.

    Above 0 where words of the valence are closer to each other than to the other valence. p is that of the one-sided
    t-test of the pairs within against the pairs across (table C.3): "within is larger".

    Attributes
    ----------
    t : float
        Statistic of that test.
    p_permutation : float
        One-sided, over every partition of the dimension's words into valences of these sizes; nan where those are
        more than `MAX_PARTITIONS`.
    """

    t: float = _NAN
    p_permutation: float = _NAN


@dataclass(frozen=True)
class DimensionGeometry:
    """One dimension: the mean cosines within each valence and across, and within minus across. n counts words."""

    name: str
    positive: Estimate
    negative: Estimate
    cross: Estimate
    positive_gap: ValenceGap
    negative_gap: ValenceGap


@dataclass(frozen=True)
class ValenceGeometry:
    """Geometry of the text embeddings of words that have a dimension and a valence.

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
    average: Average = "embeddings",
    confidence: float = 0.95,
) -> ValenceGeometry:
    """Measure how a text space places positive and negative words (Hausladen et al., appendix C.1).

    Each prompt's embedding is normalised. A word's embedding is the mean over the templates, normalised again
    (`average="embeddings"`); with `"cosines"` the cosines are taken within each template and averaged instead, while
    the axes stay those of the mean embeddings. The paper embeds each adjective and does not say in which prompt.

    Intervals are over the choice of words: a jackknife that leaves out one word at a time, each valence by itself,
    with t of words - 1 degrees of freedom within a valence and words - 2 across. The paper's t-test treats pairs that
    share a word as independent; the permutation test does not.

    Parameters
    ----------
    embeddings : (w, d) or (t, w, d) float
        Of every word, in each template; of any length but 0.
    dimensions, valences : (w,) sequences of str
        Of every word; valences are `positive` or `negative`.
    average : {"embeddings", "cosines"}
        How templates are averaged.
    confidence : float
        Confidence level of the intervals.

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
        raise MetricError("a word has another valence", found=", ".join(sorted(other)), expected="positive, negative")
    return _normalised(vectors)


def _normalised(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise MetricError("an embedding has no direction: it is 0, or not finite")
    return vectors / norms


def principal_axes(words: Floats) -> tuple[Floats, Floats]:
    """Return coordinates and shares of (w, d) words on their first three principal axes, see `ValenceGeometry`."""
    centred = words - words.mean(axis=0)
    left, strength, _ = np.linalg.svd(centred, full_matrices=False)
    total = float((strength**2).sum())
    coordinates, shares = np.full((len(words), AXES), np.nan), np.full(AXES, np.nan)
    # Rounding leaves some 1e-16 along axes that the words do not span.
    if total <= 1e-24:
        return coordinates, shares
    spanned = strength[:AXES] > 1e-9 * strength[0]
    scores = (left * strength)[:, :AXES]
    farthest = np.abs(scores).argmax(axis=0)
    scores *= np.where(scores[farthest, np.arange(scores.shape[1])] < 0, -1.0, 1.0)
    coordinates[:, : scores.shape[1]] = np.where(spanned, scores, np.nan)
    shares[: len(spanned)] = np.where(spanned, strength[:AXES] ** 2 / total, 0.0)
    return coordinates, shares


# One dimension


def _dimension(name: str, cosines: Floats, positive: NDArray[np.bool_], confidence: float) -> DimensionGeometry:
    within = [_estimate(_mean_within, cosines[np.ix_(of, of)], of[of], confidence) for of in (positive, ~positive)]
    cross = _estimate(_mean_across, cosines, positive, confidence)
    gaps = [_gap(cosines, of, confidence) for of in (positive, ~positive)]
    return DimensionGeometry(name, within[0], within[1], cross, gaps[0], gaps[1])


def _mean_within(cosines: Floats, of_valence: NDArray[np.bool_]) -> float:
    within, words = cosines[np.ix_(of_valence, of_valence)], int(of_valence.sum())
    return float((within.sum() - np.trace(within)) / (words * (words - 1))) if words > 1 else _NAN


def _mean_across(cosines: Floats, of_valence: NDArray[np.bool_]) -> float:
    across = cosines[np.ix_(of_valence, ~of_valence)]
    return float(across.mean()) if across.size else _NAN


def _mean_gap(cosines: Floats, of_valence: NDArray[np.bool_]) -> float:
    return _mean_within(cosines, of_valence) - _mean_across(cosines, of_valence)


def _estimate(
    statistic: Callable[[Floats, NDArray[np.bool_]], float],
    cosines: Floats,
    of_valence: NDArray[np.bool_],
    confidence: float,
) -> Estimate:
    """Return a statistic of words with its jackknife interval, stratified by valence."""
    from scipy.special import stdtrit

    words, value = len(of_valence), statistic(cosines, of_valence)
    if math.isnan(value):
        return Estimate(_NAN, _NAN, _NAN, words, reason=joined(reason("no_pair_of_words")))
    kept = ~np.eye(words, dtype=bool)
    without = np.array([statistic(cosines[np.ix_(keep, keep)], of_valence[keep]) for keep in kept])
    sides = [values for values in (without[of_valence], without[~of_valence]) if len(values)]
    variance = sum(float((len(v) - 1) / len(v) * ((v - v.mean()) ** 2).sum()) for v in sides)
    df = words - len(sides)
    if df < 1 or math.isnan(variance):
        return Estimate(value, _NAN, _NAN, words, reason=joined(reason("too_few_words")))
    half = float(stdtrit(df, (1 + confidence) / 2)) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, words)


def _gap(cosines: Floats, of_valence: NDArray[np.bool_], confidence: float) -> ValenceGap:
    """Compare the pairs within the words of `of_valence` with the pairs across."""
    gap = _estimate(_mean_gap, cosines, of_valence, confidence)
    inside = cosines[np.ix_(of_valence, of_valence)][np.triu_indices(int(of_valence.sum()), 1)]
    t, p = _t_test(inside, cosines[np.ix_(of_valence, ~of_valence)].ravel())
    p_permutation = _permutation_p(cosines, of_valence, gap.value)
    return ValenceGap(gap.value, gap.ci_low, gap.ci_high, gap.n, p, gap.reason, t=t, p_permutation=p_permutation)


def _t_test(within: Floats, across: Floats) -> tuple[float, float]:
    """Return t and one-sided p of Student's test that `within` has the larger mean."""
    from scipy.special import stdtr

    df = len(within) + len(across) - 2
    if not (len(within) and len(across)) or df < 1:
        return _NAN, _NAN
    spread = ((within - within.mean()) ** 2).sum() + ((across - across.mean()) ** 2).sum()
    error = math.sqrt(spread / df * (1 / len(within) + 1 / len(across)))
    if error < 1e-12:
        return _NAN, _NAN
    t = float((within.mean() - across.mean()) / error)
    return t, float(stdtr(df, -t))


@lru_cache(maxsize=16)
def _partitions(words: int, inside: int) -> Floats:
    """Return every way to choose `inside` of the words: one row of zeros and ones per choice."""
    members = np.zeros((math.comb(words, inside), words))
    for row, chosen in zip(members, combinations(range(words), inside)):
        row[list(chosen)] = 1.0
    return members


def _permutation_p(cosines: Floats, of_valence: NDArray[np.bool_], value: float) -> float:
    size, words = int(of_valence.sum()), len(of_valence)
    if math.isnan(value) or math.comb(words, size) > MAX_PARTITIONS:
        return _NAN
    members = _partitions(words, size)
    sums = members @ cosines
    inside = ((sums * members).sum(axis=1) - members @ np.diag(cosines)) / (size * (size - 1))
    across = (sums * (1 - members)).sum(axis=1) / (size * (words - size))
    # The observed partition is among them, so that p is never 0.
    return float((inside - across >= value - 1e-12).mean())


# Rows, and the table of words

TEXT = "text"
"""Value of the column `dataset` in rows about text embeddings, which need no images."""

GEOMETRY_SCHEMA: dict[str, pl.DataType] = {
    "model": pl.String(),
    "word": pl.String(),
    "dimension": pl.String(),
    "valence": pl.String(),
    "x": pl.Float64(),
    "y": pl.Float64(),
    "z": pl.Float64(),
    "share_x": pl.Float64(),
    "share_y": pl.Float64(),
    "share_z": pl.Float64(),
    "cosines": pl.List(pl.Float64),
}
"""One row per word and model: its principal coordinates, the share of variance along each axis (equal in all rows of a
model), and its cosines to the model's words in the order of their rows."""


def prompt_embeddings(suite: Suite, embedded: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the (t, w, d) embeddings of the two-pole words of a perception suite.

    Parameters
    ----------
    suite : Suite
        With templates and scales.
    embedded : mapping of str to (d,) float32
        Prompt to its embedding.

    Raises
    ------
    MetricError
        If a prompt has no embedding.
    """
    text = {(c.template, c.word): c.text for c in suite.candidates}
    wanted = [[text[template, word] for word in valence_words(suite)] for template in suite.templates]
    if lacking := [prompt for row in wanted for prompt in row if prompt not in embedded]:
        raise MetricError(
            f"{len(lacking)} prompts of the suite `{suite.id}` have no embedding",
            found=f"nothing for `{lacking[0]}`",
            hint="materialise `text_embeddings` of this encoder again",
        )
    return np.array([[embedded[prompt] for prompt in row] for row in wanted])


def text_space_rows(
    model: str, suites: Iterable[Suite], embedded: Mapping[str, NDArray[np.float32]], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the metric rows of a text space: of words in prompts, and of words alone.

    Parameters
    ----------
    suites : iterable of Suite
        `perception` and `perception_words`, or one of them; others have no such rows.
    embedded : mapping of str to (d,) float32
        Prompt to its embedding.
    """
    frames = [metric_frame([])]
    for suite in suites:
        if suite.id in _ROWS_OF:
            frames.append(_ROWS_OF[suite.id](model, suite, prompt_embeddings(suite, embedded), settings=settings))
    return pl.concat(frames)


def bare_word_rows(
    model: str, suite: Suite, embeddings: NDArray[np.float32], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return `valence_cosine` and `valence_gap` of words without a template, under the definition `bare_words`.

    Appendix C.1 of Hausladen et al. speaks of the text embeddings of adjectives, and does not say in which prompt.

    Parameters
    ----------
    suite : Suite
        `perception_words`.
    embeddings : (1, w, d) float32
    """
    rows = geometry_rows(model, suite, embeddings, settings=settings).filter(
        pl.col("definition").is_in(["template_mean", "ttest"])
    )
    return rows.with_columns(definition=pl.lit("bare_words"))


def geometry_rows(
    model: str, suite: Suite, embeddings: NDArray[np.float32], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the metric rows of the valence geometry.

    `valence_cosine`: mean cosine of the words of a dimension within a valence (`group`) or across. `valence_gap`:
    within minus across, with the p of the paper's t-test (`ttest`), of the permutation of the words (`permutation`),
    and of the t-test on cosines that were taken template by template (`per_template`). `text_axis_share`: share of
    the words' variance along principal axis `k`.

    Parameters
    ----------
    embeddings : (t, w, d) float32
        As `prompt_embeddings` gives them.
    """
    common: Row = {
        "model": model,
        "dataset": TEXT,
        "condition": "before",
        "statistic": "estimate",
        "suite": suite.id,
        "suite_hash": suite.hash,
    }
    mean, by_template = (_geometry(suite, embeddings, average, settings) for average in ("embeddings", "cosines"))
    rows: list[Row] = []
    for geometry, definition in ((mean, "template_mean"), (by_template, "per_template")):
        rows += [row for each in geometry.dimensions for row in _cosines(each, definition)]
    for definition, geometry in (("ttest", mean), ("permutation", mean), ("per_template", by_template)):
        rows += [row for each in geometry.dimensions for row in _gaps(each, definition)]
    for axis, share in enumerate(mean.shares.tolist(), start=1):
        constant = reason("constant_words") if math.isnan(share) else None
        named = {"metric": "text_axis_share", "definition": "pca", "k": axis, "reason": constant}
        rows.append(named | {"value": share, "n": len(mean.cosines)})
    return metric_frame([common | row for row in rows])


_ROWS_OF = {"perception": geometry_rows, "perception_words": bare_word_rows}
TEXT_SPACE_SUITES = tuple(_ROWS_OF)
"""The suites that a text space is measured by."""


def geometry_words(
    model: str, suite: Suite, embeddings: NDArray[np.float32], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the words of a text space with their principal coordinates and cosines, as `GEOMETRY_SCHEMA` says."""
    geometry = _geometry(suite, embeddings, "embeddings", settings)
    words = valence_words(suite)
    columns = {
        "model": [model] * len(words),
        "word": list(words),
        "dimension": [dimension for dimension, _ in words.values()],
        "valence": [valence for _, valence in words.values()],
        **{axis: geometry.coordinates[:, i] for i, axis in enumerate("xyz")},
        **{f"share_{axis}": [float(geometry.shares[i])] * len(words) for i, axis in enumerate("xyz")},
        "cosines": geometry.cosines.tolist(),
    }
    return pl.DataFrame(columns, schema=GEOMETRY_SCHEMA)


def _geometry(
    suite: Suite, embeddings: NDArray[np.float32], average: Average, settings: MetricSettings
) -> ValenceGeometry:
    dimensions, valences = zip(*valence_words(suite).values())
    return valence_geometry(
        embeddings, dimensions=dimensions, valences=valences, average=average, confidence=settings.confidence
    )


def _cosines(each: DimensionGeometry, definition: str) -> Iterator[Row]:
    named = {"metric": "valence_cosine", "definition": definition, "attribute": each.name}
    for group, estimate in (("positive", each.positive), ("negative", each.negative), ("cross", each.cross)):
        yield named | {"group": group} | estimate.columns()


def _gaps(each: DimensionGeometry, definition: str) -> Iterator[Row]:
    for group, gap in (("positive", each.positive_gap), ("negative", each.negative_gap)):
        p, untested = gap.p, reason("constant_word_cosines")
        note: Reason | None = reason("pairs_share_words")
        if definition == "permutation":
            p, untested, note = gap.p_permutation, reason("too_many_word_partitions"), None
        of_test = untested if p is None or math.isnan(p) else note
        yield gap.columns() | {
            "metric": "valence_gap",
            "definition": definition,
            "attribute": each.name,
            "group": group,
            "reference_group": "cross",
            "p": p,
            "reason": joined(gap.reason, None if math.isnan(gap.value) else of_test),
        }
