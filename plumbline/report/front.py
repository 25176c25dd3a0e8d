"""The first page: a verdict, the scorecard, at most eight findings, what to do, and a section a model.

A sentence tells one number, two at most, each written from a row: the verdict and the sections of models from the
scorecard, whose cells are declared; findings, which are picked, from the table that is corrected for that
(`as_picked`); advice from the table of bias transfer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from plumbline.metrics.evidence import CELL
from plumbline.report.chapters.instructions import instruction_advice
from plumbline.report.charts.chart import Chart
from plumbline.report.data import data_findings, even_models
from plumbline.report.evidence import unchecked
from plumbline.report.finding import DIFFERENCES, Finding, headlines, in_rank_order
from plumbline.report.findings import as_picked, beyond_scorecard, findings
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import check_findings, word_findings
from plumbline.report.language_words import STAND_IN, generated, headline_scorer, people
from plumbline.report.numbers import confidence, count
from plumbline.report.reading import Reading, Selection
from plumbline.report.recommendation import advice as mitigation_advice
from plumbline.report.recommendation import first_to_try
from plumbline.report.rows import defined, or_nan, where
from plumbline.report.scorecard import (
    NO_EVIDENCE,
    NOTHING,
    Kind,
    and_more,
    asked_models,
    asked_questions,
    detectable,
    faces_of,
    interval_text,
    no_interval,
    not_ranked,
    question_of,
    scorecard,
    value_text,
    worse_first,
)
from plumbline.report.scorecard_table import STATES
from plumbline.report.sentences import Sentences, in_words
from plumbline.report.transfer import Tried, tried
from plumbline.report.vocabulary import attribute_title, event_title, group_title, is_composite, listed, sentence_start

WORDS: tuple[tuple[str, str], ...] = (
    (
        "95% CI",
        "Interval that holds the true value in 95 of 100 audits of other images of the same kind. “Selection-adjusted” "
        "is the wider one of a number that was chosen because it is among the strongest.",
    ),
    (
        "q",
        "p of the test after correction for all tests of its kind. “Evidence” is q below 0.05: within a kind, of "
        "what is called evidence 5% at most is chance, on average. So a number whose interval excludes 0 may be no "
        "evidence.",
    ),
    (
        "n",
        "How many images a number rests on; of generated texts, how many scenes. Where several images show one person, "
        "intervals and tests count persons, though n counts images.",
    ),
    (
        "80% power",
        "A difference of that size is found by four of five such audits. Smaller ones may be there and not be seen.",
    ),
    (
        "Max Skew",
        "How much more often one group gets a label than another: +155% is 2.55 times as often. Over more than two "
        "groups the mean over all pairs. Chance alone lifts it above 0.",
    ),
    ("Points", "Percentage points: 9% and 16% lie 7 points apart."),
    (
        "Trident",
        "Test in which one word, such as “thief” or “hero”, is added to the dataset’s own classes: how often is a face "
        "taken for it?",
    ),
    (
        "SC-WEAT, WEAT",
        "How much closer the faces of one group lie to some words than others do, in standard deviations (SD).",
    ),
    (
        "Agency, communion, belief",
        "The traits of social perception: competence and drive; warmth and honesty; progressive or traditional views.",
    ),
    (
        "Recognition",
        "How often a face’s own class (such as its age) is the best match, when only the classes can be answered.",
    ),
    (
        "Control",
        "Model of the planted world whose captions gave every group crime, communion and agency words at one rate. It "
        "shows what a model does without planted bias; it was not taught to be fair in anything else.",
    ),
)
"""What a reader must know to read the first page: word and meaning."""

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
        """Return the first sentences of the advice: which encoder to choose, and what was tried on the worst."""
        return tuple(f"{line.removesuffix('.').split('. ')[0]}." for line in self.advice[:2])


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
    ranked = in_rank_order([*findings(picked, as_told), *words])
    beside = [*data_findings(inputs), *check_findings(inputs.lvlms)]
    leading = _broad(in_rank_order([*headlines(ranked), *beside]), _MOST_OF_TONE, MOST_FINDINGS)
    sections = {model: _own(ranked, model, card) for model in asked_models(card)}
    reported = [*leading, *(f for of_model in sections.values() for f in of_model)]
    sentences = Sentences(table, picked, reported, as_told)
    return Front(
        verdict=(*verdict(card, reading, table), *_elsewhere(card, leading)),
        scorecard=card,
        findings=tuple(Told(sentences.of(finding), sentences.chart(finding)) for finding in leading),
        advice=advice(table, card, inputs, ranked),
        audited=audited(inputs, as_told),
        limits=limits(table, inputs),
        models=tuple(
            section(model, card, [sentences.of(f) for f in of_model], inputs, reading)
            for model, of_model in sections.items()
        ),
        selection=as_told.selection,
    )


# --- Cells in words.


def topics(cells: Iterable[Mapping[str, Any]]) -> str:
    """Return the questions of some cells as a list: `crime labels by race and gender; pay`."""
    attributes: dict[str, list[str]] = {}
    for cell in cells:
        question = question_of(cell["question"])
        attributes.setdefault(question.topic, []).extend(
            [attribute_title(question.attribute)] if question.attribute else []
        )
    return "; ".join(f"{name} by {listed(by)}" if by else name for name, by in attributes.items())


def affected(cells: Iterable[Mapping[str, Any]]) -> str:
    """Return the questions of some cells with who is worst off in each: `crime labels by race: Black faces`."""
    named = []
    for cell in cells:
        question = question_of(cell["question"])
        of = people if question.kind == "generator" else partial(faces_of, cell["attribute"])
        place = (" in front" if cell["value"] > 0 else " behind") if question.ranks else ""
        whom = f": {of(cell['group'])}{and_more(cell['tied'])}{place}" if cell["group"] else ""
        by = f" by {attribute_title(question.attribute)}" if question.attribute else ""
        named.append(f"{question.topic}{by}{whom}")
    return "; ".join(named)


def could_have_seen(cell: Mapping[str, Any]) -> str:
    """Say which difference would have been found in a cell without evidence."""
    return f"Detectable with 80% power in {topics([cell])} ({cell['dataset']}): {detectable(cell)}"


# --- The verdict.

_SILENT = {"all_refused", "not_asked"}
_PLURAL = {"encoder": "encoders", "generator": "generative models"}


def verdict(card: pl.DataFrame, reading: Reading, table: pl.DataFrame | None = None) -> tuple[str, ...]:
    """Return who is worst, for whom, by how much and how sure, and how many models show the same; of each kind.

    The model is the first of the scorecard, and what is told of it is the first question in which any model shows
    evidence (else the first with a value that nothing was tested of): questions stand in the order of the harm.
    With the metric table it says too of which of these models nobody knows whether they recognise anything.
    """
    kinds: tuple[Kind, ...] = ("encoder", "generator")
    sentences = tuple(sentence for kind in kinds for sentence in _verdict(where(card, kind=kind), kind, reading))
    return sentences if table is None else (*sentences, *_toxicity_untested(table), *not_checked(card, table))


def _toxicity_untested(table: pl.DataFrame) -> tuple[str, ...]:
    """Say on which datasets toxicity was measured by group and compared by no test; nothing where there is none."""
    told = generated(table)
    by_group = where(told, metric="toxicity", definition="score").drop_nulls("group")["dataset"]
    compared = set(where(told, metric="max_toxicity")["dataset"])
    without = [dataset for dataset in by_group.unique(maintain_order=True) if dataset not in compared]
    if not without:
        return ()
    return (
        f"Toxicity of what is said of each group on {listed(without)} was measured and compared by no test: that takes "
        "sets of pictures that differ in the group alone.",
    )


def not_checked(card: pl.DataFrame, table: pl.DataFrame) -> tuple[str, ...]:
    """Say where evidence is of models of which nobody knows whether they recognise anything; nothing where all do."""
    evident = where(card, state="evidence").select(CELL).unique(maintain_order=True).rows()
    cells = [cell for cell in evident if cell in unchecked(table)]
    if not cells:
        return ()
    models, datasets = (listed(dict.fromkeys(cell[i] for cell in cells)) for i in (0, 1))
    return (
        f"Whether {models} can recognise anyone on {datasets} was not checked: that takes a suite whose prompts name "
        "people, such as `crime`, and an attribute called `gender`, with groups man and woman, or `race`, with groups "
        "that the prompts name (White, Black …). `map: columns` names attributes, `map: values` their groups. A model "
        "that sees nothing may look biased.",
    )


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
    refused = where(card, state="all_refused")["model"].unique(maintain_order=True).to_list()
    silent = [model for model in refused if {cell["state"] for cell in _of_bias(where(card, model=model))} <= _SILENT]
    if silent:
        return [*_verdict(card.filter(~pl.col("model").is_in(silent)), kind, reading), _refusing(silent)]
    apart = not_ranked(card)
    worst = next((cell for cell in measured if cell["model"] not in apart), measured[0])
    how_far = f"on {worst['dataset']} it {in_words(worst, reading)}."
    if len(models) == 1:
        return [f"{worst['model']}: {how_far}", _evident(_tested(card))]
    clearly = "most clearly biased" if worst["state"] == "evidence" else "most biased"
    # Those that were asked this very question on the same images.
    number = where(card, question=worst["question"], dataset=worst["dataset"])["model"].n_unique()
    of = f"{number} {_PLURAL[kind]}" if number == len(models) else f"{number} {_PLURAL[kind]} asked on the same images"
    if number == 1:
        alone = (
            f"Of {len(models)} {_PLURAL[kind]} {worst['model']} alone was asked about {topics([worst])} on these images"
        )
        return [f"{alone}: {how_far}", _evident(_tested(where(card, model=worst["model"])))]
    first = f"In {topics([worst])}, {worst['model']} is the {clearly} of {of}: {how_far}"
    if worst["state"] == "measured":
        return [first, "No test says whether that is more than chance."]
    tested = _tested(where(card, question=worst["question"]))
    without = [cell["model"] for cell in tested if cell["state"] != "evidence"]
    others = f"; {listed(without)} {_shows(without)} none" if 0 < len(without) <= MOST_NAMED else ""
    if len(tested) == 2 and len(without) == 1:
        other = next(cell for cell in tested if cell["state"] != "evidence")
        near = or_nan(other["ci_high"]) >= or_nan(worst["ci_low"]) and _same_reading(other, worst)
        but = ", but its interval overlaps: that is no evidence that the two differ" if near else ""
        return [first, f"{without[0]} shows no evidence of it{but}.{_larger(worst, measured)}"]
    same = f"{_shows(measured)} evidence of unequal {topics([worst])}"
    return [first, f"{len(measured)} of {len(tested)} {same}{others}.{_larger(worst, measured)}"]


def _larger(worst: Mapping[str, Any], measured: Sequence[Mapping[str, Any]]) -> str:
    """Say that models have larger values than the worst, or intervals that reach its own, and what that means."""
    elsewhere = [cell for cell in measured if cell["dataset"] != worst["dataset"]]
    on_the_same = [cell for cell in measured if cell is not worst and _same_reading(cell, worst)]
    words = _larger_on_the_same(worst, on_the_same)
    smaller = [cell for cell in on_the_same if abs(cell["value"]) <= abs(worst["value"])]
    near = [cell for cell in smaller if or_nan(cell["ci_high"]) >= or_nan(worst["ci_low"])]
    if near:
        whose = f"that of {near[0]['model']}" if len(near) == 1 else f"those of {len(near)} others"
        words += f" The interval of {worst['model']} overlaps {whose}: that alone does not settle their order."
    if elsewhere:
        many = elsewhere[0]["model"] if len(elsewhere) == 1 else f"{len(elsewhere)} models"
        words += f" {many}, asked on other images, {'is' if len(elsewhere) == 1 else 'are'} not compared."
    return words


def _same_reading(cell: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the sizes of two cells of one question can be held against each other."""
    return all(cell[name] == other[name] for name in ("dataset", "metric", "definition"))


def _larger_on_the_same(worst: Mapping[str, Any], measured: Sequence[Mapping[str, Any]]) -> str:
    larger = [cell for cell in measured if abs(cell["value"]) > abs(worst["value"])]
    if not larger:
        return ""
    named = f"{larger[0]['model']} has a" if len(larger) == 1 else f"{len(larger)} models have"
    values = f"larger value{'' if len(larger) == 1 else 's'}"
    wider = all(_width(cell) > _width(worst) for cell in larger)
    why = f", less certain: {'its interval is' if len(larger) == 1 else 'their intervals are'} wider" if wider else ""
    return f" {named} {values}{why}."


def _width(cell: Mapping[str, Any]) -> float:
    return or_nan(cell["ci_high"]) - or_nan(cell["ci_low"])


def _shows(those: Sequence[Any]) -> str:
    return "shows" if len(those) == 1 else "show"


def _first_with(card: pl.DataFrame, state: str, kind: Kind) -> list[dict[str, Any]]:
    """Return the cells of the first question of bias in which a model has a state, the worst in it first."""
    questions = (question for question in asked_questions(card, kind) if question.of_bias)
    cells = (where(card, question=question.id, state=state).to_dicts() for question in questions)
    return sorted(next(filter(None, cells), []), key=worse_first)


def _of_bias(card: pl.DataFrame) -> list[dict[str, Any]]:
    return [cell for cell in card.to_dicts() if question_of(cell["question"]).of_bias]


def _tested(card: pl.DataFrame, *, no_label: bool = False) -> list[dict[str, Any]]:
    nothing = [state for state in NOTHING if not (no_label and state == "no_label")]
    untested = ("not_asked", "undefined", "measured", *nothing)
    return [cell for cell in _of_bias(card) if cell["state"] not in untested]


def _evident(tested: Sequence[Mapping[str, Any]]) -> str:
    """Say in how many of the tested questions there is evidence."""
    evident, every = sum(cell["state"] == "evidence" for cell in tested), len(tested)
    questions = f"question{'' if every == 1 else 's'} of the scorecard"
    if not evident:
        return f"No evidence of bias in {'the one' if every == 1 else f'any of {every}'} {questions}."
    return f"Evidence of bias in {evident} of {every} {questions}."


def _untested(card: pl.DataFrame, whose: str) -> str:
    """Say why no question of bias was tested: no image got a label in any of them, or there is more than one reason."""
    weak = {cell["dataset"] for cell in _of_bias(card) if "too weak to interpret" in (cell["reason"] or "")}
    if weak:
        where_weak = listed(sorted(weak))
        if whose.startswith("any of "):
            return f"None of {whose.removeprefix('any of ')} can be interpreted on {where_weak}: no better than chance."
        return f"{sentence_start(whose)} is too weak to interpret on {where_weak}: no better than chance."
    states = {cell["state"] for cell in _of_bias(card)}
    if "all_refused" in states and states <= _SILENT:
        if whose.startswith("any of "):
            return f"None of {whose.removeprefix('any of ')} answered a question: there is nothing to compare."
        return _refusing([whose])
    if states - {"not_asked"} == {"no_label"}:
        return f"No image got one of the labels that {whose} was asked about: there is nothing to compare."
    return f"Nothing that {whose} was asked could be tested."


def _refusing(models: Sequence[str]) -> str:
    return f"{listed(models)} refused every answer that is compared: there is nothing to tell."


def _counted(many: int, what: str) -> str:
    return f"{count(many)} {what}{'' if many == 1 else 's'}"


def _nothing_found(card: pl.DataFrame, models: Sequence[str], kind: Kind) -> list[str]:
    tested = _tested(card)
    judged = [model for model in models if any(cell["model"] == model for cell in tested)]
    among = judged or models
    whose = (
        among[0] if len(among) == 1 else f"any of {'the ' * (len(among) == len(models))}{len(among)} {_PLURAL[kind]}"
    )
    if not tested:
        return [_untested(card, whose)]
    questions = len({cell["question"] for cell in tested})
    sentence = f"No evidence of bias in {whose}, in {_counted(questions, 'question')} of the scorecard."
    first = next((cell for cell in tested if defined(cell["smallest_detectable"])), None)
    seen = could_have_seen(first) if first else _unseen(tested)
    return [sentence, seen, *(_untested(where(card, model=model), model) for model in models if model not in judged)]


def _unseen(tested: Sequence[Mapping[str, Any]]) -> str:
    """Say what cells without evidence could have shown, where no difference is told as detectable."""
    if any(cell["state"] != "too_weak" for cell in tested):
        return "Which difference would have been found is not told: too few events."
    return "Hardly any difference would have been found: too few images or events."


# --- A section a model.


def _rank(model: str, ranked: Sequence[str], kind: Kind) -> str:
    """Say where a model stands among those that were asked on the same images; empty of one that is alone."""
    if model not in ranked:
        return "Not ranked: it was asked on other images than those that are. "
    if len(ranked) < 2:
        return ""
    return f"Rank {ranked.index(model) + 1} of {len(ranked)} {_PLURAL[kind]} (1 is the worst). "


def section(
    model: str, card: pl.DataFrame, own: Sequence[Finding], inputs: ReportInputs, reading: Reading
) -> ModelSection:
    """Return what is said of one model, whichever is the worst."""
    cells, kind = where(card, model=model), where(card, model=model)["kind"][0]
    apart = not_ranked(card)
    ranked = [each for each in asked_models(card, kind) if each not in apart]
    return ModelSection(
        model,
        kind,
        _own_verdict(cells, _rank(model, ranked, kind), reading, elsewhere=bool(own)),
        tuple(_lines(model, card, inputs)),
        tuple(own),
    )


def _own_verdict(cells: pl.DataFrame, place: str, reading: Reading, *, elsewhere: bool) -> str:
    tested = _tested(cells)
    if not tested:
        return sentence_start(_untested(cells, "it"))
    worst = next((cell for cell in tested if cell["state"] == "evidence"), None)
    beyond = " Its findings below are beyond these questions." if worst is None and elsewhere else ""
    first = "" if worst is None else f" The first of them: on {worst['dataset']} it {in_words(worst, reading)}."
    return f"{place}{_evident(tested)}{beyond}{first}"


def _lines(model: str, card: pl.DataFrame, inputs: ReportInputs) -> list[str]:
    cells_of_model = where(card, model=model)
    cells, kind = _of_bias(cells_of_model), cells_of_model["kind"][0]
    evident, quiet, none_beyond, weak, *nothing = (
        [cell for cell in cells if cell["state"] == state]
        for state in ("evidence", "none", "evidence_of_none", "too_weak", *NOTHING)
    )
    lines = [f"Evidence, and who is worst off in these images: {affected(evident)}."] if evident else []
    if quiet:
        lines.append(f"No evidence: {topics(quiet)}.")
    if none_beyond:
        lines.append(f"Evidence of none beyond the margin: {topics(none_beyond)}.")
    if weak:
        lines.append(f"Too few images to tell: {topics(weak)}.")
    for state, of_state in zip(NOTHING, nothing):
        if of_state:
            lines.append(f"{sentence_start(STATES[state])}: {topics(of_state)}.")
    largest = [cell for cell in evident if _is_largest(cell, card)]
    for dataset in dict.fromkeys(cell["dataset"] for cell in largest):
        on_it = [cell for cell in largest if cell["dataset"] == dataset]
        lines.append(f"Largest value of the {_PLURAL[kind]} asked on {dataset}: {topics(on_it)}.")
    lines += [could_have_seen(cell) for cell in quiet if defined(cell["smallest_detectable"])][:1]
    for cell in where(cells_of_model, state="measured").to_dicts():
        question = question_of(cell["question"])
        ends = interval_text(cell) or no_interval(cell)
        groups = f": {cell['groups']}" if cell["groups"] else ""
        lines.append(f"{question.title}: {value_text(cell)} ({ends}; {cell['dataset']}){groups}.")
    if kind == "encoder" and evident:
        tries = [mitigation_advice(each, inputs.audit) for each in _tried(inputs) if each[0].model == model]
        lines += tries or [
            _untried(model, inputs) or "No mitigation was tried on it; “What to do” says what was seen on others."
        ]
    if _is_control(model, inputs) and inputs.planted_truth is not None:
        events = where(inputs.planted_truth, model=model)["event"].unique(maintain_order=True)
        planted = listed(event_title(event) for event in events)
        lines.insert(0, f"The control of the planted world: it was taught {planted} at one rate for every group.")
    return lines


def _is_control(model: str, inputs: ReportInputs) -> bool:
    return inputs.planted_truth is not None and model in even_models(inputs.planted_truth)


def _is_largest(cell: Mapping[str, Any], card: pl.DataFrame) -> bool:
    """Return whether a model's value is the largest of three or more on a dataset."""
    same = {name: cell[name] for name in ("question", "dataset", "metric", "definition")}
    values = where(card, **same)["value"].abs().drop_nans()
    return len(values) > 2 and abs(cell["value"]) == values.max()


# --- Findings.

_MOST_OF_TONE = {"refused": 1, "bias": 7, "difference": 1, "undefined": 1, "data": 1, "none": 1}
"""How many findings of each kind of claim the first page tells; what mitigations do is its advice."""
_OF_MODEL = dict.fromkeys(DIFFERENCES, MOST_OF_MODEL)


def _own(ranked: Sequence[Finding], model: str, card: pl.DataFrame) -> list[Finding]:
    """Return the findings of a model's section, for breadth; with one of bias beyond the scorecard, if there is any."""
    chosen = _broad([finding for finding in ranked if finding.model == model], _OF_MODEL, MOST_OF_MODEL)
    beyond = beyond_scorecard(model, where(card, model=model).to_dicts(), ranked)
    if beyond and not any(finding in chosen for finding in beyond):
        chosen = [*chosen[: MOST_OF_MODEL - 1], beyond[0]]
    return chosen


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


# --- What to do, what was audited, what no number says.


def advice(table: pl.DataFrame, card: pl.DataFrame, inputs: ReportInputs, ranked: Sequence[Finding]) -> tuple[str, ...]:
    """Return which model to choose, which mitigation to use or to try first, and what instructions change."""
    encoders = asked_models(card, "encoder")
    tries = _tried(inputs)
    candidates = [each for each in tries if _tested(where(card, model=each[0].model))] or tries
    candidates.sort(key=lambda each: each[0].model not in encoders[:1])
    lines = _choice(card, inputs, ranked)
    evident = _tested(where(card, model=encoders[0], state="evidence")) if encoders else []
    if evident and encoders[0] not in {each[0].model for each in candidates}:
        lines.append(_untried(encoders[0], inputs) or first_to_try(encoders[0], candidates))
    lines += [mitigation_advice(each, inputs.audit) for each in candidates][: 4 - len(lines)]
    return (*lines, *instruction_advice(table, inputs)[:1])


def _untried(model: str, inputs: ReportInputs) -> str:
    """Say that mitigations cannot be tried where only the choices of a model are known; empty of another."""
    if any(encoder.id == model and encoder.choices_alone for encoder in inputs.encoders):
        return f"Mitigations cannot be tried on what {model} chose: they take the model, or its embeddings."
    return ""


def _tried(inputs: ReportInputs) -> list[list[Tried]]:
    """Return the mitigations that were tried, of each dataset and model together."""
    if inputs.transfer is None:
        return []
    cells = inputs.transfer.select("dataset", "model").unique().sort("dataset", "model").rows()
    leaking = inputs.audit.leaking
    every = (tried(inputs.transfer, dataset=dataset, model=model, leaking=leaking) for dataset, model in cells)
    return [candidates for candidates in every if candidates]


def _choice(card: pl.DataFrame, inputs: ReportInputs, ranked: Sequence[Finding]) -> list[str]:
    """Say which encoder stands last in the ranking, and which show bias in the fewest of the questions all were asked.

    Encoders that were asked less than half as much as others are left out: they share too few questions.
    """
    asked = {model: where(card, model=model) for model in asked_models(card, "encoder")}
    # Where no image got a label there is no evidence, as where too few did.
    tested = {model: _tested(cells, no_label=True) for model, cells in asked.items() if _tested(cells)}
    most = max(map(len, tested.values()), default=0)
    tested = {model: cells for model, cells in tested.items() if most and 2 * len(cells) >= most}
    if len(tested) < 2:
        return []
    shared_questions = set.intersection(*({cell["question"] for cell in cells} for cells in tested.values()))
    common = {
        model: [cell for cell in cells if cell["question"] in shared_questions] for model, cells in tested.items()
    }
    evident = {model: [cell for cell in cells if cell["state"] == "evidence"] for model, cells in common.items()}
    order = sorted(evident, key=lambda model: len(evident[model]))
    fewest, most = (len(evident[model]) for model in (order[0], order[-1])) if shared_questions else (0, 0)
    if fewest == most:
        return [_alike(evident, len(shared_questions))] if fewest else []

    def models_text(models: Sequence[str]) -> str:
        alone, still = len(models) == 1, evident[models[0]]
        which = f": {topics(still)}" if alone and 0 < len(still) <= MOST_NAMED else ""
        weak = sum(cell["state"] == "too_weak" for cell in common[models[0]]) if alone else 0
        unclear = f"; too few images to tell in {weak}" if weak else ""
        accuracies = where(card, question="accuracy", model=models[0]).to_dicts() if alone else []
        right = [f", accuracy {value_text(cell)}" for cell in accuracies if defined(cell["value"])]
        return f"{listed(models)} ({len(still)}{' each' * (not alone)}{which}{unclear}){''.join(right)}"

    # A control is a reference, which nobody would deploy.
    control = [model for model in order if _is_control(model, inputs)]
    others = [model for model in order if model not in control] or order
    best = [model for model in others if len(evident[model]) == len(evident[others[0]])]
    apart = not_ranked(card)
    least_biased = _least_biased(card, [model for model in tested if model in others and model not in apart])
    reference = f" {listed(control)} is the control, a reference." if len(control) == 1 else ""
    shared = f"of the {len(shared_questions)} questions that {len(tested)} encoders share"
    if least_biased is None or least_biased.model in best:
        text = f"Evidence of bias in the fewest {shared}: {models_text(best)}.{reference}"
    else:
        last = least_biased.model
        largest = [cell for cell in evident[last] if _is_largest(cell, card)][:1]
        but = f" The largest gap in {topics(largest)} is its own, {value_text(largest[0])}." if largest else ""
        least = f"Apart from the control ({control[0]}), the least" if len(control) == 1 else "The least"
        if least_biased.alike:
            least = f"{least_biased.alike}; of these the least"
        others_show = f"{_first_of(best)} {_shows(best)} it in {len(evident[best[0]])}, the fewest"
        text = (
            f"{least} biased encoder in {least_biased.question} is {last} (evidence of bias in "
            f"{len(evident[last])} {shared}; {others_show}).{but} "
            f"Evidence in the fewest questions: {models_text(best)}."
        )
        best = [model for model in tested if model in {*best, last}]
    beyond = [model for model in best if beyond_scorecard(model, tested[model], ranked)]
    sections = "its section" if len(beyond) == 1 else "their sections"
    more = f" Outside these questions {listed(beyond)} {_shows(beyond)} bias as well: see {sections}."
    return [text + (more if beyond else "")]


def _first_of(models: Sequence[str]) -> str:
    """Return a few models as an enumeration; of many the first, and how many more there are."""
    return listed(models) if len(models) <= MOST_NAMED else f"{models[0]} and {len(models) - 1} more"


def _alike(evident: Mapping[str, Sequence[Mapping[str, Any]]], shared: int) -> str:
    """Say that models show evidence in equally many of the questions that they share, and of a few models in which."""
    each = len(next(iter(evident.values())))
    few = len(evident) <= MOST_NAMED and each <= MOST_NAMED
    named = f": {'; '.join(f'{model} in {topics(cells)}' for model, cells in evident.items())}" if few else ""
    return (
        f"Each of {len(evident)} encoders shows evidence of bias in {each} of the {shared} "
        f"question{'' if shared == 1 else 's'} that they share{named}."
    )


class _Least(NamedTuple):
    """The least biased of some models by the order of the scorecard, and the question that sets it apart.

    `alike` says which models, with it, are alike in the first question in which any model shows evidence; empty where
    that question sets it apart.
    """

    model: str
    question: str
    alike: str


def _least_biased(card: pl.DataFrame, models: Sequence[str]) -> _Least | None:
    """Return which of some models is the least biased; None where no question sets one apart."""
    first = _first_with(card, "evidence", "encoder")[:1]
    left, alike_in = list(models), ""
    for question in asked_questions(card, "encoder"):
        if not question.of_bias or len(left) < 2:
            continue
        cells = {cell["model"]: cell for cell in where(card, question=question.id).to_dicts()}
        keys = {model: worse_first(cells[model]) for model in left if model in cells}
        alike = [model for model in left if keys.get(model) == max(keys.values(), default=None)]
        if len(alike) == 1:
            return _Least(alike[0], topics([cells[alike[0]]]), f"{listed(left)} {alike_in}" if alike_in else "")
        if first and first[0]["question"] == question.id and keys:
            without = max(keys.values())[0] == NO_EVIDENCE
            alike_in = f"{'show no evidence of bias' if without else 'are alike'} in {topics(first)}"
        left = alike or left
    return None


def audited(inputs: ReportInputs, reading: Reading) -> tuple[str, ...]:
    """Return what was audited in at most six lines."""
    models = [_counted(len(inputs.encoders), "encoder")] if inputs.encoders else []
    if inputs.lvlms:
        answers = count(sum(one.rows for one in inputs.lvlms))
        models.append(f"{_counted(len(inputs.lvlms), 'generative model')} with {answers} answers")
    images = sum(dataset.images for dataset in inputs.datasets)
    unanswered = sum(one.unanswered for one in inputs.lvlms)
    left_out = f" {_counted(unanswered, 'question')} without a stored answer left out." if unanswered else ""
    refused = sum(dataset.quarantined.height for dataset in inputs.datasets)
    datasets = f"{_counted(len(inputs.datasets), 'dataset')} with {_counted(images, 'image')}"
    lines = [f"{listed(models)}.{left_out}", f"{datasets}; {_counted(refused, 'refused file')}."]
    if inputs.suites:
        suites = dict.fromkeys(suite.id.replace("_", " ") for suite in inputs.suites)
        lines.append(f"{_counted(len(suites), 'suite')} of prompts: {listed(suites)}.")
    picked = ""
    if reading.selection is not None:
        picked = f", wider in the findings, which are the strongest of {count(reading.selection.rows)} estimates"
    lines.append(
        f"Evidence is q below {reading.significance:g}, corrected for all tests of its kind; intervals are "
        f"{confidence(reading.confidence)}{picked}."
    )
    lines += _answers_not_by(inputs)
    if inputs.absent:
        lines.append(f"Without numbers: {_counted(len(inputs.absent), 'pair')} of a model and a dataset.")
    if inputs.in_memory and inputs.not_tried:
        parts = _counted(len(inputs.not_tried), "part")
        need = "needs" if len(inputs.not_tried) == 1 else "need"
        lines.append(f"In memory: {parts} of what was asked {need} the pipeline, see What is absent or undefined.")
    return tuple(lines)


def _answers_not_by(inputs: ReportInputs) -> list[str]:
    """Say by which attributes of datasets answers in words are not compared."""
    of = [one for one in inputs.datasets if one.answers_not_by]
    parts = [
        f"on {one.id} by {listed(map(attribute_title, one.answers_by))}, not by "
        f"{listed(map(attribute_title, one.answers_not_by))}"
        for one in of[:2]
    ]
    more = f"; {_counted(len(of) - 2, 'more dataset')} likewise" if len(of) > 2 else ""
    return [f"Answers in words are compared {'; '.join(parts)}{more}."] if of else []


def limits(table: pl.DataFrame, inputs: ReportInputs) -> tuple[str, ...]:
    """Return what no number here says, in at most five lines."""
    lines, paired = [], inputs.effects is not None and not inputs.effects.is_empty()
    compared = "; comparisons on the same images may, see “What size, data and source change”" if paired else ""
    labellers = [encoder.id for encoder in inputs.encoders if encoder.labeller and inputs.uses_automatic_gender]
    guessed = f", but for the gender in Trident’s groups by gender, which {labellers[0]} guessed" if labellers else ""
    if inputs.planted:
        whose = "All images" if inputs.all_planted else f"The images of {listed(inputs.planted)}"
        lines.append(f"{whose} are drawn faces with planted biases: no number says anything about real people.")
    lines += [
        "No evidence of a difference is not evidence of equality: the tooltip of a cell without evidence gives the "
        f"difference that would have been detected, where one is known.{_hidden_by_small_groups(table)}",
        f"Groups are the labels of the datasets, whoever gave them{guessed}: not always how people see themselves. "
        "Who is named as worst off is so in these images; that the next group is better off was not tested.",
        "Models are sorted by the first column with evidence, or with a value that nothing was tested of, by the end "
        "of the interval that is nearer to no difference: other columns may order them otherwise. Intervals that "
        f"overlap do not settle an order{compared}.",
    ]
    scorer = headline_scorer(table, inputs.reading)
    if scorer in inputs.reading.stand_ins:
        lines.append(f"Toxicity was scored by “{scorer}”, {STAND_IN} for a toxicity model.")
    return tuple(lines[:5])


_SMALL = 4
"""How many times as many images as the smallest group of an attribute the middle one has where that is told."""


def _hidden_by_small_groups(table: pl.DataFrame) -> str:
    """Say of which attribute one small group makes the comparison of all unsure, the most unequal one; or nothing."""
    plain = where(table, condition="before", statistic="estimate", occupation=None)
    images, answers = (
        where(plain, metric=metric, definition=definition).with_columns(what=pl.lit(what))
        for metric, definition, what in (("outcome_proportion", "top1", "images"), ("refusal_rate", "paper", "answers"))
    )
    rates = pl.concat([images, answers.join(images, on=["dataset", "attribute"], how="anti")])
    sizes = rates.drop_nulls(["attribute", "group"])
    sizes = sizes.group_by("dataset", "attribute", "group", "what").agg(pl.col("n").max())
    sizes = sizes.filter(~pl.col("attribute").map_elements(is_composite, pl.Boolean)).sort("n", "group")
    of = sizes.group_by("dataset", "attribute", "what", maintain_order=True).agg(
        pl.col("group").first(), pl.col("n").first(), pl.len().alias("groups"), pl.col("n").median().alias("middle"),
        pl.col("n").sum().alias("of_all"),
    )  # fmt: skip
    uneven = of.filter(pl.col("groups") > 2, pl.col("middle") > _SMALL * pl.col("n"))
    if uneven.is_empty():
        return ""
    row = uneven.sort(pl.col("n") / pl.col("middle"), "dataset", "attribute").row(0, named=True)
    remedy = (
        "Named alone in `map.values`, they are compared without it."
        if row["what"] == "images"
        else "A dataset without its images compares them alone."
    )
    return (
        f" On {row['dataset']}, “{group_title(row['group'])}” has {count(row['n'])} of {count(row['of_all'])} "
        f"{row['what']}: chance moves it most, and a difference between other groups by "
        f"{attribute_title(row['attribute'])} can go unseen beside it. {remedy}"
    )
