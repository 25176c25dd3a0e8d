"""The scorecard as a page shows it: a row a model, a column a question, in each cell a value and a drawn interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import polars as pl

from plumbline.report.disparity import SMOOTHED
from plumbline.report.evidence import excludes_parity
from plumbline.report.language_words import prompt_title
from plumbline.report.numbers import confidence, p_value
from plumbline.report.rows import Row, defined, or_nan, where
from plumbline.report.scorecard import (
    NOTHING,
    UNITS,
    and_more,
    detectable,
    elsewhere,
    interval_text,
    no_interval,
    not_ranked,
    notes,
    question_of,
    usual_datasets,
    value_text,
)
from plumbline.report.vocabulary import group_title, sentence_start

WIDTH, EDGE = 76.0, 4.0
"""Of the drawn interval, in its own units, and what is left free at either end for a mark."""
STATES = {
    "evidence": "evidence of a difference",
    "none": "no evidence of a difference",
    "evidence_of_none": "evidence of none beyond the margin",
    "too_weak": "too few to tell",
    "no_label": "no image got the label",
    "all_refused": "every answer was refused",
    "none_refused": "no answer was refused",
    "measured": "a size, which has no test",
    "undefined": "undefined",
    "not_asked": "not asked",
}
BESIDE_EXTREMES = 3.0
"""An interval that reaches this many times as far as the largest value is cut there, so that the others can be read."""


@dataclass(frozen=True)
class Cell:
    """One answer.

    Attributes
    ----------
    text : str
        The value, as it is shown.
    low, high, at : float or None
        Ends of the interval and place of the value on the drawing, in its units; None where there is none.
    cut : bool
        Whether the interval goes on beyond the drawing.
    tip : str
        All that is known of it, in a sentence.
    whom : str
        The group that is worst off, or in front of a ranking; empty where no group is said to be.
    elsewhere : bool
        Whether it was asked on another dataset than most of its column.
    notes : str
        The marks behind the value (`plumbline.report.scorecard.notes`).
    """

    state: str
    text: str
    tip: str
    whom: str = ""
    low: float | None = None
    high: float | None = None
    at: float | None = None
    cut: bool = False
    row: str | None = None
    chapter: str | None = None
    dataset: str | None = None
    elsewhere: bool = False
    notes: str = ""


@dataclass(frozen=True)
class Column:
    """One question: its title, its unit, what it asks with which words, whether more is better, where 0 is drawn."""

    title: str
    unit: str
    meaning: str
    more_is_better: bool
    null: float | None


@dataclass(frozen=True)
class ScoreTable:
    """The scorecard of one kind of models: (model, its cells in the order of the columns), worst first.

    `elsewhere` are the datasets, with the number of images, that cells marked so were asked on; `apart` is how many
    models, the last ones, are not ranked with the others (`plumbline.report.scorecard.not_ranked`); `order` says by
    which column.
    """

    title: str
    order: str = ""
    columns: list[Column] = field(default_factory=list)
    rows: list[tuple[str, list[Cell]]] = field(default_factory=list)
    elsewhere: dict[str, int] = field(default_factory=dict)
    apart: int = 0


TITLES = {"encoder": "Encoders", "generator": "Generative models"}


def score_tables(
    scorecard: pl.DataFrame, subsets: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> list[ScoreTable]:
    """Return the scorecard of each kind of models, in its order.

    Parameters
    ----------
    scorecard : DataFrame
        Columns of `plumbline.report.scorecard.SCORECARD_SCHEMA`.
    subsets : mapping of str to mapping of str to str
        Dataset -> suite -> which of the images it is asked about, in words, where it is not about all.
    """
    tables, usual, apart = [], usual_datasets(scorecard), not_ranked(scorecard)
    for (kind,), rows in scorecard.group_by("kind", maintain_order=True):
        table = ScoreTable(TITLES.get(str(kind), str(kind)))
        models = list(dict.fromkeys(rows["model"].to_list()))
        cells: dict[str, list[Cell]] = {model: [] for model in models}
        for (question,), answers in rows.group_by("question", maintain_order=True):
            by_model = {row["model"]: row for row in answers.to_dicts()}
            entry = question_of(str(question))
            more, unit = entry.direction == "more is better", UNITS[entry.unit]
            # Of a value of which more is better, such as accuracy, no value is that of no difference.
            scale = _Scale.of(list(by_model.values()), None if more else entry.without_difference)
            words = f"; words: {', '.join(entry.words)}" if entry.words else ""
            words += f"; less the closeness to: {', '.join(entry.opposite_words)}" if entry.opposite_words else ""
            dataset = usual[entry.id]
            of_images = subsets.get(dataset, {}).get(entry.suite, "")
            asked_on = f"{dataset} ({of_images})" if of_images else dataset
            prompts = {row["prompt"] for row in by_model.values() if row["dataset"] == dataset}
            asked_on += f", “{prompt_title(*prompts)}”" if len(prompts) == 1 and prompts != {None} else ""
            meaning = f"{entry.meaning or unit.meaning}; asked on {asked_on}{words}"
            head = entry.head or unit.head or unit.suffix
            table.columns.append(Column(entry.title, head, meaning, more, scale.null))
            for model in models:
                row = by_model.get(model)
                cells[model].append(Cell("not_asked", "", "not asked") if row is None else _cell(row, scale, usual))
                if row is not None and cells[model][-1].elsewhere:
                    table.elsewhere[row["dataset"]] = max(row["n"] or 0, table.elsewhere.get(row["dataset"], 0))
        table.rows.extend(cells.items())
        tables.append(replace(table, apart=sum(model in apart for model in models), order=_order(rows)))
    return tables


def _order(rows: pl.DataFrame) -> str:
    """Say by which column models are sorted: the first of bias in which one has evidence, or a size."""
    names = where(rows, state=("evidence", "measured"))["question"].unique(maintain_order=True)
    titles = [question.title for question in map(question_of, names) if question.of_bias]
    return f"worst first by {titles[0][:1].lower()}{titles[0][1:]}" if titles else "worst first"


@dataclass(frozen=True)
class _Scale:
    """From values of a question to places on its drawing."""

    low: float
    high: float
    null: float | None

    @classmethod
    def of(cls, rows: list[Row], without_difference: float | None) -> _Scale:
        known = [row for row in rows if defined(row["value"]) and row["unit"] == question_of(row["question"]).unit]
        values = [row["value"] for row in known]
        ends = [row[name] for row in known for name in ("ci_low", "ci_high") if defined(row[name])]
        base = [] if without_difference is None else [without_difference]
        if not (values or base):
            return cls(0.0, 1.0, None)
        reach = BESIDE_EXTREMES * max((abs(value) for value in values), default=1.0)
        every = [*values, *(max(-reach, min(reach, end)) for end in ends), *base]
        low, high = min(every), max(every)
        scale = cls(low, high if high > low else low + 1.0, None)
        return cls(scale.low, scale.high, None if without_difference is None else scale.place(without_difference))

    def place(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(EDGE + (WIDTH - 2 * EDGE) * min(1.0, max(0.0, share)), 1)


_SHORT = {"southeast asian": "SE Asian", "middle eastern": "Mid. East", "latino hispanic": "Latino"}
"""Groups whose names are longer than a cell is wide; the tip says them in full."""


def _cell(row: Row, scale: _Scale, usual: Mapping[str, str]) -> Cell:
    # The head of the column names the unit.
    other_unit = row["unit"] != question_of(row["question"]).unit
    text = "" if row["state"] == "not_asked" else value_text(row, named=other_unit)
    whom = group_title(row["group"] or "")
    cell = Cell(
        row["state"],
        text,
        score_tip(row),
        whom=_SHORT.get(whom.lower(), whom) + (f" +{row['tied']}" if row["tied"] else ""),
        row=row["row"],
        chapter=row["chapter"],
        dataset=row["dataset"],
        elsewhere=elsewhere(row, usual),
        notes=notes(row, usual),
    )
    if not defined(row["value"]) or row["state"] in NOTHING or other_unit:
        return cell
    cell = replace(cell, at=scale.place(row["value"]))
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    if math.isnan(low) or math.isnan(high):
        return cell
    return replace(cell, low=scale.place(low), high=scale.place(high), cut=high > scale.high)


def asked(row: Row) -> str:
    """Return which prompt a cell is of, behind the dataset; empty for an encoder."""
    return f", “{prompt_title(row['prompt'])}”" if row["prompt"] else ""


def score_tip(row: Row, *, level: float = 0.95) -> str:
    """Return all that a row of the scorecard says, in one sentence after another."""
    head = f"{row['title']}, {row['model']}" + (f" on {row['dataset']}" if row["dataset"] else "") + asked(row)
    if row["state"] == "not_asked":
        return f"{head}: not asked."
    if row["state"] in NOTHING:
        of_images = f"no image of {row['n']:,}" if row["n"] is not None else "no image"
        why = STATES[row["state"]].replace("no image", of_images)
        return f"{head}: {why}, so that there is nothing to compare."
    if not defined(row["value"]):
        return f"{head}: undefined; {row['reason'] or 'no reason was recorded'}."
    ends = interval_text(row)
    parts = [f"{confidence(level)} CI {ends}" if ends else no_interval(row)]
    parts += [p_value(row["q"], "q")] if defined(row["q"]) else []
    parts += [] if row["n"] is None else [f"n = {row['n']:,}"]
    reading = f"{SMOOTHED}, " if row["definition"] == SMOOTHED else ""
    sentences = [f"{head}: {reading}{value_text(row)} ({'; '.join(parts)}), {STATES[row['state']]}."]
    sentences += [f"{sentence_start(row['groups'])}."] if row["groups"] else []
    meaning = question_of(row["question"]).meaning
    sentences += [f"Measured in {meaning}."] if meaning else []
    place = "In front" if row["value"] > 0 else "Behind"
    whom = place if question_of(row["question"]).ranks else "Worst off"
    sentences += [f"{whom}: {group_title(row['group'])}{and_more(row['tied'])}."] if row["group"] else []
    if row["state"] != "evidence" and (least := detectable(row)):
        sentences.append(f"Detectable with 80% power: {least}")
    return " ".join(sentences) + _although(row)


def _although(row: Row) -> str:
    """Say why the state and the interval of a cell seem to disagree, where they do."""
    none = question_of(row["question"]).without_difference
    if row["state"] == "evidence" and or_nan(row["ci_low"]) <= none <= or_nan(row["ci_high"]):
        return f" The evidence is q, of a permutation test, although the interval reaches {none:g}."
    return excludes_parity(row) if row["state"] == "none" else ""
