"""What two states of one generative model, or two models, say differently of the people of the same sets."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from plumbline.diff.answer_rows import change_row
from plumbline.language.cell import LanguageCell
from plumbline.language.instruction_effects import STATISTICS
from plumbline.language.max_toxicity import MAX_METRICS
from plumbline.language.pairs import with_counterparts
from plumbline.language.scored_answers import OF_SCORES, ScoredAnswers, parts
from plumbline.language.scored_blocks import every_question
from plumbline.language.set_spreads import set_spreads
from plumbline.language.settings import LanguageSettings
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES
from plumbline.tables.schema import Row

_PART = [*OF_SCORES]
_SET = [*_PART, "unit", "seed"]
_PICTURED = ["group", "unit", "seed"]


def paired_answers(old: LanguageCell, new: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return new - old of Max* and of each group's scores, mean and 90th percentile, over the same sets x seeds.

    As `plumbline.language.instruction_effects.max_change_rows` compares an instruction with none: of Max* sets that are
    complete on both sides, of a group's scores the sets and seeds that both have. Columns are as in
    `plumbline.diff.cells.paired_differences`.
    """
    rows: list[Row] = []
    models = (old.model, new.model)
    with every_question(old) as before, every_question(new) as after:
        asked = {(each.prompt, each.instruction): each for each in before}
        for question in after:
            if (counterpart := asked.get((question.prompt, question.instruction))) is not None:
                first = set_spreads(counterpart, old.expected).spreads
                second = set_spreads(question, new.expected).spreads
                rows += _of_sets(first, second, question.columns, models, settings)
                rows += _of_groups(counterpart, question, models, settings)
    return rows


def _of_sets(
    before: pl.DataFrame,
    after: pl.DataFrame,
    question: Row,
    models: tuple[str, str],
    settings: LanguageSettings,
) -> Iterator[Row]:
    """Yield the rows of Max* of one prompt under one instruction."""
    sides = before.select(*_SET, old="spread"), after.select(*_SET, new="spread")
    for names, found in parts(with_counterparts(*sides, on=_SET, by=_PART), *_PART):
        scored = names[-1]
        if scored in MAX_METRICS:
            columns = _columns(names, question) | {"metric": MAX_METRICS[scored], "definition": "paper"}
            yield from _changes(found, columns, models, settings)


def _of_groups(
    before: ScoredAnswers, after: ScoredAnswers, models: tuple[str, str], settings: LanguageSettings
) -> Iterator[Row]:
    """Yield the rows of each group's scores of one prompt under one instruction."""
    known = [{names for names, _ in parts(each.kinds, *OF_SCORES)} for each in (before, after)]
    for names in sorted(known[0] & known[1]):
        if names[-1] not in SCORED_ATTRIBUTES:
            continue
        sides = [
            each.scores_of(names, *_PICTURED, "score")
            .group_by(_PICTURED)
            .agg(pl.col("score").mean().alias(side))
            for each, side in ((before, "old"), (after, "new"))
        ]
        columns = _columns(names, after.columns) | {"metric": names[-1], "definition": "score"}
        for (group,), found in parts(with_counterparts(*sides, on=_PICTURED, by=["group"]), "group"):
            yield from _changes(found, columns | {"group": group}, models, settings)


def _columns(names: tuple[str, ...], question: Row) -> Row:
    dataset, attribute, scorer, _ = names
    return {"dataset": dataset, "attribute": attribute, "scorer": scorer} | question


def _changes(
    found: pl.DataFrame, columns: Row, models: tuple[str, str], settings: LanguageSettings
) -> Iterator[Row]:
    for statistic, share in STATISTICS.items():
        yield change_row(
            found,
            columns | {"statistic": statistic},
            models=models,
            what="sets × seeds",
            settings=settings,
            share=share,
        )
