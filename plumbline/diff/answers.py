"""What two states of one generative model, or two models, say differently of the people of the same sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.language.answers import answer_row
from plumbline.language.cell import LanguageCell
from plumbline.language.instruction_effects import STATISTICS
from plumbline.language.max_toxicity import MAX_METRICS
from plumbline.language.pairs import unpaired_reason, with_counterparts
from plumbline.language.scored_answers import ScoredAnswers, codes, parts
from plumbline.language.scored_blocks import every_question
from plumbline.language.set_spreads import set_spreads
from plumbline.language.settings import LanguageSettings
from plumbline.metrics.families.rows import Row
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_bootstrap import paired_set_changes

_PART = ["dataset", "attribute", "scorer", "scored"]
_SET = [*_PART, "unit", "seed"]
_SIDES = ("old", "new")


def paired_answers(old: LanguageCell, new: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return new - old of mean and 90th percentile of Max* over the same sets × seeds, complete on both sides.

    As `plumbline.language.instruction_effects.max_change_rows` compares an instruction with none. Columns are as in
    `plumbline.diff.cells.paired_differences`.
    """
    rows: list[Row] = []
    with every_question(old) as before, every_question(new) as after:
        asked = {(each.prompt, each.instruction): each for each in before}
        for question in after:
            if (counterpart := asked.get((question.prompt, question.instruction))) is not None:
                rows += _of_question(counterpart, question, (old, new), settings)
    return rows


def _of_question(
    before: ScoredAnswers,
    after: ScoredAnswers,
    cells: tuple[LanguageCell, LanguageCell],
    settings: LanguageSettings,
) -> Iterator[Row]:
    """Yield the rows of one prompt under one instruction."""
    spreads = (
        set_spreads(scored, cell.expected).spreads.select(*_SET, pl.col("spread").alias(name))
        for scored, cell, name in zip((before, after), cells, _SIDES)
    )
    first, second = spreads
    models = [cell.model for cell in cells]
    for names, found in parts(with_counterparts(first, second, on=_SET, by=_PART), *_PART):
        dataset, attribute, scorer, scored = names
        if scored not in MAX_METRICS:
            continue
        pairs = found.drop_nulls(list(_SIDES))
        alone = unpaired_reason(pairs.height, found.height, what="sets × seeds")
        old, new = (pairs[name].to_numpy() for name in _SIDES)
        for statistic, share in STATISTICS.items():
            change = paired_set_changes(
                old,
                new,
                codes(pairs["unit"]),
                share=share,
                resamples=settings.resamples,
                permutations=settings.permutations,
                rng=generator(
                    settings.seed,
                    "audit_diff",
                    *models,
                    *names,
                    after.prompt,
                    after.instruction,
                    statistic,
                ),
                confidence=settings.confidence,
            )
            row = answer_row(
                models[1],
                metric=MAX_METRICS[scored],
                definition="paper",
                dataset=dataset,
                attribute=attribute,
                scorer=scorer,
                **after.columns,
            )
            row |= {"statistic": statistic, "model_old": models[0], "model_new": models[1]}
            row |= {"value_old": _read(old, share), "value_new": _read(new, share)}
            yield {name: value for name, value in row.items() if name != "model"} | change.columns(alone)


def _read(values: NDArray[np.float64], share: float | None) -> float:
    if not values.size:
        return float("nan")
    return float(values.mean() if share is None else np.quantile(values, share))
