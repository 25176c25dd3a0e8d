"""What instructions against stereotypes change: less of one harm, perhaps more of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import shorten

import polars as pl

from plumbline.catalog.prompts import instruction_ids, render
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.language import CHANGES, instruction_changes
from plumbline.report.evidence import evidence
from plumbline.report.inputs import ReportInputs
from plumbline.report.language_words import (
    STAND_IN,
    attributes_in,
    generated,
    headline_prompt,
    instructions_in,
    models_in,
    of_headline_scorer,
    of_subset,
    scorer_words,
)
from plumbline.report.listings import Listing
from plumbline.report.numbers import count, interval, number, p_value
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, or_nan, where
from plumbline.report.vocabulary import listed

LENGTH = "response_length_change"
TITLES = {(metric, statistic): title for metric, statistic, title in CHANGES}
METRICS = (*dict.fromkeys(metric for metric, *_ in CHANGES), LENGTH)


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(generated(table), metric=METRICS).drop_nulls("instruction")
    if used.is_empty():
        return []
    parts = []
    for dataset in inputs.datasets_in(used["dataset"]):
        of_dataset = where(used, dataset=dataset)
        for attribute in attributes_in(of_dataset):
            rows = where(of_dataset, attribute=attribute)
            parts.append(_part(rows, inputs, dataset, attribute))
    return [*parts, Part("The instructions", listings=[("What was added to the prompts", _wordings(used))])]


def _part(rows: pl.DataFrame, inputs: ReportInputs, dataset: str, attribute: str) -> Part:
    reading, charts, notes = inputs.reading, [], []
    for model in models_in(rows, inputs):
        shown = of_headline_scorer(where(rows, model=model), reading)
        shown = where(shown, prompt=headline_prompt(shown))
        charts.append(instruction_changes(shown, reading, model=model, dataset=dataset, attribute=attribute))
        notes += [f"{model}: {note}" for note in _summary(shown, reading)]
    scorers = of_headline_scorer(rows, reading)["scorer"].drop_nulls().unique().sort().to_list()
    notes += [f"Scored by {listed(scorer_words(name, reading) for name in scorers)}."] if scorers else []
    return Part.of(of_subset(dataset, attribute), charts, notes=notes)


def instruction_advice(table: pl.DataFrame, inputs: ReportInputs) -> list[str]:
    """Say of each generative model what the instructions that were tried on it change, or which to try."""
    every = where(generated(table), metric=METRICS).drop_nulls("instruction")
    lines = []
    for one in inputs.lvlms:
        rows = of_headline_scorer(where(every, model=one.id), inputs.reading)
        rows = where(rows, prompt=headline_prompt(rows))
        if rows.is_empty():
            continue
        notes = _summary(rows, inputs.reading, sized=True)
        summary = "; ".join(note.removesuffix(".").split(". ")[0] for note in notes)
        stand_in = {*rows["scorer"].drop_nulls()} & {*inputs.reading.stand_ins}
        summary += f", scored by {STAND_IN} for a toxicity model" if stand_in else ""
        left = [name for name in instruction_ids() if name not in {"none", *every["instruction"]}]
        more = f"; {listed(left)} not tried (“instructions” of the audit file)" if left else ""
        names = instructions_in(rows)
        first = f" {names[0]} is “{shorten(_wording(names[0]), 70, placeholder=' …')}”"
        lines.append(f"For {one.id}, instructions in the prompt: {summary}{more}.{first}.")
    names = [one.id for one in inputs.lvlms]
    return lines or [
        f"For {listed(names)} no mitigation was tried: an instruction in the prompt costs nothing to try "
        "(“instructions: [none, M1]” in the audit file)."
    ] * bool(names)


def _wording(instruction: str) -> str:
    """Return an instruction without the prompt that it goes with."""
    return render("describe", instruction=instruction).replace(render("describe"), "").strip()


def _summary(rows: pl.DataFrame, reading: Reading, *, sized: bool = False) -> list[str]:
    """Say for each instruction what it lowers and what it raises; `sized`: the first by how much, and how sure."""
    names_of: dict[str, list[str]] = {}
    for name in instructions_in(rows):
        told = _told(where(rows, instruction=name).to_dicts(), reading, sized=sized)
        names_of.setdefault(told, []).append(name)
    return [f"{listed(names)} {what}." if what else _nothing(names, rows) for what, names in names_of.items()]


def _nothing(names: Sequence[str], rows: pl.DataFrame) -> str:
    """Say that there is no evidence of what some instructions change, and what would have been found of one of them."""
    seen = where(rows, instruction=names[0]).filter(pl.col("smallest_detectable").is_finite()).to_dicts()
    titled = [row for row in seen if (row["metric"], row["statistic"]) in TITLES]
    power = ""
    if titled:
        title = TITLES[titled[0]["metric"], titled[0]["statistic"]]
        power = f" Four of five such audits would have found a change of {number(titled[0]['smallest_detectable'])} in "
        power += f"{title if title.startswith('Max') else title.lower()}{f' by {names[0]}' if len(names) > 1 else ''}."
    return f"no evidence that {listed(names)} changed anything.{power}"


def _told(rows: list[Row], reading: Reading, *, sized: bool) -> str:
    parts = []
    for verb, sign in (("lowered", -1), ("raised", 1)):
        sure = {(row["metric"], row["statistic"]): row for row in rows if _direction(row, reading) == sign}
        titles = [
            (title if title.startswith("Max") else title.lower()) + (_size(sure[key]) if sized and not at else "")
            for at, (key, title) in enumerate((key, title) for key, title in TITLES.items() if key in sure)
        ]
        parts += [f"{verb} {listed(titles)}"] if titles else []
    length = next((_direction(row, reading) for row in rows if row["metric"] == LENGTH), 0)
    longer = f"made answers {'longer' if length > 0 else 'shorter'}" if length else ""
    return ", and ".join(filter(None, [" but ".join(parts), longer]))


def _size(row: Row) -> str:
    low, high = sorted((or_nan(row["ci_low"]), or_nan(row["ci_high"])), key=abs)
    ends = interval(abs(low), abs(high)) if low * high > 0 else interval(row["ci_low"], row["ci_high"])
    return f" by {number(abs(row['value']))} ({ends}; {p_value(row['q'], 'q')}; n = {count(row['n'])})"


def _direction(row: Row, reading: Reading) -> int:
    """Return -1 or 1 where there is evidence that an instruction lowers or raises something, else 0."""
    value = or_nan(row["value"])
    return int(math.copysign(1, value)) if value and math.isfinite(value) and evidence(row, reading) else 0


def _wordings(rows: pl.DataFrame) -> Listing:
    names = instructions_in(rows)
    wordings = [
        (name, render("describe", instruction=name)) for name in names if name in ("M1", "M2", "M3", "M4", "M5")
    ]
    return Listing(("Instruction", "As it was sent with the prompt “describe”"), wordings)


CHAPTER = Chapter(
    anchor="instructions",
    title="What instructions change",
    lead="Can a model be told not to stereotype? The same images were asked about again with an instruction added, "
    "which may lower one harm and raise another, or lower it only because the model refuses or says less.",
    parts=_parts,
    method=(
        (
            "Changes under instructions",
            "Mean and 90th percentile of MaxToxicity, MaxInsult, MaxIdentityAttack and MaxFlirtation with the "
            "instruction minus without it, over scenes and seeds that are complete under both; likewise the share of "
            "refused answers and the mean number of words. Intervals resample whole scenes; p swaps the two answers "
            "of whole scenes at random. A mark is filled where q is below the "
            "significance level; a hollow one is not evidence of no change.",
        ),
    ),
)
