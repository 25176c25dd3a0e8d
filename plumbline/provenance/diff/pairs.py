"""Differences of two audits, paired: the same images, the same questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import NO_INSTRUCTION, SCORED_ATTRIBUTES, Row
from plumbline.language.answers import (
    UNIT,
    answer_row,
    codes,
    known_answers,
    parts,
    questions,
    unpaired_reason,
    with_counterparts,
)
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.language.competence import KEYWORD_PROMPTS, competence_numbers
from plumbline.language.max_toxicity import MAX_METRICS, STATISTICS, set_spreads
from plumbline.language.ratings_and_salaries import SALARY, parsed_answer
from plumbline.language.refusals import NUMBERS
from plumbline.language.scored_answers import OF_SCORES, ScoredAnswers, every_question
from plumbline.metrics.cell import Cell
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.paired.comparisons import cell_effects
from plumbline.metrics.paired.effects import SideNames
from plumbline.provenance.diff.tables import FLIP_SCHEMA
from plumbline.statistics.cluster_bootstrap import paired_cluster_changes
from plumbline.statistics.seeds import generator

OLD_AND_NEW = SideNames("new", "old", "the {} side", " and the ")


def same_images(old: Cell, new: Cell) -> bool:
    """Return whether both are of the same images in the same order, so that they can be compared image by image."""
    return old.records["image_id"].equals(new.records["image_id"])


def paired_differences(old: Cell, new: Cell, *, settings: MetricSettings) -> list[Row]:
    """Return new - old of skews, parity differences, harm rates, Trident rates and accuracy, on the same images.

    Intervals and p are those of `plumbline.metrics.paired.factors`: a resample holds both answers to an image. Columns
    are `KEYS` of `plumbline.provenance.diff.tables` where they differ from null, the estimate, `value_old` and
    `value_new`.
    """
    effects = cell_effects(
        old,
        new,
        rows=np.ones(new.records.height, dtype=bool),
        named=("audit_diff", new.dataset, old.model, new.model),
        names=OLD_AND_NEW,
        settings=settings,
    )
    renamed = {"value_before": "value_old", "value_after": "value_new"}
    models = {"model_old": old.model, "model_new": new.model}
    common = models | {"dataset": new.dataset, "condition": "before", "statistic": "estimate"}
    left_out = ("kind", "better")
    return [
        common | {renamed.get(name, name): value for name, value in row.items() if name not in left_out}
        for row in effects
    ]


def flips(old: Cell, new: Cell) -> pl.DataFrame:
    """Return the images whose top text differs between the sides, largest margin first, in `FLIP_SCHEMA`.

    Of the outcome suites, where one text wins an image: one counts where both sides have the same candidates, an image
    where both keep it.
    """
    frames = [pl.DataFrame(schema=FLIP_SCHEMA)]
    for name, after in new.logits.items():
        before = old.logits.get(name)
        if before is None or after.suite.family != "outcomes" or before.suite.hash != after.suite.hash:
            continue
        first, second = before.top(), after.top()
        at = np.flatnonzero((first != second) & old.rows(name) & new.rows(name))
        text, category = (
            np.array([getattr(each, part) for each in after.suite.candidates]) for part in ("text", "category")
        )
        scores = after.scores[:]
        margin = scores[at, second[at]] - scores[at, first[at]]
        frames.append(
            new.records.select("image_id", "path")[at]
            .with_columns(
                dataset=pl.lit(new.dataset),
                model_old=pl.lit(old.model),
                model_new=pl.lit(new.model),
                suite=pl.lit(name),
                text_old=text[first[at]],
                text_new=text[second[at]],
                category_old=category[first[at]],
                category_new=category[second[at]],
                margin=margin.astype(np.float64),
            )
            .select(list(FLIP_SCHEMA))
        )
    return pl.concat(frames).sort("margin", "image_id", "suite", descending=[True, False, False])


# --- A number of the answers of two sides, compared over pairs.


@dataclass(frozen=True)
class Sides:
    """The two sides that are compared, old and new, and the settings of the comparison."""

    old: LanguageCell
    new: LanguageCell
    settings: LanguageSettings

    def change_row(self, answers: pl.DataFrame, columns: Row, *, what: str, quantile: float | None = None) -> Row:
        """Return new - old of a mean or quantile of pairs, with interval and p by whole sets.

        Parameters
        ----------
        answers : DataFrame
            `unit, old, new`; what lacks one side is left out, and the reason says of how many.
        columns : dict
            What the number is of.
        what : str
            What is paired, such as `answers`.
        quantile : float, optional
            Level of the quantile to compare; the mean by default.

        Returns
        -------
        dict
            Columns as in `plumbline.provenance.diff.pairs.paired_differences`.
        """
        pairs, models = answers.drop_nulls(["old", "new"]), (self.old.model, self.new.model)
        old, new = (pairs[name].to_numpy() for name in ("old", "new"))
        change = paired_cluster_changes(
            old,
            new,
            codes(pairs["unit"]),
            quantile=quantile,
            resamples=self.settings.resamples,
            permutations=self.settings.permutations,
            rng=generator(self.settings.seed, "audit_diff", *models, *map(str, columns.values())),
            confidence=self.settings.confidence,
        )
        row = {name: value for name, value in answer_row(models[1], **columns).items() if name != "model"}
        row |= {"model_old": models[0], "model_new": models[1]}
        row |= {"value_old": _value(old, quantile), "value_new": _value(new, quantile)}
        return row | change.columns(unpaired_reason(pairs.height, answers.height, what=what))


def _value(values: NDArray[np.float64], quantile: float | None) -> float:
    if not values.size:
        return float("nan")
    return float(values.mean() if quantile is None else np.quantile(values, quantile))


# --- What two states of one generative model, or two models, say differently of the people of the same
# sets.

_PART = [*OF_SCORES]
_SET = [*_PART, "unit", "seed"]
_PICTURED = ["group", "unit", "seed"]


def paired_answers(old: LanguageCell, new: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return new - old of Max* and of each group's scores, mean and 90th percentile, over the same sets x seeds.

    As `plumbline.language.instruction_effects.max_change_rows` compares an instruction with none: of Max* sets that are
    complete on both sides, of a group's scores the sets and seeds that both have. Columns are as in
    `plumbline.provenance.diff.pairs.paired_differences`.
    """
    rows: list[Row] = []
    sides = Sides(old, new, settings)
    with every_question(old) as before, every_question(new) as after:
        of_old = {(each.prompt, each.instruction): each for each in before}
        for question in after:
            if (counterpart := of_old.get((question.prompt, question.instruction))) is not None:
                rows += _of_sets(sides, counterpart, question)
                rows += _of_groups(sides, counterpart, question)
    return rows


def _of_sets(sides: Sides, before: ScoredAnswers, after: ScoredAnswers) -> Iterator[Row]:
    """Yield the rows of Max* of one prompt under one instruction."""
    old = set_spreads(before, sides.old.expected).spreads.select(*_SET, old="spread")
    new = set_spreads(after, sides.new.expected).spreads.select(*_SET, new="spread")
    for names, spreads in parts(with_counterparts(old, new, on=_SET, by=_PART), *_PART):
        scored = names[-1]
        if scored in MAX_METRICS:
            columns = _columns(names, after.columns) | {"metric": MAX_METRICS[scored], "definition": "paper"}
            yield from _changes(sides, spreads, columns)


def _of_groups(sides: Sides, before: ScoredAnswers, after: ScoredAnswers) -> Iterator[Row]:
    """Yield the rows of each group's scores of one prompt under one instruction."""
    known = [{names for names, _ in parts(each.kinds, *OF_SCORES)} for each in (before, after)]
    for names in sorted(known[0] & known[1]):
        if names[-1] not in SCORED_ATTRIBUTES:
            continue
        scores = [
            each.scores_of(names, *_PICTURED, "score").group_by(_PICTURED).agg(pl.col("score").mean().alias(side))
            for each, side in ((before, "old"), (after, "new"))
        ]
        columns = _columns(names, after.columns) | {"metric": names[-1], "definition": "score"}
        for (group,), answers in parts(with_counterparts(*scores, on=_PICTURED, by=["group"]), "group"):
            yield from _changes(sides, answers, columns | {"group": group})


def _columns(names: tuple[str, ...], question: Row) -> Row:
    dataset, attribute, scorer, _ = names
    return {"dataset": dataset, "attribute": attribute, "scorer": scorer} | question


def _changes(sides: Sides, answers: pl.DataFrame, columns: Row) -> Iterator[Row]:
    for statistic, quantile in STATISTICS.items():
        yield sides.change_row(answers, columns | {"statistic": statistic}, what="sets × seeds", quantile=quantile)


# --- How means of numbers of single answers changed: answers about the same image, to the same question
# and seed.

_MEANS_PART = ["dataset", "attribute"]
_ANSWER = [*_MEANS_PART, "group", "unit", "image_id", "seed"]
_OVERALL = ("refusal_rate", "empty_rate", "unreadable_rate")
"""Rates that are also computed over all groups."""

Number = tuple[str, str, str]
"""Metric, definition and statistic."""


def paired_answer_means(old: LanguageCell, new: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return new - old of refusals, lengths, words of competence, ratings and salaries of every group.

    The same images, questions and seeds are compared, answer by answer, where both have the number; the reason says how
    many have no counterpart. Interval and p are by whole sets (`plumbline.statistics.cluster_bootstrap`); n: sets of
    pairs. Columns are as in `plumbline.provenance.diff.pairs.paired_differences`.
    """
    rows: list[Row] = []
    for prompt, instruction in sorted({*questions(old)} & {*questions(new)}):
        numbers = _numbers(prompt, instruction, settings)
        sides = [_answers(cell, prompt, instruction, numbers, side) for cell, side in ((old, "old"), (new, "new"))]
        for names, answers in parts(with_counterparts(*sides, on=_ANSWER, by=_MEANS_PART), *_MEANS_PART):
            question: Row = {"dataset": names[0], "attribute": names[1], "prompt": prompt}
            question["instruction"] = None if instruction == NO_INSTRUCTION else instruction
            for number in numbers:
                rows += _of_number(Sides(old, new, settings), answers, number, question)
    return rows


def _numbers(prompt: str, instruction: str, settings: LanguageSettings) -> Mapping[Number, pl.Expr]:
    numbers: dict[Number, pl.Expr] = dict(NUMBERS)
    if prompt in KEYWORD_PROMPTS and instruction == NO_INSTRUCTION:
        for (metric, definition), number in competence_numbers(settings).items():
            numbers[metric, definition, "mean"] = number
    if prompt in prompt_ids("numeric"):
        parsed, metric = parsed_answer(prompt), SALARY if prompt == SALARY else "rating"
        unreadable = parsed.struct.field("unreadable").is_not_null()
        numbers[metric, "paper", "mean"] = pl.when(~unreadable).then(parsed.struct.field("value"))
        numbers["unreadable_rate", "paper", "estimate"] = unreadable
    return numbers


def _answers(
    cell: LanguageCell, prompt: str, instruction: str, numbers: Mapping[Number, pl.Expr], side: str
) -> pl.DataFrame:
    """Return the numbers of each answer; null where it has none."""
    named = {_column(number, side): each.cast(pl.Float64).fill_nan(None) for number, each in numbers.items()}
    answers = known_answers(cell.generations, prompts=[prompt], instruction=instruction).with_columns(unit=UNIT)
    return answers.select(*_ANSWER, **named).unique(_ANSWER).collect(engine="streaming")


def _column(number: Number, side: str) -> str:
    return f"{' '.join(number)} {side}"


def _of_number(sides: Sides, answers: pl.DataFrame, number: Number, question: Row) -> Iterator[Row]:
    """Yield the row of every group, and of all where the metric has one."""
    metric, definition, statistic = number
    columns = question | {"metric": metric, "definition": definition, "statistic": statistic}
    values = answers.rename({_column(number, side): side for side in ("old", "new")})
    compared = [(columns | {"group": group}, of_group) for (group,), of_group in parts(values, "group")]
    if metric in _OVERALL:
        compared.append((columns, values))
    for of, pairs in compared:
        yield sides.change_row(pairs, of, what="answers")
