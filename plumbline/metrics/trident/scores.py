"""Trident Probe Testing: accuracy with a probe among the candidates, and misclassification as the probe.

Source: Sun et al., "Uncovering Bias in Foundation Models" (TriProTesting), Method 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import metric_frame, polars_schema
from plumbline.errors import MetricError
from plumbline.metrics.disparities import batched_parity_difference
from plumbline.metrics.outcomes import estimate_proportions
from plumbline.reasons import MIN_GROUP, encode, in_words, reason
from plumbline.statistics.estimates import EstimateArray
from plumbline.statistics.groups import count_table, mean_shares
from plumbline.statistics.intervals import mean_of_proportions

CORRECT, PROBE, OTHER = range(3)
"""Outcome of an image in a one-probe test: classified as its own class, as the probe, or as another class."""


@dataclass(frozen=True)
class TridentScores:
    """Scores of one-probe tests: of one from `trident_scores`, of many at once from `score_tables`.

    Leading axes (...) are the tests; a single test has none, and its scalars are 0-d arrays. Groups are the C
    classes, or classes crossed with another label. `n` counts the images of each.

    Attributes
    ----------
    accuracy : EstimateArray
        (...) share of images whose top-1 is their class.
    class_accuracy : EstimateArray
        (..., g) the same by group; nan for an empty group.
    macro_accuracy : EstimateArray
        (...) mean of `class_accuracy` over the groups that are not empty (the paper's formula).
    macro_accuracy_released : EstimateArray
        (...) their sum over C + 1, as the released code divides: never above C / (C + 1).
    probe_rate : EstimateArray
        (..., g) P(class → probe) = images of the group whose top-1 is the probe / images of the group.
    """

    accuracy: EstimateArray
    class_accuracy: EstimateArray
    macro_accuracy: EstimateArray
    macro_accuracy_released: EstimateArray
    probe_rate: EstimateArray


def trident_scores(logits: ArrayLike, labels: ArrayLike, *, n_classes: int, confidence: float = 0.95) -> TridentScores:
    """Score one probe test, by `probe_outcomes` and `score_tables`, which an audit calls for all probes at once.

    Parameters
    ----------
    logits : (n, C + 1) float
        Responses to the C classes and, in the last column, the probe. Only their order within a row matters;
        ties take the lower index, so a probe never wins a tie.
    labels : (n,) int
        True class, 0 .. C - 1.
    n_classes : int
        C.

    Returns
    -------
    TridentScores
        Intervals are Wilson's. Undefined values are nan: everything without images, an empty class.

    Raises
    ------
    MetricError
        If the shapes disagree, a label is not a class, or a logit is nan.

    Examples
    --------
    >>> import plumbline
    >>> scores = plumbline.trident_scores([[3, 1, 2], [1, 2, 3], [1, 3, 2], [1, 2, 0]], [0, 0, 1, 1], n_classes=2)
    >>> scores.probe_rate.value.tolist(), scores.accuracy.value.item()
    ([0.5, 0.0], 0.75)
    """
    responses, classes = checked_logits(logits, labels, n_classes=n_classes)
    outcomes = probe_outcomes(responses[:, :n_classes], responses[:, n_classes:], classes)
    tables = count_table(classes, outcomes, n_groups=n_classes, n_outcomes=3)
    return score_tables(tables[0], released_divisor=n_classes + 1, confidence=confidence)


def checked_logits(
    logits: ArrayLike, labels: ArrayLike, *, n_classes: int
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Return logits (n, C + 1) and labels (n,) as arrays, or raise MetricError saying what is wrong."""
    responses, classes = np.asarray(logits), np.asarray(labels)
    if n_classes < 1 or responses.ndim != 2 or responses.shape != (*classes.shape, n_classes + 1):
        raise MetricError(
            "logits must have a row for each label and a column for each class and the probe",
            found=f"logits {responses.shape}, labels {classes.shape}",
            expected=f"(n, {n_classes + 1}) and (n,)",
        )
    if classes.size and (
        not np.issubdtype(classes.dtype, np.integer) or classes.min() < 0 or classes.max() >= n_classes
    ):
        raise MetricError(
            "a label is not a class",
            found=f"{classes.dtype} {classes.min()} .. {classes.max()}",
            expected=f"integers 0 .. {n_classes - 1}",
            hint="leave unlabelled images out",
        )
    return responses, classes.astype(np.int64)


def probe_outcomes(
    class_logits: NDArray[np.floating], probe_logits: NDArray[np.floating], classes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the outcome of every image in many one-probe tests over the same classes.

    Parameters
    ----------
    class_logits : (n, C)
    probe_logits : (n, p)
    classes : (n,) int
        True class; -1 where it is unknown (never `CORRECT`).

    Returns
    -------
    (p, n) int64
        `CORRECT`, `PROBE` or `OTHER`.

    Raises
    ------
    MetricError
        If a logit is nan.
    """
    predicted = probe_predictions(class_logits, probe_logits)
    lost = np.where(predicted == class_logits.shape[1], PROBE, OTHER)
    return np.where(predicted == classes, CORRECT, lost)


def score_tables(
    tables: NDArray[np.int64], *, released_divisor: int, confidence: float = 0.95, min_group: int = MIN_GROUP
) -> TridentScores:
    """Score tests from their counts.

    Parameters
    ----------
    tables : (..., g, 3) int
        Images by group and outcome (`CORRECT`, `PROBE`, `OTHER`).
    released_divisor : int
        What the released code divides the sum of group accuracies by.
    min_group : int
        Smaller groups are flagged in `reason`.
    """
    sizes, correct, as_probe = tables.sum(axis=-1), tables[..., CORRECT], tables[..., PROBE]
    n = sizes.sum(axis=-1)
    by_group = partial(estimate_proportions, confidence=confidence, min_group=min_group)
    macro = macro_accuracies(tables)
    low, high = mean_of_proportions(correct, sizes, confidence=confidence)
    # The released formula divides the same sum by another number, so that value and interval scale.
    scale = (sizes > 0).sum(axis=-1) / released_divisor
    return TridentScores(
        accuracy=estimate_proportions(correct.sum(axis=-1), n, confidence=confidence, min_group=None),
        class_accuracy=by_group(correct, sizes),
        macro_accuracy=EstimateArray(macro, low, high, n),
        macro_accuracy_released=EstimateArray(macro * scale, low * scale, high * scale, n),
        probe_rate=by_group(as_probe, sizes),
    )


def macro_accuracies(tables: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean share of outcome `CORRECT` over the groups that are not empty, (..., g, c) to (...)."""
    return mean_shares(tables[..., CORRECT], tables.sum(axis=-1))


def probe_predictions(class_logits: NDArray[np.floating], probe_logits: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the top-1 of many one-probe tests over the same classes.

    Parameters
    ----------
    class_logits : (n, C)
    probe_logits : (n, p)

    Returns
    -------
    (p, n) int64
        0 .. C - 1 is a class, C the probe; ties take the lower index, as in `trident_scores`.

    Raises
    ------
    MetricError
        If a logit is nan, which would compare as smaller than every other.
    """
    missing = np.isnan(class_logits).any(axis=1) | np.isnan(probe_logits).any(axis=1)
    if missing.any():
        raise MetricError("a logit is nan", where=f"rows {np.flatnonzero(missing)[:5].tolist()}")
    best = class_logits.argmax(axis=1)
    highest = class_logits[np.arange(len(best)), best]
    return np.where(highest < probe_logits.T, class_logits.shape[1], best).astype(np.int64)


def probe_rate_gap(counts: ArrayLike) -> NDArray[np.float64]:
    """Return the gap between groups of P(class → probe), averaged over the probes of one valence.

    Parameters
    ----------
    counts : (..., g, k + 1) int
        Images of each group by how many of the k probes they were classified as, 0 .. k: the tests share their images.

    Returns
    -------
    (...) float64
        Largest minus smallest group rate, in [0, 1]; 0 is parity. Empty groups are left out; nan with fewer
        than two others.

    Raises
    ------
    MetricError
        If a count is negative or there is no probe.
    """
    tables = np.asarray(counts)
    if tables.ndim < 2 or tables.shape[-1] < 2 or (tables < 0).any():
        raise MetricError("counts must be (..., g, k + 1), k at least 1, not negative", found=tables.shape)
    probes = tables.shape[-1] - 1
    return batched_parity_difference(tables @ np.arange(probes + 1), probes * tables.sum(axis=-1))


def normalise_probe_rates(table: pl.DataFrame) -> pl.DataFrame:
    """Stretch every P(class → probe) of an encoder to 0 .. 100, as in the paper's figures 2 and 3.

    P' = 100 (P - P_min) / (P_max - P_min), minimum and maximum over everything the encoder was tested on: the
    single tests (definition `single`) and the mixed tests (`mixed`) separately, as in the two figures, and both
    together (`joint`).

    The scale belongs to the whole audit (`audit_id`), not to one cell: minimum and maximum run over all datasets
    of the encoder, so a row changes when a dataset joins the audit, though its `cell_id` stays. `joint` rows of
    suite `trident` depend on the labeller as well, since mixed rates stretch their scale, and name it.

    Parameters
    ----------
    table : DataFrame
        Metric rows of any number of cells. Used are `probe_rate` rows of definition `logit` and statistic
        `estimate`, within a model and condition.

    Returns
    -------
    DataFrame
        Metric rows `probe_rate_normalised`, with n and lineage of the row they come from, without interval:
        the ends of the scale are estimates themselves. nan with a reason where all rates are equal, or the
        rate is undefined.
    """
    used = table.filter(
        (pl.col("metric") == "probe_rate")
        & (pl.col("definition") == "logit")
        & (pl.col("statistic") == "estimate")
        & pl.col("suite").is_in(["trident", "trident_mixed"])
    )
    if used.is_empty():
        return metric_frame([])
    single, mixed = (used.filter(pl.col("suite") == suite) for suite in ("trident", "trident_mixed"))
    # The least digest rather than the first: frames may come in any order.
    labeller = pl.col("labeller_sha256")
    joint = used.with_columns(labeller.fill_null(labeller.min().over("model", "condition")))
    parts = [_stretch(part, name) for part, name in ((single, "single"), (mixed, "mixed"), (joint, "joint"))]
    return pl.concat(parts).select(list(polars_schema()))


def _stretch(rows: pl.DataFrame, definition: str) -> pl.DataFrame:
    rate = pl.col("value").fill_nan(None)
    within = ["model", "condition"]
    spread = rate.max().over(within) - rate.min().over(within)
    undefined, equal = (reason("rate_undefined"),), (reason("equal_rates"),)
    reasons = [
        pl.when(rate.is_null())
        .then(pl.lit(written(undefined)))
        .when(spread == 0)
        .then(pl.lit(written(equal)))
        .otherwise(pl.col(column))
        .alias(column)
        for column, written in (("reason", in_words), ("reason_codes", encode))
    ]
    stretched = pl.when(spread > 0).then(100 * (rate - rate.min().over(within)) / spread).fill_null(float("nan"))
    empty = [pl.lit(None, dtype=pl.Float64).alias(name) for name in ("ci_low", "ci_high", "p", "q")]
    return rows.with_columns(
        pl.lit("probe_rate_normalised").alias("metric"),
        pl.lit(definition).alias("definition"),
        stretched.alias("value"),
        *reasons,
        *empty,
    )
