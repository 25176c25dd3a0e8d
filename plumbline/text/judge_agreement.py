"""Precision and recall of a judge of words against the majority of annotators.

Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", appendix D.2.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl

from plumbline.errors import MetricError
from plumbline.statistics.intervals import wilson

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
