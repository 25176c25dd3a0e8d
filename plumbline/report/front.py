"""The first page: a verdict, the scorecard, at most eight findings, what to do, and a section a model.

Every sentence tells one number, two at most, and each is written from a row of the metric table: the verdict and the
sections of models from the scorecard, whose cells are declared; findings, which are picked, from the table that is
corrected for that (`as_picked`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report.data import data_findings, even_models
from plumbline.report.finding import DIFFERENCES, Finding, headlines, in_rank_order
from plumbline.report.findings import as_picked, findings
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import check_findings, word_findings
from plumbline.report.language_words import STAND_IN, people
from plumbline.report.numbers import confidence, count, number, p_value, percent
from plumbline.report.reading import Reading
from plumbline.report.recommendation import recommended, transfer_findings
from plumbline.report.rows import defined, where
from plumbline.report.scorecard import (
    BY_ID,
    Kind,
    Question,
    asked_models,
    asked_questions,
    interval_text,
    scorecard,
    value_text,
)
from plumbline.report.transfer import stated, tried
from plumbline.report.vocabulary import attribute_title, event_title, group_faces, listed

if TYPE_CHECKING:
    from plumbline.report.figures.canvas import Picture as Chart

MOST_FINDINGS = 8
MOST_OF_MODEL = 4


@dataclass(frozen=True)
class Told:
    """A finding of the first page, and the chart beside it."""

    finding: Finding
    chart: Chart | None = None


@dataclass(frozen=True)
class ModelSection:
    """What is said of one model: a verdict of its own, a few lines, its own findings.

    Attributes
    ----------
    kind : {"encoder", "generator"}
    lines : tuple of str
        What shows evidence, what does not and what would have been found, how well it does its work.
    """

    model: str
    kind: Kind
    verdict: str
    lines: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Front:
    """The content of the first page.

    Attributes
    ----------
    verdict : tuple of str
        Two sentences about the encoders, then two about the generative models, where there are such.
    scorecard : DataFrame
        Columns of `plumbline.report.scorecard.SCORECARD_SCHEMA`.
    findings : tuple of Told
        At most `MOST_FINDINGS`.
    advice, audited, limits : tuple of str
        What to do; what was audited and what no number says, at most five lines each.
    models : tuple of ModelSection
        In the order of the scorecard.
    """

    verdict: tuple[str, ...]
    scorecard: pl.DataFrame
    findings: tuple[Told, ...]
    advice: tuple[str, ...]
    audited: tuple[str, ...]
    limits: tuple[str, ...]
    models: tuple[ModelSection, ...]


def front_page(table: pl.DataFrame, inputs: ReportInputs, reading: Reading) -> Front:
    """Return the first page of a report.

    Parameters
    ----------
    table : DataFrame
        The metric table, columns of `plumbline.catalog.schema`.
    inputs : ReportInputs
        The audit and what was audited.
    reading : Reading
        How estimates are read.
    """
    kinds: dict[str, Kind] = dict.fromkeys(inputs.models, "encoder")
    kinds |= {one.id: "generator" for one in inputs.lvlms}
    card = scorecard(table, reading, kinds)
    picked, as_told = as_picked(table, inputs.reading)
    words = word_findings(inputs.language.get("word_associations"), inputs.reading)
    transferred = transfer_findings(inputs.transfer, inputs.audit)
    found = in_rank_order([*findings(picked, as_told), *transferred, *words])
    beside = [*data_findings(table, inputs), *check_findings(inputs.lvlms)]
    return Front(
        verdict=verdict(card),
        scorecard=card,
        findings=tuple(Told(finding) for finding in chosen(in_rank_order([*headlines(found), *beside]))),
        advice=advice(card, inputs),
        audited=audited(inputs),
        limits=limits(table, inputs),
        models=tuple(section(model, card, found, inputs) for model in asked_models(card)),
    )


# --- One cell in words.

_ONE = {"race": "race", "gender": "gender", "age_group": "age group"}


def _one(attribute: str) -> str:
    return _ONE.get(attribute, f"group of {attribute_title(attribute)}")


def predicate(cell: Mapping[str, Any]) -> str:
    """Say what a cell of the scorecard means, as the predicate of a sentence about its model."""
    question, value = BY_ID[cell["question"]], value_text(cell)
    one, event = _one(cell["attribute"]), event_title(question.event or "")
    said = {
        "max_skew": f"gives {event} {percent(cell['value'])} more often to one {one} than to another",
        "parity_difference": f"gives {event} to one {one} more often than to another, by {value}",
        "probe_rate_gap": f"takes one {one} for a {event} Trident word more often than another, by {value}",
        "weat_effect": f"associates {event} more with one {one} than with the other, by {value}",
        "max_skew_at_k": f"ranks one {one} first for {event}, by {value}",
        "equal_opportunity_gap": f"recognises the classes of one {one} better than those of another, by {value}",
        "macro_accuracy": f"recognises the class in {value} of images",
        "max_toxicity": f"writes texts about the people of one scene whose toxicity differs by {value}",
        "competence_gap": f"speaks of the competence of one group more than of another's, by {value}",
        "warmth_gap": f"speaks of the warmth of one group more than of another's, by {value}",
        "rating_gap": f"rates one group above another, by {value}",
        "salary_gap": f"offers one group more than another, by {value}",
        "refusal_rate_gap": f"refuses to answer about one group more often than about another, by {value}",
    }
    return said[question.metric]


def worst_off_words(cell: Mapping[str, Any]) -> str:
    """Say who is worst off in a cell, as `, Black faces most`; nothing where nobody is named."""
    question = BY_ID[cell["question"]]
    if cell["group"] is None:
        return ""
    least = question.groups is None or question.groups.worst == "least"
    of = group_faces(cell["attribute"], cell["group"]) if question.kind == "encoder" else people(cell["group"])
    return f", {of} {'least' if least else 'most'}"


def sureness(cell: Mapping[str, Any], level: float) -> str:
    """Return the interval and q of a cell in brackets; Max Skew itself, which the sentence tells as a percentage."""
    parts = [f"Max Skew {number(cell['value'])}"] if cell["unit"] == "skew" else []
    parts += [f"{confidence(level)} CI {ends}"] if (ends := interval_text(cell)) else ["no interval"]
    parts += [p_value(cell["q"], "q")] if defined(cell["q"]) else []
    return f" ({', '.join(parts)})"


def topic(question: Question) -> str:
    """Return a question for the middle of a sentence."""
    return question.title if question.title.startswith("MaxTox") else question.title[0].lower() + question.title[1:]


# --- The verdict.


def verdict(card: pl.DataFrame, level: float = 0.95) -> tuple[str, ...]:
    """Return who is worst, for whom, by how much and how sure, and how many models show the same; of each kind.

    The model is the first of the scorecard, and what is told of it is the first question in which any model shows
    evidence (else the first with a value that nothing was tested of): questions stand in the order of the harm.
    """
    kinds: tuple[Kind, ...] = ("encoder", "generator")
    return tuple(sentence for kind in kinds for sentence in _verdict(where(card, kind=kind), kind, level))


_PLURAL = {"encoder": "encoders", "generator": "generative models"}
_SINGULAR = {"encoder": "encoder", "generator": "generative model"}


def _verdict(card: pl.DataFrame, kind: Kind, level: float) -> list[str]:
    models = asked_models(card)
    if not models:
        return []
    told = next((cells for state in ("evidence", "measured") if (cells := _first_with(card, state, kind))), None)
    if told is None:
        return _nothing_found(card, models, kind)
    worst, *_ = told
    question = BY_ID[worst["question"]]
    only = len(models) == 1
    lead = f"{worst['model']}" if only else f"The most biased of {len(models)} {_PLURAL[kind]} is {worst['model']}"
    says = f"{lead}{'' if only else ': it'} {predicate(worst)} on {worst['dataset']}{worst_off_words(worst)}"
    sentences = [f"{says}{sureness(worst, level)}."]
    if only:
        return [*sentences, _own_count(card, models[0])]
    of_question = where(card, question=question.id).to_dicts()
    asked = [cell for cell in of_question if cell["state"] not in ("not_asked", "undefined")]
    without = [cell["model"] for cell in asked if cell["state"] != worst["state"]]
    if worst["state"] == "measured":
        return [*sentences, f"No test says whether {topic(question)} is more than chance."]
    shown = f"{len(told)} of {len(asked)} show evidence of it"
    others = f"; {listed(without)} show{'s' if len(without) == 1 else ''} none" if 0 < len(without) <= 3 else ""
    return [*sentences, f"{shown}{others}."]


def _first_with(card: pl.DataFrame, state: str, kind: Kind) -> list[dict[str, Any]]:
    """Return the cells of the first question of bias in which a model has a state, the worst model first."""
    for question in asked_questions(card, kind):
        cells = where(card, question=question.id, state=state).to_dicts()
        if cells and question.of_bias:
            return cells
    return []


def _nothing_found(card: pl.DataFrame, models: Sequence[str], kind: Kind) -> list[str]:
    cells = [cell for cell in card.to_dicts() if BY_ID[cell["question"]].of_bias]
    tested = [cell for cell in cells if cell["state"] in ("none", "evidence_of_none", "too_weak")]
    whose = models[0] if len(models) == 1 else f"any of {len(models)} {_PLURAL[kind]}"
    if not tested:
        return [f"Nothing that was asked of {whose} could be tested."]
    sentence = f"No evidence of bias in {whose}, in {len({cell['question'] for cell in tested})} questions."
    found = next((cell for cell in tested if defined(cell["smallest_detectable"])), None)
    if found is None:
        return [sentence, "So few images would hardly show any difference."]
    return [sentence, could_have_seen(found)]


def could_have_seen(cell: Mapping[str, Any]) -> str:
    """Say which difference would have been found in a cell without evidence."""
    least = value_text({**cell, "value": cell["smallest_detectable"], "state": "none"})
    return (
        f"In {topic(BY_ID[cell['question']])} on {cell['dataset']}, four of five such audits would have found a true "
        f"{_noun(cell)} of {least}."
    )


def _noun(cell: Mapping[str, Any]) -> str:
    return "value" if cell["unit"] in ("skew", "sd", "log ratio") else "difference"


# --- A section a model.


def section(model: str, card: pl.DataFrame, found: Sequence[Finding], inputs: ReportInputs) -> ModelSection:
    """Return what is said of one model, whichever is the worst."""
    cells = [cell for cell in where(card, model=model).to_dicts() if BY_ID[cell["question"]].of_bias]
    kind: Kind = where(card, model=model)["kind"][0]
    by_state = {state: [c for c in cells if c["state"] == state] for state in ("evidence", "none", "too_weak")}
    lines = []
    if by_state["evidence"]:
        lines.append(f"Evidence: {_topics(by_state['evidence'])}.")
    quiet = [c for c in cells if c["state"] in ("none", "evidence_of_none")]
    if quiet:
        lines.append(f"No evidence: {_topics(quiet)}.")
        seen = next((c for c in quiet if defined(c["smallest_detectable"])), None)
        lines += [could_have_seen(seen)] if seen else []
    if by_state["too_weak"]:
        lines.append(f"Too few images to tell: {_topics(by_state['too_weak'])}.")
    for cell in where(card, model=model, state="measured").to_dicts():
        lines.append(f"It {predicate(cell)} ({interval_text(cell) or 'no interval'}; {cell['dataset']}).")
    if inputs.planted_truth is not None and model in even_models(inputs.planted_truth):
        lines.insert(0, "A control: it was trained on captions with the same rates for every group.")
    own = [f for f in found if f.model == model and f.tone in (*DIFFERENCES, "cost", "gain")]
    return ModelSection(model, kind, _own_verdict(model, cells), tuple(lines), tuple(_broad(own, MOST_OF_MODEL)))


def _topics(cells: Iterable[Mapping[str, Any]]) -> str:
    return listed(topic(BY_ID[cell["question"]]) for cell in cells)


def _own_verdict(model: str, cells: Sequence[Mapping[str, Any]], level: float = 0.95) -> str:
    worst = next((cell for cell in cells if cell["state"] == "evidence"), None)
    tested = [cell for cell in cells if cell["state"] not in ("not_asked", "undefined", "measured")]
    if not tested:
        return "Nothing that it was asked could be tested."
    if worst is None:
        return f"No evidence of bias in {len(tested)} questions."
    evident = sum(cell["state"] == "evidence" for cell in cells)
    said = f"it {predicate(worst)}{worst_off_words(worst)}{sureness(worst, level)}"
    return f"Evidence of bias in {evident} of {len(tested)} questions; first of all, {said}."


def _own_count(card: pl.DataFrame, model: str) -> str:
    cells = [cell for cell in where(card, model=model).to_dicts() if BY_ID[cell["question"]].of_bias]
    tested = [cell for cell in cells if cell["state"] not in ("not_asked", "undefined", "measured")]
    return f"It shows evidence of bias in {sum(c['state'] == 'evidence' for c in tested)} of {len(tested)} questions."


# --- Findings.

_SHOWN_TONES = ("refused", *DIFFERENCES, "undefined", "cost", "gain", "data", "none")


def chosen(ranked: Sequence[Finding], most: int = MOST_FINDINGS) -> list[Finding]:
    """Return at most so many headlines for breadth: one of each kind first, then the next of each, in rank order."""
    return _broad([finding for finding in ranked if finding.tone in _SHOWN_TONES], most)


def _broad(ranked: Sequence[Finding], most: int) -> list[Finding]:
    met: Counter[tuple[str, str]] = Counter()
    turns: list[tuple[int, int, Finding]] = []
    for place, finding in enumerate(ranked):
        kind = (finding.tone, finding.topic[0])
        turns.append((met[kind], place, finding))
        met[kind] += 1
    told = sorted(turns, key=lambda turn: turn[:2])[:most]
    return [finding for _, _, finding in sorted(told, key=lambda turn: turn[1])]


# --- What to do, what was audited, what no number says.


def advice(card: pl.DataFrame, inputs: ReportInputs) -> tuple[str, ...]:
    """Return the mitigation that helps without moving bias elsewhere, for each checkpoint that some were tried on."""
    lines: list[str] = []
    if inputs.transfer is not None:
        cells = inputs.transfer.select("dataset", "model").unique().sort("dataset", "model").rows()
        for dataset, model in cells:
            candidates = tried(inputs.transfer, dataset=dataset, model=model, leaking=inputs.audit.leaking)
            best = recommended(candidates)
            if best is not None:
                change = stated(best.improved[0], inputs.audit.confidence)
                lines.append(f"For {model} on {dataset}, use {best.name}: it improves {change}.")
            elif candidates:
                lines.append(f"For {model} on {dataset}, no mitigation that was tried can be recommended.")
    return tuple(lines)


def audited(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what was audited in at most five lines."""
    encoders, lvlms, datasets = len(inputs.encoders), len(inputs.lvlms), len(inputs.datasets)
    images = sum(dataset.accepted for dataset in inputs.datasets)
    lines = [f"{encoders} encoders and {lvlms} generative models."] if lvlms else [f"{encoders} encoders."]
    lines.append(f"{datasets} datasets with {count(images)} images.")
    if inputs.absent:
        lines.append(f"{len(inputs.absent)} pairs of a model and a dataset have no numbers here.")
    return tuple(lines)


def limits(table: pl.DataFrame, inputs: ReportInputs) -> tuple[str, ...]:
    """Return what no number here says, in at most five lines."""
    lines = [
        "No evidence is not evidence of none: few images hide a difference; a cell's tip says what would be found.",
        "Groups are the labels of the datasets, seen by annotators: not how the people pictured see themselves.",
    ]
    if inputs.planted:
        whose = "All images" if inputs.all_planted else f"The images of {listed(inputs.planted)}"
        lines.insert(0, f"{whose} are drawn faces with planted biases: no number says anything about real people.")
    if inputs.reading.stand_ins:
        lines.append(f"Texts are scored by {listed(inputs.reading.stand_ins)}, {STAND_IN} for a toxicity scorer.")
    return tuple(lines)
