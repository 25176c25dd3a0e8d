"""What one design factor changes: differences of disparities between two checkpoints on the same images.

Source: Al Sahili et al., "Data Matters Most", sections 3.4 and 4.2 to 4.4, tables 2 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import polars as pl

from plumbline.metrics.answered_dataset import AnsweredDataset
from plumbline.metrics.factor_pairs import FactorPair
from plumbline.metrics.outcome_comparisons import outcome_answers, outcome_comparisons
from plumbline.metrics.paired_rows import paired_rows
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.multiplicity import add_q_values
from plumbline.tables.schema import ESTIMATE, Row, Schema

EFFECT_SCHEMA: Schema = {
    # what was compared
    "factor": pl.String,
    "level_first": pl.String,
    "level_second": pl.String,
    "held": pl.String,
    "first": pl.String,
    "second": pl.String,
    "dataset": pl.String,
    "suite": pl.String,
    "attribute": pl.String,
    "event": pl.String,
    "metric": pl.String,
    "definition": pl.String,
    # the difference, and the two numbers of the metric table that it is the difference of
    **ESTIMATE,
    "value_first": pl.Float64,
    "value_second": pl.Float64,
}
"""One row an effect; `value` is `value_first` - `value_second`, `attribute` is null for harm rates."""


def factor_effects(
    datasets: Iterable[AnsweredDataset], pairs: Sequence[FactorPair], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the effect of each factor: the value of the first checkpoint of each pair minus that of the second.

    For every event and attribute: Max Skew (`mean_over_pairs`, and `smoothed` beside it) where the event has one, and
    the parity difference; for every event the harm rate; and all of them for the mean over the three tasks.

    Parameters
    ----------
    datasets : iterable of AnsweredDataset
        Used one after the other. A pair is compared wherever both its checkpoints have answers.
    pairs : sequence of FactorPair

    Returns
    -------
    DataFrame
        In `EFFECT_SCHEMA`; no row without pairs. Positive: the first of the pair is the more biased, or does more
        harm. `n` counts the images behind both values.

        The interval is a paired BCa bootstrap over images: a resample holds both checkpoints' answers to an image.
        A disparity cannot fall below parity, and resampling adds to it; so where a chi-squared test (for images in
        sets: Wald's, by the spread over sets) finds no difference between the groups of one checkpoint, the interval
        is widened to that checkpoint at parity and `reason` says so.

        `p` is against "no effect on this reading", and is the largest of three: the share of random swaps of the two
        checkpoints' answers, image by image, that change it as much in either direction (exact for "they answer
        alike", which is more than "no effect": equal skews at very different harm rates are not alike); the level at
        which the BCa interval reaches 0; and the chi-squared p of the more biased of the two, since a disparity that
        may be none is no effect. So p is never below 1 - confidence while the interval holds 0. `q` is within
        `plumbline.statistics.multiplicity.FAMILIES`. Simulated coverage and level: docs/decisions, 12.
    """
    rows = chain.from_iterable(_dataset_rows(answered, pairs, settings) for answered in datasets)
    return add_q_values(pl.DataFrame(list(rows), schema=EFFECT_SCHEMA, orient="row"), of="factor_effects")


def _dataset_rows(
    answered: AnsweredDataset, pairs: Sequence[FactorPair], settings: MetricSettings
) -> list[Row]:
    present = [pair for pair in pairs if {pair.first, pair.second} <= answered.answers.keys()]
    if not present:
        return []
    rows = paired_rows(
        outcome_answers(answered),
        outcome_comparisons(answered),
        [(pair.first, pair.second) for pair in present],
        named=("factor_effects", answered.dataset),
        settings=settings,
    )
    return [{"dataset": answered.dataset, **vars(present[number]), **row} for number, row in rows]
