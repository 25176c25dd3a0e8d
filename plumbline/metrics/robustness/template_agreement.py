"""Whether checkpoints stand in the same order of directional bias under every wording of the prompts.

Source: Al Sahili et al., "Data Matters Most", appendix C ("rank order among checkpoints is unchanged").
"""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import metric_frame
from plumbline.digests import digest_json
from plumbline.errors import MetricError
from plumbline.reasons import joined, reason
from plumbline.statistics.estimates import Estimate

EVERY_MODEL = "all"
"""Value of the column `model` in rows about all checkpoints of a dataset."""

MAX_ENUMERATED = 9
"""Up to this many checkpoints every order of them is tried: 9! is 362,880."""

MIN_FOR_INTERVAL = 10


def rank_agreement(first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Return Spearman's rank correlation of checkpoints across two templates.

    Parameters
    ----------
    first, second : (m,) float
        A metric of each checkpoint under each template. A checkpoint that lacks one (nan) is left out; ties take
        their mean rank.

    Returns
    -------
    Estimate
        In [-1, 1]; 1: the same order. nan with fewer than three checkpoints, or where all tie under a template; n are
        the checkpoints with a value under both. p is one-sided, of the permutation test of independence
        of the orders: exact over all orders up to `MAX_ENUMERATED` checkpoints, else by the t distribution. Interval by
        Bonett and Wright (2000), from `MIN_FOR_INTERVAL` checkpoints on.

    Raises
    ------
    MetricError
        If the lengths differ.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    values = [np.asarray(side, dtype=np.float64) for side in (first, second)]
    if values[0].ndim != 1 or values[0].shape != values[1].shape:
        raise MetricError(
            "ranks are compared of the same checkpoints",
            found=f"{values[0].shape} and {values[1].shape}",
            expected="(m,) and (m,)",
        )
    known = ~np.isnan(values[0]) & ~np.isnan(values[1])
    m, nan = int(known.sum()), float("nan")
    if m < 3:
        return Estimate(nan, nan, nan, m, nan, joined(reason("too_few_checkpoints", n=m)))
    ranks = [rankdata(side[known]) for side in values]
    if min(np.ptp(side) for side in ranks) == 0:
        return Estimate(nan, nan, nan, m, nan, joined(reason("tied_checkpoints")))
    one, other = (_standardised(side) for side in ranks)
    rho = float(np.clip(one @ other, -1, 1))
    low, high, why = nan, nan, None
    if m < MIN_FOR_INTERVAL or abs(rho) >= 1 - 1e-12:
        same = m >= MIN_FOR_INTERVAL and rho > 0
        why = reason("same_order") if same else reason("few_checkpoints", n=m)
    else:
        half = ndtri((1 + confidence) / 2) * np.sqrt((1 + rho**2 / 2) / (m - 3))
        low, high = (float(np.tanh(np.arctanh(rho) + side)) for side in (-half, half))
    return Estimate(rho, low, high, m, _p_value(one, other, rho), joined(why))


def template_agreement(table: pl.DataFrame, *, confidence: float = 0.95) -> pl.DataFrame:
    """Return the rank correlation of all checkpoints of a dataset, for every task and pair of templates.

    The rows belong to no one cell: column `model` says `all`, and `cell_id` and `checkpoint_sha256` are digests of
    those of the cells they come from.

    Parameters
    ----------
    table : DataFrame
        Metric rows of any number of cells. Used are the `directional_bias` rows over all images of a dataset,
        statistic `estimate`.

    Returns
    -------
    DataFrame
        Metric rows `template_rank_correlation`: `group` and `reference_group` are the two templates, `n` the
        checkpoints. No rows where only one checkpoint was tested.
    """
    used = table.filter(
        pl.col("metric") == "directional_bias",
        pl.col("statistic") == "estimate",
        pl.col("condition") == "before",
        pl.col("group").is_null(),
    )
    keys = ["dataset", "suite", "suite_hash", "event", "definition"]
    rows: list[dict[str, object]] = []
    for key, same in sorted(used.group_by(keys), key=lambda item: str(item[0])):
        models = sorted(same["model"].unique())
        if len(models) < 2:
            continue
        values = {(row["probe"], row["model"]): row["value"] for row in same.iter_rows(named=True)}
        for one, other in combinations(sorted(same["probe"].drop_nulls().unique()), 2):
            sides = [[values.get((template, model), np.nan) for model in models] for template in (one, other)]
            agreement = rank_agreement(*sides, confidence=confidence)
            rows.append(dict(zip(keys, key)) | _row(one, other, agreement) | _lineage(same))
    return metric_frame(rows)


def _lineage(rows: pl.DataFrame) -> dict[str, object]:
    """Return where a number of several cells comes from: the digest of theirs, and their one dataset."""
    joined = {name: digest_json(sorted(rows[name].drop_nulls().unique())) for name in ("cell_id", "checkpoint_sha256")}
    return joined | {"dataset_digest": rows["dataset_digest"].first()}


def _row(one: str, other: str, agreement: Estimate) -> dict[str, object]:
    return {
        "metric": "template_rank_correlation",
        "model": EVERY_MODEL,
        "condition": "before",
        "statistic": "estimate",
        "group": other,
        "reference_group": one,
        **agreement.columns(),
    }


def _standardised(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = ranks - ranks.mean()
    return np.asarray(centred / np.linalg.norm(centred))


def _p_value(one: NDArray[np.float64], other: NDArray[np.float64], rho: float) -> float:
    from scipy.special import stdtr

    m = len(one)
    if m <= MAX_ENUMERATED:
        orders = np.array(list(permutations(range(m))))
        return float(np.mean(other[orders] @ one >= rho - 1e-12))
    if rho >= 1 - 1e-12:
        return 0.0
    return float(stdtr(m - 2, -rho * np.sqrt((m - 2) / (1 - rho**2))))
