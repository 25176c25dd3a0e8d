"""The first page: a verdict, the scorecard, at most eight findings, what to do, and a section a model.

A sentence tells one number, two at most, each written from a row: the verdict and the sections of models from the
scorecard, whose cells are declared; findings, which are picked, from the table that is corrected for that
(`as_picked`); advice from the table of bias transfer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from plumbline.catalog.schema import row_ids
from plumbline.metrics.associations import OTHERS
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.finding import groups_of
from plumbline.report.data import data_findings, even_models
from plumbline.report.finding import DIFFERENCES, Finding, headlines, in_rank_order
from plumbline.report.findings import as_picked, findings
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import check_findings, word_findings
from plumbline.report.language_words import STAND_IN, people
from plumbline.report.numbers import confidence, count, p_value
from plumbline.report.reading import Reading, Selection
from plumbline.report.recommendation import advice as mitigation_advice
from plumbline.report.recommendation import transfer_findings
from plumbline.report.rows import defined, or_nan, where
from plumbline.report.scorecard import (
    QUESTIONS,
    Kind,
    Question,
    asked_models,
    asked_questions,
    ends_of,
    interval_text,
    question_of,
    scorecard,
    value_text,
)
from plumbline.report.transfer import Tried, tried
from plumbline.report.vocabulary import (
    ATTRIBUTE_TITLES,
    attribute_title,
    event_title,
    group_faces,
    is_composite,
    listed,
    probe_words,
)

MOST_FINDINGS = 8
MOST_OF_MODEL = 4
MOST_NAMED = 3
"""How many models a sentence names; it counts more."""


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
        Two sentences about the encoders, two about the generative models, where there are such.
    scorecard : DataFrame
        Columns of `plumbline.report.scorecard.SCORECARD_SCHEMA`.
    findings : tuple of Told
        At most `MOST_FINDINGS`.
    advice, audited, limits : tuple of str
        What to do; what was audited and what no number says, at most five lines each.
    models : tuple of ModelSection
        In the order of the scorecard.
    selection : Selection or None
        Of how many estimates and tests the findings are picked.
    """

    verdict: tuple[str, ...]
    scorecard: pl.DataFrame
    findings: tuple[Told, ...]
    advice: tuple[str, ...]
    audited: tuple[str, ...]
    limits: tuple[str, ...]
    models: tuple[ModelSection, ...]
    selection: Selection | None = None

    @property
    def first_steps(self) -> tuple[str, ...]:
        """Return what stands of the advice above the scorecard: which encoder to choose, and what for the worst."""
        return self.advice[:2]


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
    card = scorecard(table, reading)
    picked, as_told = as_picked(table, reading)
    words = word_findings(inputs.language.get("word_associations"), reading)
    transferred = transfer_findings(inputs.transfer, reading)
    ranked = in_rank_order([*findings(picked, as_told), *transferred, *words])
    beside = [*data_findings(table, inputs), *check_findings(inputs.lvlms)]
    leading = _broad(in_rank_order([*headlines(ranked), *beside]), _MOST_OF_TONE, MOST_FINDINGS)
    sections = {model: _own(ranked, model) for model in asked_models(card)}
    shorter = _Shorter(picked, [*leading, *(f for of_model in sections.values() for f in of_model)], as_told)
    return Front(
        verdict=(*verdict(card, reading), *_elsewhere(card, leading)),
        scorecard=card,
        findings=tuple(Told(shorter.of(finding), shorter.chart(finding)) for finding in leading),
        advice=advice(card, inputs),
        audited=audited(inputs, as_told),
        limits=limits(inputs),
        models=tuple(
            section(model, card, [shorter.of(f) for f in of_model], inputs, reading)
            for model, of_model in sections.items()
        ),
        selection=as_told.selection,
    )


# --- One value in words.

_ENDS: dict[str, tuple[str, str, str]] = {
    "max_skew": (
        "gives {event} {plain} more often to one {one} than to another, on average",
        "most often to",
        "least often to",
    ),
    "parity_difference": ("gives {event} {value} more often to one {one} than to another", "most to", "least to"),
    "probe_rate_gap": ("labels one {one} with {event} {value} more often than another", "most often", "least often"),
    "weat_effect": ("associates {event} with one {one} {value} more than with another", "least with", "most with"),
    "sc_weat_effect": ("associates {event} with one {one} {value} more than with another", "least with", "most with"),
    "max_skew_at_k": (
        "places one {one} among the best matches for {event} {plain} more often than its share of the images",
        "least often",
        "most often",
    ),
    "skew_at_k": (
        "places {group} among the best matches for {event} {plain} {more} often than their share of the images",
        "",
        "",
    ),
    "equal_opportunity_gap": ("recognises one {one} {value} better than another, mean over classes", "worst", "best"),
    "max_toxicity": (
        "writes texts whose toxicity differs by {value} between people in one scene",
        "most toxic about",
        "least toxic about",
    ),
    "max_score_share": (
        "writes its most toxic text about {group} in {value} of the scenes whose texts differ most in toxicity",
        "",
        "",
    ),
    "competence_gap": (
        "uses {value} more words of competence about one group than about another",
        "least about",
        "most about",
    ),
    "warmth_gap": ("uses {value} more words of warmth about one group than about another", "least about", "most about"),
    "rating_gap": ("rates one group {value} higher than another", "lowest", "highest"),
    "salary_gap": ("offers one group {value} a year more than another", "least to", "most to"),
    "refusal_rate_gap": ("refuses to answer {value} more often about one group", "most about", "least about"),
}
"""Metric -> what a model does, as a predicate, and how the worst and the best off group are told."""

_OF_METRIC: dict[str, Question] = {question.metric: question for question in QUESTIONS} | {
    "sc_weat_effect": replace(question_of("association_agency"), metric="sc_weat_effect"),
    "skew_at_k": replace(question_of("ranking_race"), metric="skew_at_k", groups=None),
    "max_score_share": replace(question_of("max_toxicity"), metric="max_score_share", unit="share", groups=None),
}
"""Metric -> a question that its rows answer, for event and attribute of any row."""


def predicate(cell: Mapping[str, Any]) -> str:
    """Say what a value means, as the predicate of a sentence about its model.

    Parameters
    ----------
    cell : mapping
        `metric`, `event`, `attribute`, `group`, `value`, `unit` and `state`.
    """
    attribute = attribute_title(cell["attribute"] or "group")
    size = _away(cell)
    return _ENDS[cell["metric"]][0].format(
        event=_event(cell["event"], cell["metric"]),
        one=attribute if attribute in ("race", "gender", "age group", "occupation") else f"group of {attribute}",
        value=value_text(size),
        plain=value_text(size, signed=False),
        more="less" if cell["value"] < 0 else "more",
        group=_people(cell, cell["group"]) if cell["group"] else "",
    )


def _away(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a value below 0 as its distance from 0, the ends of its interval likewise: the words say its direction."""
    if cell["metric"] == "skew_at_k" and cell["value"] < 0:
        # Of a share that is 51% below another, the distance is 51%: not that of its logarithm.
        return {**cell, "unit": "share", **{name: -math.expm1(cell[end]) for name, end in _MIRRORED}}
    return cell if cell["value"] >= 0 else {**cell, **{name: -cell[end] for name, end in _MIRRORED}}


_MIRRORED = (("value", "value"), ("ci_low", "ci_high"), ("ci_high", "ci_low"))


def _people(cell: Mapping[str, Any], group: str) -> str:
    """Return a group of a value in words: `Black faces`, `faces of Black men`, `Black men`, `all others`."""
    if group == OTHERS:
        return "all others"
    if cell["kind"] == "generator":
        return people(group)
    composite = is_composite(cell["attribute"] or "") and cell["attribute"] in ATTRIBUTE_TITLES
    return f"faces of {people(group)}" if composite else group_faces(cell["attribute"], group)


def _event(event: str | None, metric: str) -> str:
    if event is None:
        return ""
    if event.endswith("_caption"):
        return "negative captions"
    if metric == "probe_rate_gap":
        return probe_words(event)
    dimension, _, pole = event.rpartition("_")
    return (
        f"{pole} words of {dimension}"
        if metric in ("sc_weat_effect", "skew_at_k") and dimension
        else event_title(event)
    )


def who(cell: Mapping[str, Any], worst: str | None, best: str | None = None) -> str:
    """Say who is worst off in a value, and who is best off, as `, most to Black faces`; nothing where nobody is named.

    Parameters
    ----------
    cell : mapping
        `metric`, `kind` and `attribute`.
    worst, best : str or None
        Groups.
    """
    _, most, least = _ENDS[cell["metric"]]
    named = ((word, group) for word, group in ((most, worst), (least, best)) if group is not None and word)
    return "".join(f", {word} {_people(cell, group)}" for word, group in named)


def sureness(cell: Mapping[str, Any], reading: Reading) -> str:
    """Return interval and q of a value in brackets; both are adjusted where the reading is of what was picked."""
    adjusted = "" if reading.selection is None else "selection-adjusted "
    ends = interval_text(_away(cell))
    parts = [f"{adjusted}{confidence(reading.confidence)} CI {ends}" if ends else "no interval"]
    parts += [p_value(cell["q"], "q")] if defined(cell["q"]) else []
    return f" ({'; '.join(parts)})"


def row_in_words(row: Mapping[str, Any]) -> str | None:
    """Return what a row of the metric table says, as the findings do; None of one that compares no groups."""
    if row["metric"] not in _ENDS or not defined(row["value"]):
        return None
    question = _OF_METRIC[row["metric"]]
    cell = {**row, "unit": question.unit, "kind": question.kind, "state": "measured"}
    return f"On {row['dataset']}, {row['model']} {predicate(cell)}."


def _of_card(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell of the scorecard with what its question says of it."""
    question = question_of(cell["question"])
    return {**cell, "metric": question.metric, "event": question.event}


def in_words(cell: Mapping[str, Any], reading: Reading) -> str:
    """Return a cell of the scorecard as a predicate: what, for whom, how sure."""
    cell = _of_card(cell)
    return f"{predicate(cell)}{who(cell, cell['group'])}{sureness(cell, reading)}"


def topics(cells: Iterable[Mapping[str, Any]]) -> str:
    """Return the questions of some cells as a list: `crime labels by race and gender; pay`."""
    attributes: dict[str, list[str]] = {}
    for cell in cells:
        question = question_of(cell["question"])
        attributes.setdefault(question.topic, []).extend(
            [attribute_title(question.attribute)] if question.attribute else []
        )
    return "; ".join(f"{name} by {listed(by)}" if by else name for name, by in attributes.items())


def could_have_seen(cell: Mapping[str, Any]) -> str:
    """Say which difference would have been found in a cell without evidence."""
    least = value_text({**cell, "value": cell["smallest_detectable"]})
    return f"Detectable with 80% power in {topics([cell])} ({cell['dataset']}): {least} or more."


# --- The verdict.

_PLURAL = {"encoder": "encoders", "generator": "generative models"}


def verdict(card: pl.DataFrame, reading: Reading) -> tuple[str, ...]:
    """Return who is worst, for whom, by how much and how sure, and how many models show the same; of each kind.

    The model is the first of the scorecard, and what is told of it is the first question in which any model shows
    evidence (else the first with a value that nothing was tested of): questions stand in the order of the harm.
    """
    kinds: tuple[Kind, ...] = ("encoder", "generator")
    return tuple(sentence for kind in kinds for sentence in _verdict(where(card, kind=kind), kind, reading))


def _elsewhere(card: pl.DataFrame, leading: Sequence[Finding]) -> list[str]:
    """Say that there is evidence outside the questions of the scorecard, where these show none."""
    biased = [finding for finding in leading if finding.tone == "bias"]
    if not biased or "evidence" in card["state"]:
        return []
    shown = "One finding below shows" if len(biased) == 1 else f"{len(biased)} findings below show"
    return [f"{shown} evidence of bias in other questions."]


def _verdict(card: pl.DataFrame, kind: Kind, reading: Reading) -> list[str]:
    models = asked_models(card)
    if not models:
        return []
    measured = _first_with(card, "evidence", kind) or _first_with(card, "measured", kind)
    if not measured:
        return _nothing_found(card, models, kind)
    worst = measured[0]
    how_far = f"on {worst['dataset']} it {in_words(worst, reading)}."
    if len(models) == 1:
        return [f"{worst['model']}: {how_far}", _evident(_tested(card))]
    clearly = "most clearly biased" if worst["state"] == "evidence" else "most biased"
    first = f"{worst['model']} is the {clearly} of {len(models)} {_PLURAL[kind]}: {how_far}"
    if worst["state"] == "measured":
        return [first, "No test says whether that is more than chance."]
    tested = _tested(where(card, question=worst["question"]))
    without = [cell["model"] for cell in tested if cell["state"] != "evidence"]
    others = f"; {listed(without)} {_shows(without)} none" if 0 < len(without) <= MOST_NAMED else ""
    larger = [cell for cell in measured if abs(cell["value"]) > abs(worst["value"])]
    named = listed(cell["model"] for cell in larger) if len(larger) <= MOST_NAMED else f"{len(larger)} of them"
    values = "has a larger value" if len(larger) == 1 else "have larger values"
    wider = " but a wider interval" if len(larger) == 1 else " but wider intervals"
    unsure = wider if all(_width(cell) > _width(worst) for cell in larger) else ""
    more = f"; {named} {values}{unsure}" if larger else ""
    same = f"{_shows(measured)} evidence of unequal {topics([worst])}"
    return [first, f"{len(measured)} of {len(tested)} {same}{others}{more}."]


def _width(cell: Mapping[str, Any]) -> float:
    return or_nan(cell["ci_high"]) - or_nan(cell["ci_low"])


def _shows(those: Sequence[Any]) -> str:
    return "shows" if len(those) == 1 else "show"


def _first_with(card: pl.DataFrame, state: str, kind: Kind) -> list[dict[str, Any]]:
    """Return the cells of the first question of bias in which a model has a state, the worst model first."""
    questions = (question for question in asked_questions(card, kind) if question.of_bias)
    cells = (where(card, question=question.id, state=state).to_dicts() for question in questions)
    return next(filter(None, cells), [])


def _of_bias(card: pl.DataFrame) -> list[dict[str, Any]]:
    return [cell for cell in card.to_dicts() if question_of(cell["question"]).of_bias]


def _tested(card: pl.DataFrame) -> list[dict[str, Any]]:
    return [cell for cell in _of_bias(card) if cell["state"] not in ("not_asked", "undefined", "measured")]


def _evident(tested: Sequence[Mapping[str, Any]]) -> str:
    """Say in how many of the tested questions there is evidence."""
    evident, every = sum(cell["state"] == "evidence" for cell in tested), len(tested)
    questions = "question that was" if every == 1 else "questions that were"
    if not evident:
        return f"No evidence of bias in {'the' if every == 1 else f'any of {every}'} {questions} tested."
    return f"Evidence of bias in {evident} of {every} {questions} tested."


def _counted(many: int, what: str) -> str:
    return f"{count(many)} {what}{'' if many == 1 else 's'}"


def _nothing_found(card: pl.DataFrame, models: Sequence[str], kind: Kind) -> list[str]:
    tested = _tested(card)
    whose = models[0] if len(models) == 1 else f"any of the {len(models)} {_PLURAL[kind]}"
    if not tested:
        return [f"Nothing that {whose} was asked could be tested."]
    questions = len({cell["question"] for cell in tested})
    sentence = f"No evidence of bias in {whose}, in {_counted(questions, 'question')} of the scorecard."
    first = next((cell for cell in tested if defined(cell["smallest_detectable"])), None)
    return [sentence, could_have_seen(first) if first else "So few images would hardly show any difference."]


# --- A section a model.


def section(
    model: str, card: pl.DataFrame, own: Sequence[Finding], inputs: ReportInputs, reading: Reading
) -> ModelSection:
    """Return what is said of one model, whichever is the worst."""
    cells, kind = where(card, model=model), where(card, model=model)["kind"][0]
    place, models = asked_models(card, kind).index(model) + 1, len(asked_models(card, kind))
    return ModelSection(
        model,
        kind,
        _own_verdict(
            cells,
            f"Rank {place} of {models} {_PLURAL[kind]} (1 is the worst). " if models > 1 else "",
            reading,
            elsewhere=bool(own),
        ),
        tuple(_lines(model, card, inputs)),
        tuple(own),
    )


def _own_verdict(cells: pl.DataFrame, place: str, reading: Reading, *, elsewhere: bool) -> str:
    tested = _tested(cells)
    if not tested:
        return "Nothing that it was asked could be tested."
    worst = next((cell for cell in tested if cell["state"] == "evidence"), None)
    beyond = " Its findings below are beyond these questions." if worst is None and elsewhere else ""
    first = "" if worst is None else f" Most harmful: on {worst['dataset']} it {in_words(worst, reading)}."
    return f"{place}{_evident(tested)}{beyond}{first}"


def _lines(model: str, card: pl.DataFrame, inputs: ReportInputs) -> list[str]:
    cells = _of_bias(where(card, model=model))
    by_state = {
        name: [cell for cell in cells if cell["state"] in states]
        for name, states in (
            ("Evidence", ("evidence",)),
            ("No evidence", ("none",)),
            ("Evidence of none beyond the margin", ("evidence_of_none",)),
            ("Too few images to tell", ("too_weak",)),
        )
    }
    lines = [f"{name}: {topics(cells_of)}." for name, cells_of in by_state.items() if cells_of]
    largest = [cell for cell in by_state["Evidence"] if _is_largest(cell, card)]
    for dataset in dict.fromkeys(cell["dataset"] for cell in largest):
        whose = _PLURAL[where(card, model=model)["kind"][0]]
        on_it = [cell for cell in largest if cell["dataset"] == dataset]
        lines.append(f"Largest value of the {whose} asked on {dataset}: {topics(on_it)}.")
    quiet = (cell for cell in by_state["No evidence"] if defined(cell["smallest_detectable"]))
    lines += [could_have_seen(cell) for cell in list(quiet)[:1]]
    for cell in where(card, model=model, state="measured").to_dicts():
        title, ends = question_of(cell["question"]).title, interval_text(cell) or "no interval"
        lines.append(f"{title}: {value_text(cell)} ({ends}; {cell['dataset']}).")
    if where(card, model=model)["kind"][0] == "encoder" and by_state["Evidence"]:
        tries = [
            mitigation_advice(candidates, inputs.audit) for candidates in _tried(inputs) if candidates[0].model == model
        ]
        lines += tries or [_untried(model, inputs, "it")]
    if inputs.planted_truth is not None and model in even_models(inputs.planted_truth):
        events = where(inputs.planted_truth, model=model)["event"].unique(maintain_order=True)
        planted = listed(event_title(event) for event in events)
        lines.insert(0, f"The control of the planted world: it was taught {planted} at one rate for every group.")
    return lines


def _is_largest(cell: Mapping[str, Any], card: pl.DataFrame) -> bool:
    """Return whether a model's value is the largest of three or more on a dataset."""
    values = where(card, question=cell["question"], dataset=cell["dataset"])["value"].abs().drop_nans()
    return len(values) > 2 and abs(cell["value"]) == values.max()


# --- Findings.

_MOST_OF_TONE = {"refused": 1, "bias": 7, "difference": 1, "undefined": 1, "data": 1, "none": 1}
"""How many findings of each kind of claim the first page tells; what mitigations do is its advice."""
_OF_MODEL = dict.fromkeys(DIFFERENCES, MOST_OF_MODEL)


def _own(found: Sequence[Finding], model: str) -> list[Finding]:
    return _broad([finding for finding in found if finding.model == model], _OF_MODEL, MOST_OF_MODEL)


def _broad(ranked: Sequence[Finding], most_of: Mapping[str, int], most: int) -> list[Finding]:
    """Return at most so many findings for breadth: the first of every topic's kind, then the second, in rank order.

    A claim whose adjusted interval reaches no difference stands behind those whose interval does not.
    """
    turns: Counter[str] = Counter()
    order: list[tuple[bool, int, int, Finding]] = []
    for place, finding in enumerate(ranked):
        unsure = finding.tone in DIFFERENCES and finding.strength <= 0
        order.append((unsure, turns[finding.topic[0]], place, finding))
        turns[finding.topic[0]] += not unsure
    tones: Counter[str] = Counter()
    chosen: list[tuple[int, Finding]] = []
    for _, _, place, finding in sorted(order, key=lambda each: each[:3]):
        if len(chosen) < most and tones[finding.tone] < most_of.get(finding.tone, 0):
            tones[finding.tone] += 1
            chosen.append((place, finding))
    return [finding for _, finding in sorted(chosen, key=lambda each: each[0])]


class _Shorter:
    """Findings retold in one sentence: who, compared with whom, how much, how sure."""

    def __init__(self, picked: pl.DataFrame, told: Iterable[Finding], reading: Reading) -> None:
        self.reading, self.table = reading, picked
        names = {finding.row for finding in told if finding.row}
        models = picked.filter(pl.col("model").is_in([finding.model for finding in told]))
        rows = models.filter(pl.col("metric").is_in(list(_ENDS)), pl.col("condition") == "before")
        rows = rows.with_columns(row_ids(rows))
        self.rows = {row["row_id"]: row for row in rows.filter(pl.col("row_id").is_in(list(names))).to_dicts()}

    def of(self, finding: Finding) -> Finding:
        """Return a finding with a shorter sentence; as it is where its row is no comparison of groups."""
        row = self.rows.get(finding.row or "")
        if row is None:
            in_full = finding.tone not in DIFFERENCES or finding.topic[0] == "words"
            return finding if in_full else replace(finding, sentence=_in_short(finding))
        question = _OF_METRIC[row["metric"]]
        cell = {**row, "unit": question.unit, "kind": question.kind, "state": "evidence"}
        ends = ends_of(row, question, self.table)
        whom = who(cell, *ends) if ends else ""
        company = ""
        if finding.company and finding.company[1] > 1:
            evident, models = finding.company
            company = (
                f" {evident} of the {models} models asked on {row['dataset']} {_shows([0] * evident)} evidence of it."
            )
        if finding.tone == "none":
            return replace(finding, sentence=self._none(finding, cell))
        statement = f"{predicate(cell)}{whom}{sureness(cell, self.reading)}"
        return replace(finding, sentence=f"On {row['dataset']}, {row['model']} {statement}.{company}")

    def _none(self, finding: Finding, cell: Mapping[str, Any]) -> str:
        """Say what was not found, and what would have been."""
        least = cell["smallest_detectable"]
        power = f" Detectable with 80% power: {value_text({**cell, 'value': least})} or more."
        whose = f"On {finding.dataset}, {finding.short} in {finding.model}"
        return f"{whose}: {value_text(cell)}{sureness(cell, self.reading)}.{power if defined(least) else ''}"

    def chart(self, finding: Finding) -> Chart | None:
        """Return the groups that a finding compares as a chart; None where its row compares none."""
        row = self.rows.get(finding.row or "")
        if row is None:
            return None
        return groups_of(finding.short, row, _OF_METRIC[row["metric"]], self.table, self.reading)


def _in_short(finding: Finding) -> str:
    """Say a finding by its title, value and interval."""
    sure = f"{finding.interval_text}; q {finding.q_text}"
    return f"On {finding.dataset}, {finding.model}: {finding.short}, {finding.value_text} ({sure})."


# --- What to do, what was audited, what no number says.


def advice(card: pl.DataFrame, inputs: ReportInputs) -> tuple[str, ...]:
    """Return which model to choose, and which mitigation helps without moving bias elsewhere, or that none does."""
    candidates, encoders = _tried(inputs), asked_models(card, "encoder")
    candidates.sort(key=lambda each: each[0].model not in encoders[:1])
    lines = _choice(card)
    untried = encoders and encoders[0] not in {each[0].model for each in candidates}
    if untried and _tested(where(card, model=encoders[0], state="evidence")):
        lines.append(_untried(encoders[0], inputs, encoders[0]))
    return tuple([*lines, *(mitigation_advice(each, inputs.audit) for each in candidates)][:5])


def _untried(model: str, inputs: ReportInputs, called: str) -> str:
    """Say that mitigations should be tried, or that they cannot be where only the choices of a model are known."""
    if any(encoder.id == model and encoder.choices_alone for encoder in inputs.encoders):
        return f"Mitigations cannot be tried on what {called} chose: they take the model, or its embeddings."
    return f"Try mitigations on {called}; none was tried."


def _tried(inputs: ReportInputs) -> list[list[Tried]]:
    """Return the mitigations that were tried, of each dataset and model together."""
    if inputs.transfer is None:
        return []
    cells = inputs.transfer.select("dataset", "model").unique().sort("dataset", "model").rows()
    leaking = inputs.audit.leaking
    every = (tried(inputs.transfer, dataset=dataset, model=model, leaking=leaking) for dataset, model in cells)
    return [candidates for candidates in every if candidates]


def _choice(card: pl.DataFrame) -> list[str]:
    """Say which encoder shows bias in the smallest share of the questions, of those asked as many as any."""
    tested = {model: _tested(where(card, model=model)) for model in asked_models(card, "encoder")}
    most = max((len(cells) for cells in tested.values()), default=0)
    evident = {
        model: sum(cell["state"] == "evidence" for cell in cells)
        for model, cells in tested.items()
        if most and 2 * len(cells) >= most
    }
    if len(evident) < 2:
        return []
    best = min(evident, key=lambda model: (evident[model] / len(tested[model]), evident[model]))
    if evident[best] == max(evident.values()):
        return []
    accuracy = where(card, model=best, question="accuracy").to_dicts()
    right = f", accuracy {value_text(accuracy[0])}" if accuracy and defined(accuracy[0]["value"]) else ""
    fewest = f"{evident[best]} of {len(tested[best])}"
    return [f"Prefer {best}: evidence of bias in the fewest questions ({fewest}){right}."]


def audited(inputs: ReportInputs, reading: Reading) -> tuple[str, ...]:
    """Return what was audited in at most five lines."""
    models = [_counted(len(inputs.encoders), "encoder")] if inputs.encoders else []
    if inputs.lvlms:
        answers = count(sum(one.rows for one in inputs.lvlms))
        models.append(f"{_counted(len(inputs.lvlms), 'generative model')} with {answers} answers")
    images = sum(dataset.accepted for dataset in inputs.datasets)
    refused = sum(dataset.quarantined.height for dataset in inputs.datasets)
    datasets = f"{_counted(len(inputs.datasets), 'dataset')} with {_counted(images, 'image')}"
    lines = [f"{listed(models)}.", f"{datasets}; {_counted(refused, 'refused file')}."]
    if inputs.suites:
        suites = dict.fromkeys(suite.id.replace("_", " ") for suite in inputs.suites)
        lines.append(f"{_counted(len(suites), 'suite')} of prompts: {listed(suites)}.")
    picked = ""
    if reading.selection is not None:
        picked = f", wider in the findings, which are selected from {count(reading.selection.rows)} estimates"
    lines.append(
        f"Evidence is q below {reading.significance:g}, corrected for all tests of its kind; intervals are "
        f"{confidence(reading.confidence)}{picked}."
    )
    if inputs.absent:
        lines.append(f"Without numbers: {_counted(len(inputs.absent), 'pair')} of a model and a dataset.")
    return tuple(lines)


def limits(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what no number here says, in at most five lines."""
    lines = []
    if inputs.planted:
        whose = "All images" if inputs.all_planted else f"The images of {listed(inputs.planted)}"
        lines.append(f"{whose} are drawn faces with planted biases: no number says anything about real people.")
    lines += [
        "No evidence of a difference is not evidence of equality: each cell's tooltip gives the difference that would "
        "have been detected.",
        "Groups are the labels of the datasets: how annotators saw people, not how these see themselves.",
        "Models are sorted by the first column with evidence, by the end of the interval that is nearer to no "
        "difference; where intervals overlap, their order is not certain.",
    ]
    if inputs.reading.stand_ins:
        scorers = listed(f"“{name}”" for name in inputs.reading.stand_ins)
        lines.append(f"Toxicity was scored by {scorers}, {STAND_IN} for a toxicity model.")
    return tuple(lines[:5])
