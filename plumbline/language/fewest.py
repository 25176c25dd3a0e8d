"""Of which group a model uses the fewest words of competence, occupation by occupation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from plumbline.language.group_values import GroupValues
from plumbline.statistics.intervals import wilson
from plumbline.statistics.reasons import joined
from plumbline.tables.schema import Row

FEWEST = "fewest_competence_words"


def fewest_rows(question: GroupValues, shares: Sequence[Mapping[str, object]]) -> Iterator[Row]:
    """Return in which share of the occupations each group has the smallest mean (the paper, figure 12).

    Parameters
    ----------
    question : GroupValues
    shares : sequence of mapping of str to float
        Of each occupation: group -> mean share of competence words. An occupation in which a group has no mean is left
        out, since that group could not be the one.

    Returns
    -------
    iterator of rows
        One a group, n: occupations. Where k groups have the smallest mean, each counts 1/k, so that the shares of all
        groups sum to 1; chance gives each 1 / groups. The interval is Wilson's, with occupations as independent.
    """
    if not shares:
        return
    means = np.array([[share[group] for group in question.groups] for share in shares], dtype=np.float64)
    whole = ~np.isnan(means).any(axis=1)
    kept, dropped = means[whole], int((~whole).sum())
    said = [f"{dropped} of {len(means)} occupations left out: a group has no answers"] if dropped else []
    if not len(kept):
        said.append("undefined: no occupation with every group")
    # Equal means of different sums differ in the last bits.
    fewest = np.isclose(kept, kept.min(axis=1, keepdims=True), rtol=1e-12, atol=0)
    counts = (fewest / fewest.sum(axis=1, keepdims=True)).sum(axis=0)
    low, high = wilson(counts, len(kept), confidence=question.settings.confidence)
    for place, group in enumerate(question.groups):
        yield question.common | {
            "metric": FEWEST,
            "definition": "paper",
            "group": group,
            "value": float(counts[place]) / len(kept) if len(kept) else float("nan"),
            "ci_low": float(low[place]),
            "ci_high": float(high[place]),
            "n": len(kept),
            "reason": joined(*said),
        }
