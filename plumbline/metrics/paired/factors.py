"""Pairs of checkpoints that differ in one design factor and in nothing else that the audit file declares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import polars as pl

from plumbline.catalog.schema import ESTIMATE, Row, Schema
from plumbline.metrics.evidence import add_detectable_changes
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.paired.comparisons import outcome_answers, outcome_comparisons
from plumbline.metrics.paired.effects import paired_rows
from plumbline.metrics.predictions import Predictions
from plumbline.statistics.multiplicity import add_q_values

# The paper's sign is first - second of "B/32 vs L/14", "400M vs 2B", "OpenCLIP vs CLIP" (its tables 2 and 4). These
# are its levels in the spellings that checkpoints go by, so that the sign does not depend on the order of the file.
PUBLISHED_LEVELS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "size": (("b32", "vitb32"), ("l14", "vitl14", "l14336", "vitl14336")),
    "data_amount": (("400m",), ("2b",)),
    "data_source": (("openclip", "laion"), ("clip", "openai", "proprietary", "wit", "webimagetext")),
}
"""Factor -> levels in the order of the published comparison; spellings without case and punctuation."""


@dataclass(frozen=True)
class FactorPair:
    """Two checkpoints that differ in one factor. An effect is the value of `first` minus that of `second`.

    Attributes
    ----------
    factor : str
        The factor in which they differ.
    level_first, level_second : str
        Their levels of it.
    first, second : str
        Ids of the checkpoints.
    held : str
        Their common levels of the other factors, as `3k, atlas`; empty where there is no other.
    """

    factor: str
    level_first: str
    level_second: str
    first: str
    second: str
    held: str


def factor_pairs(factors: Mapping[str, Mapping[str, str]]) -> tuple[FactorPair, ...]:
    """Find the pairs of checkpoints that differ in exactly one factor.

    The first of a pair has the level that comes first: in the paper's order where both levels are the paper's
    (`PUBLISHED_LEVELS`), otherwise in the order in which levels first appear among the encoders of the audit file.
    So `small` - `large` where the file lists a small checkpoint first.

    Parameters
    ----------
    factors : mapping of str to mapping of str to str
        Checkpoint -> factor -> level, in the order of the audit file.

    Returns
    -------
    tuple of FactorPair
        By factor, then in the order of the file. Checkpoints that declare other factors, or none, are in no pair
        with each other: undeclared factors cannot be held constant.
    """
    order: dict[str, dict[str, int]] = {}
    for levels_of in factors.values():
        for factor, level in levels_of.items():
            levels = order.setdefault(factor, {})
            levels.setdefault(level, len(levels))
    pairs = [
        _ordered(one, other, differing[0], factors, order)
        for one, other in combinations(factors, 2)
        if factors[one].keys() == factors[other].keys()
        and len(differing := [f for f in factors[one] if factors[one][f] != factors[other][f]]) == 1
    ]
    names = list(order)
    return tuple(sorted(pairs, key=lambda pair: names.index(pair.factor)))


def _ordered(
    one: str, other: str, factor: str, factors: Mapping[str, Mapping[str, str]], order: Mapping[str, Mapping[str, int]]
) -> FactorPair:
    levels = (factors[one][factor], factors[other][factor])
    ranks = [_published_rank(factor, level) for level in levels]
    if None in ranks or ranks[0] == ranks[1]:
        ranks = [order[factor][level] for level in levels]
    first, second = (one, other) if (ranks[0] or 0) < (ranks[1] or 0) else (other, one)
    held = ", ".join(level for name, level in factors[first].items() if name != factor)
    return FactorPair(factor, factors[first][factor], factors[second][factor], first, second, held)


def _published_rank(factor: str, level: str) -> int | None:
    spelling = re.sub(r"[^a-z0-9]", "", level.lower())
    for rank, spellings in enumerate(PUBLISHED_LEVELS.get(factor, ())):
        if spelling in spellings:
            return rank
    return None


# --- What one design factor changes: differences of disparities between two checkpoints on the same
# images.
#
# Source: Al Sahili et al., "Data Matters Most", sections 3.4 and 4.2 to 4.4, tables 2 and 4.

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
    "smallest_detectable": pl.Float64,
}
"""One row per effect; `value` is `value_first` - `value_second`, `attribute` is null for harm rates."""


def factor_effects(
    datasets: Iterable[Predictions], pairs: Sequence[FactorPair], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the effect of each factor: the value of the first checkpoint of each pair minus that of the second.

    For every event and attribute: Max Skew (`mean_over_pairs`, and `smoothed` beside it) where the event has one, and
    the parity difference; for every event the harm rate; and all of them for the mean over the three tasks.

    Parameters
    ----------
    datasets : iterable of Predictions
        Used one after the other. A pair is compared wherever both its checkpoints have answers.
    pairs : sequence of FactorPair

    Returns
    -------
    DataFrame
        In `EFFECT_SCHEMA`; no row without pairs. Positive: the first of the pair is the more biased, or does more
        harm. `n` counts the images behind both values.

        The interval is a paired BCa bootstrap over images: a resample holds both checkpoints' answers to an image.
        A disparity cannot fall below parity, and resampling inflates it; so where a chi-squared test (for
        clustered images Wald's, by the spread over clusters) finds no difference between the groups of one checkpoint,
        the interval is extended to that checkpoint at parity and `reason` says so.

        `p` is against "no effect on this statistic", the largest of three:

        1. the swap-permutation p: the share of random swaps of the two checkpoints' answers, image by image, that
           change it as much in either direction (exact for "they answer alike", which is more than "no effect": equal
           skews at very different harm rates are not alike);
        2. the level at which the BCa interval reaches 0;
        3. the chi-squared (Wald) p of the more biased checkpoint, for a disparity.

        So p is never below 1 - confidence while the interval holds 0. `q` is within
        `plumbline.statistics.multiplicity.FAMILIES`. Simulated coverage and level: docs/decisions, 12.
    """
    rows = chain.from_iterable(_dataset_rows(answered, pairs, settings) for answered in datasets)
    effects = add_q_values(pl.DataFrame(list(rows), schema=EFFECT_SCHEMA, orient="row"), of="factor_effects")
    return add_detectable_changes(effects, of="factor_effects", confidence=settings.confidence)


def _dataset_rows(answered: Predictions, pairs: Sequence[FactorPair], settings: MetricSettings) -> list[Row]:
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
