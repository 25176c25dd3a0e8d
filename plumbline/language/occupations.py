"""In which occupations the scores of groups lie furthest apart, and how they are distributed there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from plumbline.language.answers import answer_row
from plumbline.language.scored_answers import OF_SCORES, ScoredAnswers, codes, parts
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_estimate import SetEstimate
from plumbline.statistics.set_gaps import group_gap
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.tables.schema import Row, Schema

PROMPT = "characteristics"
"""The prompt that Figure 5 shows; the others would make tens of thousands of rows."""
SHOWN = 4
_QUANTILES = {"min": 0.0, "q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95, "max": 1.0}
OCCUPATION_SCORES: Schema = {
    "dataset": pl.String,
    "attribute": pl.String,
    "prompt": pl.String,
    "scorer": pl.String,
    "event": pl.String,
    "end": pl.String,
    "place": pl.Int64,
    "occupation": pl.String,
    "spread": pl.Float64,
    "group": pl.String,
    **dict.fromkeys(_QUANTILES, pl.Float64),
    "n": pl.Int64,
}
"""Scores of each group in the four occupations of the largest and of the smallest spread.

`event` is the scored attribute, `end` `largest` or `smallest`, `place` 1 for the outermost; quantiles are linear; `n`
counts answers.
"""


class OccupationResults(NamedTuple):
    """Metric rows, and the table `occupation_scores`."""

    rows: list[Row]
    table: pl.DataFrame


def occupation_results(scored: ScoredAnswers, *, settings: LanguageSettings) -> OccupationResults:
    """Return `occupation_spread` of every occupation with enough sets, and the table `occupation_scores`.

    Source: Howard et al., C.3 and Figure 5. The spread is the standard deviation (ddof 0) of the groups' mean scores in
    answers about one occupation. Chance alone spreads means, and more so where there are few sets: p is by shuffling
    groups within sets, and the interval reaches 0 where it does not reject. Occupations with fewer than `min_sets` sets
    are left out. Of every scorer, and of the Characteristics prompt without instruction only; nothing of another.
    """
    rows: list[Row] = []
    tables = [pl.DataFrame(schema=OCCUPATION_SCORES)]
    if scored.prompt != PROMPT or scored.instruction != NO_INSTRUCTION:
        return OccupationResults(rows, tables[0])
    for names, _ in parts(scored.kinds, *OF_SCORES):
        dataset, attribute, scorer, event = names
        part = scored.scores_of(names, "occupation", "group", "unit", "score").drop_nulls("occupation")
        if part.is_empty():
            continue
        common: Row = {
            "dataset": dataset, "attribute": attribute, "prompt": PROMPT, "scorer": scorer, "event": event,
        }  # fmt: skip
        spreads = _spreads(part, (scored.model, *map(str, common.values())), settings)
        row = answer_row(scored.model, metric="occupation_spread", definition="paper", **common)
        rows += [row | {"occupation": name} | found.columns() for name, found in spreads.items()]
        if not spreads:
            reason = f"undefined: no occupation has {settings.min_sets} sets"
            rows.append(row | {"value": np.nan, "n": 0, "reason": reason})
        tables.append(_table(part, common, spreads))
    return OccupationResults(rows, pl.concat(tables))


def _spreads(
    part: pl.DataFrame, labels: tuple[str, ...], settings: LanguageSettings
) -> dict[str, SetEstimate]:
    found = {}
    for (occupation,), own in parts(part, "occupation"):
        if own["unit"].n_unique() < settings.min_sets or own["group"].n_unique() < 2:
            continue
        found[occupation] = group_gap(
            own["score"].to_numpy(),
            codes(own["group"]),
            codes(own["unit"]),
            n_groups=own["group"].n_unique(),
            resamples=settings.resamples,
            permutations=settings.permutations,
            rng=generator(settings.seed, *labels, occupation, "spread"),
            confidence=settings.confidence,
            kind="deviation",
        )
    return found


def _table(part: pl.DataFrame, common: Row, spreads: dict[str, SetEstimate]) -> pl.DataFrame:
    """Return the quantiles of the occupations at both ends; with few occupations none is at both."""
    order = sorted(spreads, key=lambda name: (-spreads[name].value, name))
    shown = min(SHOWN, (len(order) + 1) // 2)
    ends = {
        "largest": order[:shown],
        "smallest": order[len(order) - min(SHOWN, len(order) - shown) :][::-1],
    }
    placed = [
        common | {"end": end, "place": place, "occupation": name, "spread": spreads[name].value}
        for end, names in ends.items()
        for place, name in enumerate(names, start=1)
    ]
    quantiles = part.group_by(pl.col("occupation", "group").cast(pl.String)).agg(
        *(pl.col("score").quantile(share, "linear").alias(name) for name, share in _QUANTILES.items()),
        n=pl.len().cast(pl.Int64),
    )
    of_ends = pl.DataFrame(
        placed, schema={name: OCCUPATION_SCORES[name] for name in list(OCCUPATION_SCORES)[:9]}
    )
    return (
        of_ends.join(quantiles, on="occupation")
        .sort("end", "place", "group")
        .select(list(OCCUPATION_SCORES))
        .cast(pl.Schema(OCCUPATION_SCORES))
    )
