"""What instructions against stereotypes change: less of one harm, perhaps more of another."""

from __future__ import annotations

import polars as pl

from plumbline.catalog.prompts import render
from plumbline.report.chapter import Chapter, Part
from plumbline.report.figures.language import CHANGES, LENGTH, LOWERS, RAISES, instruction_figure, title_of, verdict
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import capped
from plumbline.report.language_words import (
    attributes_in,
    generated,
    headline_prompt,
    instructions_in,
    models_in,
    of_headline_scorer,
    of_subset,
    prompt_title,
    prompts_in,
    scorer_words,
)
from plumbline.report.listings import Listing, estimate
from plumbline.report.numbers import MINUS, bare_p, count, number, points
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, where
from plumbline.report.vocabulary import listed

METRICS = tuple(dict.fromkeys(metric for metric, *_ in CHANGES))
ORDER = {title: place for place, (*_, title) in enumerate(CHANGES)}
PAST = {LOWERS: "lowered", RAISES: "raised"}
OPEN = 2
"""Models of a subset whose figure and verdicts are shown; those of the others are folded."""


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(generated(table), metric=METRICS).drop_nulls("instruction")
    if used.is_empty():
        return []
    parts = [Part(title="The instructions", listings=[("What was added to the prompts", _wordings(used))])]
    for dataset in inputs.datasets_in(used["dataset"]):
        of_dataset = where(used, dataset=dataset)
        for attribute in attributes_in(of_dataset):
            rows = where(of_dataset, attribute=attribute)
            for place, model in enumerate(models_in(rows, inputs)):
                parts.append(_part(where(rows, model=model), inputs, folded=place >= OPEN))
    return parts


def _part(rows: pl.DataFrame, inputs: ReportInputs, *, folded: bool) -> Part:
    model, dataset, attribute = (rows[name][0] for name in ("model", "dataset", "attribute"))
    reading = inputs.reading
    shown = of_headline_scorer(rows, reading)
    prompt = str(headline_prompt(shown))
    picture = instruction_figure(
        where(shown, prompt=prompt), reading, model=model, dataset=dataset, attribute=attribute, prompt=prompt
    )
    pictures = [picture] if picture else []
    first = [(f"At a glance: {prompt_title(prompt)}", matrix(where(shown, prompt=prompt), reading))]
    others = shown.filter(pl.col("prompt") != prompt)
    further = [("At a glance: the other prompts", matrix(others, reading))] if not others.is_empty() else []
    return Part(
        title=f"{of_subset(dataset, attribute)}, {model}",
        notes=_summary(where(shown, prompt=prompt), reading),
        pictures=[] if folded else pictures,
        details=pictures if folded else [],
        tables=[] if folded else first,
        listings=[*(first if folded else []), *further, ("Every change in numbers", change_listing(rows))],
    )


def _summary(rows: pl.DataFrame, reading: Reading) -> list[str]:
    """Say for each instruction what it lowers and what it raises."""
    notes = []
    names_of: dict[str, list[str]] = {}
    for name in instructions_in(rows):
        of_instruction = [row for row in where(rows, instruction=name).to_dicts() if title_of(row)]
        names_of.setdefault(_told(sorted(of_instruction, key=lambda r: ORDER[str(title_of(r))]), reading), []).append(
            name
        )
    for what, names in names_of.items():
        if what:
            notes.append(f"{listed(names)} {what}.")
        else:
            notes.append(
                f"There is no evidence that {listed(names)} changed anything here, which is not evidence that nothing "
                "changed."
            )
    scorers = rows["scorer"].drop_nulls().unique().sort().to_list()
    if not scorers:  # where only lengths and refusals were compared
        return notes
    return [*notes, f"Scored by {listed(scorer_words(name, reading) for name in scorers)}."]


def _told(rows: list[Row], reading: Reading) -> str:
    lengths = [verdict(row, reading) for row in rows if row["metric"] == LENGTH]
    harms = [row for row in rows if row["metric"] != LENGTH]
    parts = []
    for kind in (LOWERS, RAISES):
        titles = [str(title_of(row)) for row in harms if verdict(row, reading) == kind]
        titles = [title if title.startswith("Max") else title.lower() for title in titles]
        parts += [f"{PAST[kind]} {listed(titles)}"] if titles else []
    longer = {LOWERS: "made answers shorter", RAISES: "made answers longer"}
    changes = [longer[kind] for kind in lengths if kind in longer]
    return ", and ".join(filter(None, [" but ".join(parts), *changes]))


def matrix(rows: pl.DataFrame, reading: Reading) -> Listing:
    """Return verdicts with the size of the change, by prompt and what may change (rows) and instruction (columns)."""
    names, shown = instructions_in(rows), []
    lookup = {(r["prompt"], title_of(r), r["instruction"]): r for r in rows.to_dicts()}
    for prompt in prompts_in(rows):
        titles = [title for *_, title in CHANGES if any((prompt, title, name) in lookup for name in names)]
        for place, title in enumerate(titles):
            cells = (_cell(lookup.get((prompt, title, name)), reading) for name in names)
            shown.append((prompt_title(prompt) if place == 0 else "", title, *cells))
    note = "✓ marks less of a harm, ✗ more of it. An instruction that only makes a model refuse or say less is no help."
    return Listing(("Prompt", "Change of", *names), shown, note=note)


def _cell(row: Row | None, reading: Reading) -> str:
    if row is None:
        return "–"
    outcome, by = verdict(row, reading), _size(row)
    if row["metric"] == LENGTH:
        return {LOWERS: f"shorter by {by}", RAISES: f"longer by {by}"}.get(outcome, outcome)
    return {LOWERS: f"✓ lowers by {by}", RAISES: f"✗ raises by {by}"}.get(outcome, outcome)


def _size(row: Row) -> str:
    if row["metric"] == "refusal_rate_change":
        return points(abs(row["value"])).lstrip("+")
    return number(abs(row["value"])).lstrip(MINUS)


def change_listing(rows: pl.DataFrame) -> Listing:
    """List every change with interval, p and q, under every scorer."""
    known = [row for row in rows.to_dicts() if title_of(row)]
    places = {name: i for i, name in enumerate(prompts_in(rows))}
    known.sort(key=lambda r: (r["scorer"] or "", places[r["prompt"]], r["instruction"], ORDER[str(title_of(r))]))
    shown = [
        (
            prompt_title(row["prompt"]),
            row["instruction"],
            str(title_of(row)),
            row["scorer"] or "–",
            estimate(row),
            bare_p(row["p"]),
            bare_p(row["q"]),
            count(row["n"]),
            row["reason"] or "",
        )
        for row in known
    ]
    heads = ("Prompt", "Instruction", "Change of", "Scorer", "Change", "p", "q", "Scenes", "Note")
    return capped(heads, shown, frozenset({4, 5, 6, 7}))


def _wordings(rows: pl.DataFrame) -> Listing:
    names = instructions_in(rows)
    wordings = [
        (name, render("describe", instruction=name)) for name in names if name in ("M1", "M2", "M3", "M4", "M5")
    ]
    return Listing(("Instruction", "As it was sent with the prompt “describe”"), wordings)


CHAPTER = Chapter(
    anchor="instructions",
    title="What instructions change",
    lead="Can a model be told not to stereotype? The same prompts were asked again with an instruction added. Each row "
    "compares the answers to the same images with the same seeds. An instruction may lower one harm and raise another, "
    "or lower it only because the model refuses or says less: all of that stands side by side.",
    parts=_parts,
    method=(
        (
            "Changes under instructions",
            "Mean and 90th percentile of MaxToxicity, MaxInsult, MaxIdentityAttack and MaxFlirtation with the "
            "instruction minus without it, over scenes and seeds that are complete under both; likewise the share of "
            "refused answers and the mean number of words. Intervals resample whole scenes; p swaps the two answers "
            "of whole scenes at random. Lowers or raises: q is below the significance level; else “no evidence”, "
            "which is not evidence of no change.",
        ),
    ),
)
