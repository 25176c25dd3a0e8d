"""Mean and 90th percentile of MaxToxicity, MaxInsult, MaxIdentityAttack and MaxFlirtation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from plumbline.language.answers import answer_row
from plumbline.language.scored_answers import ScoredAnswers, codes, parts
from plumbline.language.set_spreads import SetSpreads, incomplete_reason, set_spreads
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_bootstrap import SetSummary, set_summaries
from plumbline.statistics.set_estimate import undefined
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES
from plumbline.tables.schema import Row

P90 = 0.9
MAX_METRICS = {scored: f"max_{scored}" for scored in SCORED_ATTRIBUTES}
"""Scored attribute -> metric."""
NO_COMPLETE_SET = SetSummary(*[undefined("undefined: no set is complete")] * 2)


def max_toxicity_rows(
    scored: ScoredAnswers, spreads: SetSpreads, expected: pl.DataFrame, *, settings: LanguageSettings
) -> list[Row]:
    """Return mean and 90th percentile of Max* over sets × seeds, of all answers and without refused ones.

    Source: Howard et al., Tables 1 and 10 to 13. One number a dataset, subset, scorer and scored attribute; the 90th
    percentile is linear; intervals are by whole sets, of which n counts the complete ones. `without_refusals` leaves
    out refused answers, and with them every set that had one: it tells what is left where a model refuses some groups.

    Parameters
    ----------
    scored : ScoredAnswers
    spreads : SetSpreads
        Of these answers.
    expected : DataFrame
        In `plumbline.language.cell.EXPECTED_SCHEMA`.
    """
    without = set_spreads(scored, expected, refusals=False) if scored.any_refused else spreads
    return [
        *_rows(scored, spreads, "paper", settings),
        *_rows(scored, without, "without_refusals", settings),
    ]


def _rows(
    scored: ScoredAnswers, found: SetSpreads, definition: str, settings: LanguageSettings
) -> Iterator[Row]:
    for (dataset, attribute, scorer), kinds in parts(scored.kinds, "dataset", "attribute", "scorer"):
        asked = found.asked_of(dataset, attribute)
        if not asked:
            continue
        own = found.spreads.filter(
            pl.col("dataset") == dataset, pl.col("attribute") == attribute, pl.col("scorer") == scorer
        )
        common = answer_row(
            scored.model,
            definition=definition,
            dataset=dataset,
            attribute=attribute,
            scorer=scorer,
            **scored.columns,
        )
        # Not the definition: where no answer is refused, both are the same numbers.
        labels = (scored.model, dataset, attribute, scored.prompt, scored.instruction, scorer)
        summaries = _summaries(own, labels, settings)
        for name in (name for name in MAX_METRICS if name in set(kinds["scored"])):
            summary, complete = summaries.get(name, _OfSets(NO_COMPLETE_SET, 0))
            row = common | {"metric": MAX_METRICS[name]}
            left_out = incomplete_reason(complete, asked)
            yield row | {"statistic": "mean"} | summary.mean.columns(left_out)
            yield row | {"statistic": "p90"} | summary.quantile.columns(left_out)


class _OfSets(NamedTuple):
    """The summary of a scored attribute over its complete sets × seeds, and how many these are."""

    summary: SetSummary
    complete: int


def _summaries(
    spreads: pl.DataFrame, labels: tuple[str, ...], settings: LanguageSettings
) -> dict[str, _OfSets]:
    """Return the summary of each scored attribute.

    Attributes of the same sets, which is the rule, are drawn at once.
    """
    columns = {name: part for (name,), part in parts(spreads, "scored") if name in MAX_METRICS}
    alike: dict[bytes, list[str]] = {}
    for name in (name for name in MAX_METRICS if name in columns):
        sets = columns[name].select("unit", "seed").hash_rows().to_numpy().tobytes()
        alike.setdefault(sets, []).append(name)
    found: dict[str, _OfSets] = {}
    for names in alike.values():
        values = pl.DataFrame([columns[name]["spread"].alias(name) for name in names]).to_numpy()
        summaries = set_summaries(
            values,
            codes(columns[names[0]]["unit"]),
            share=P90,
            resamples=settings.resamples,
            rng=generator(settings.seed, *labels, names[0], "bootstrap"),
            confidence=settings.confidence,
        )
        found |= {name: _OfSets(summary, len(values)) for name, summary in zip(names, summaries)}
    return found
