"""Agreement of annotators, and of a judge with them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.intervals import percentile, wilson

NO_TEXTS = "undefined: no text was labelled by every annotator"
ONE_ANNOTATOR = "undefined: agreement needs two annotators"
ONE_LABEL = "undefined: every label is the same, so that agreement by chance is complete"

_BLOCK = 1_000_000
"""Numbers drawn at once."""


@dataclass(frozen=True)
class Kappa:
    """Fleiss' kappa.

    Attributes
    ----------
    value : float
        1: all agree on every text; 0: they agree as often as labels drawn by their frequency would; below 0: less
        often. nan where it is undefined.
    ci_low, ci_high : float
        Percentile interval over resampled texts; nan where there is none.
    n : int
        Texts.
    annotators : int
        Labels of each text.
    reason : str or None
        Why the value or the interval is nan.
    """

    value: float
    ci_low: float
    ci_high: float
    n: int
    annotators: int
    reason: str | None = None


def fleiss_kappa(
    counts: ArrayLike, *, rng: np.random.Generator, resamples: int = 10_000, confidence: float = 0.95
) -> Kappa:
    """Return Fleiss' kappa, by statsmodels, with a bootstrap interval.

    Parameters
    ----------
    counts : (n, labels) int
        How many annotators gave each text each label; every text has the same number of them.
    rng : Generator
    resamples : int
        Of whole texts. One in which every label is the same has no kappa; see `percentile` for what comes of those.
    confidence : float

    Returns
    -------
    Kappa
        nan with a reason where there are no texts, less than two annotators, or only one label was ever given. All in
        complete agreement gives 1 without an interval: no resample differs.

    Raises
    ------
    MetricError
        If the counts are not a matrix of whole numbers from 0 whose rows have one sum.
    """
    table = _table(counts)
    n, annotators = len(table), int(table[0].sum()) if len(table) else 0
    undefined = (
        NO_TEXTS if not n else ONE_ANNOTATOR if annotators < 2 else ONE_LABEL if _one_label(table) else None
    )
    if undefined:
        return Kappa(np.nan, np.nan, np.nan, n, annotators, undefined)
    from statsmodels.stats.inter_rater import fleiss_kappa as kappa

    interval = percentile(_resampled(table, resamples=resamples, rng=rng), confidence=confidence)
    return Kappa(float(kappa(table)), interval.low, interval.high, n, annotators, interval.reason)


def _table(counts: ArrayLike) -> NDArray[np.int64]:
    table = np.asarray(counts)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer) or (table < 0).any():
        raise MetricError(
            "label counts must be a matrix of whole numbers from 0",
            found=f"{table.dtype} {table.shape}",
            expected="(texts, labels) int",
        )
    if len(sums := np.unique(table.sum(axis=1))) > 1:
        raise MetricError(
            "every text needs the same number of labels",
            found=f"{sums[0]} to {sums[-1]}",
            hint="leave out the texts that an annotator did not label",
        )
    return table.astype(np.int64)


def _one_label(table: NDArray[np.int64]) -> bool:
    return bool((table.sum(axis=0) > 0).sum() < 2)


def _resampled(table: NDArray[np.int64], *, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return kappa of each resample of whole texts: (resamples,), nan where only one label was drawn.

    Agreement within a text does not change, and the frequencies of labels are sums: both need only how often each
    text was drawn.
    """
    n, annotators = len(table), table[0].sum()
    agreement = ((table**2).sum(axis=1) - annotators) / (annotators * (annotators - 1))
    kappas = []
    step = max(1, _BLOCK // n)
    for start in range(0, resamples, step):
        drawn = rng.multinomial(n, np.full(n, 1 / n), size=min(step, resamples - start))
        observed = drawn @ agreement / n
        labels = drawn @ table
        chance = (labels.astype(np.float64) ** 2).sum(axis=1) / (n * annotators) ** 2
        one_label = (labels > 0).sum(axis=1) < 2
        kappas.append(np.where(one_label, np.nan, (observed - chance) / np.where(one_label, 1, 1 - chance)))
    return np.concatenate(kappas) if kappas else np.empty(0)


# --- Precision and recall of a judge of words against the majority of annotators.
#
# Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals",
# appendix D.2.

NONE_JUDGED = "undefined: the judge names none of the annotated items"
NONE_TRUE = "undefined: the majority names none of the annotated items"


@dataclass(frozen=True)
class Share:
    """A share of counted items with its Wilson interval; nan with a reason where nothing was counted.

    Attributes
    ----------
    value, ci_low, ci_high : float
        In [0, 1].
    n : int
        Items that it is a share of.
    reason : str or None
    """

    value: float
    ci_low: float
    ci_high: float
    n: int
    reason: str | None = None


@dataclass(frozen=True)
class JudgeAgreement:
    """How far a judge's list is that of the annotators' majority.

    Attributes
    ----------
    precision : Share
        Of what the judge names, what the majority names too.
    recall : Share
        Of what the majority names, what the judge names too.
    n : int
        Items that were annotated.
    """

    precision: Share
    recall: Share
    n: int


def judge_agreement(
    counts: pl.DataFrame, named: Collection[str], *, confidence: float = 0.95
) -> JudgeAgreement:
    """Return precision and recall of a judge against the majority of the annotators.

    Parameters
    ----------
    counts : DataFrame
        Of `label_counts`: the items that were annotated. What the judge names besides them does not count.
    named : collection of str
        `text_id` of what the judge names.

    Raises
    ------
    MetricError
        If the annotators are an even number, so that there may be no majority.
    """
    annotators = int((counts["no"] + counts["yes"]).max() or 1)  # type: ignore[arg-type]
    if annotators % 2 == 0:
        raise MetricError(
            "a majority needs an odd number of annotators",
            found=annotators,
            expected="such as 3",
            where="judge",
        )
    true = (counts["yes"] > counts["no"]).to_numpy()
    judged = counts["text_id"].is_in(list(named)).to_numpy()
    both = int((true & judged).sum())
    return JudgeAgreement(
        precision=_share(both, int(judged.sum()), NONE_JUDGED, confidence),
        recall=_share(both, int(true.sum()), NONE_TRUE, confidence),
        n=counts.height,
    )


def _share(count: int, n: int, reason: str, confidence: float) -> Share:
    if not n:
        return Share(np.nan, np.nan, np.nan, 0, reason)
    low, high = wilson(count, n, confidence=confidence)
    return Share(count / n, float(low), float(high), n)
