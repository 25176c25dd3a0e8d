"""The scorecard: models x questions, each cell one row of the metric table.

`QUESTIONS` declares which row answers which question; a new metric family adds its row there. Cells are declared
before any number of a group is seen and none is picked, so that q of the row's own family says what is evidence, and
the interval is the ordinary one. Where several datasets or prompts were asked, a question compares models on the one
that most of them were asked on; a model that was not asked there is answered by the next, and its cell says which. Of
prompts it is the first that was not refused throughout; refusals are compared where the models refuse some and answer
others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import polars as pl

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import BEFORE, Schema, row_id
from plumbline.catalog.suites import load_suite
from plumbline.metrics.evidence import CELL, SIGNED, too_weak, value_without_difference
from plumbline.metrics.evidence import state as evidence_state
from plumbline.metrics.own import GAP, VALUE
from plumbline.reasons import find
from plumbline.report.disparity import SMOOTHED, Disparity
from plumbline.report.language_words import SUITE, headline_scorer, people, prompt_title, spoken
from plumbline.report.numbers import (
    NO_INTERVAL,
    UNDEFINED,
    agreeing_decimals,
    interval,
    money,
    number,
    p_value,
    percent,
)
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, checked, defined, first, where
from plumbline.report.vocabulary import (
    ATTRIBUTE_TITLES,
    attribute_title,
    event_title,
    group_faces,
    has_no_question,
    is_composite,
    is_own_suite,
    probe_words,
    probes_of,
    sentence_start,
)
from plumbline.statistics.multiplicity import CORRECTED_TOGETHER

Kind = Literal["encoder", "generator"]
State = Literal[
    "evidence", "evidence_of_none", "none", "too_weak", "no_label", "all_refused", "none_refused", "measured",
    "undefined", "not_asked",
]  # fmt: skip
"""What a cell is: evidence of a difference; evidence of none beyond the margin of the audit file; no evidence; no
evidence, in too few images to find any difference; nothing to compare (`NOTHING`); a value that nothing was tested of;
undefined; never asked."""

NOTHING = {"no_label": "no image", "all_refused": "all refused", "none_refused": "none refused"}
"""State of a cell that has nothing to compare, since no image got the label, or a generative model refused every
answer, or refusals are compared and there is none -> what stands in place of the value."""

SCORECARD_SCHEMA: Schema = {
    "model": pl.String,
    "kind": pl.String,
    "ranked": pl.Boolean,
    "dataset": pl.String,
    "question": pl.String,
    "metric": pl.String,
    "definition": pl.String,
    "title": pl.String,
    "attribute": pl.String,
    "prompt": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "n": pl.Int64,
    "unit": pl.String,
    "state": pl.String,
    "group": pl.String,
    "tied": pl.Int64,
    "groups": pl.String,
    "compared": pl.Int64,
    "tests": pl.Int64,
    "smallest_detectable": pl.Float64,
    "reason": pl.String,
    "reason_codes": pl.String,
    "row": pl.String,
    "chapter": pl.String,
}
"""A row a model and question. `ranked` is whether the model has a place among the others of its kind: false where it
was asked on other images than they (`not_ranked`). `metric`, `definition` and `unit` are those of the row, which are
not the question's where another reading speaks (`_told`). `group` is who is worst off, or who is in front of a ranking
(`Question.ranks`; behind, where the value is below 0), where there is evidence or nothing was tested; `tied` is how
many further groups are as badly off; `groups` tells the values of the groups at both ends,
the worst off first; `compared` is how many groups the table has a value of; `tests` is over how many q corrects;
`row` is for `plumbline explain`; `chapter` is the anchor in the report."""


@dataclass(frozen=True)
class Unit:
    """How values of one kind are written.

    Attributes
    ----------
    suffix : str
        Stands behind the value: a sign as it is, a word after a space.
    meaning : str
        What a value of it says, for a heading or a tip.
    shown : callable
        From a value to the number that is written, increasing.
    more : bool
        Whether a value above 0 is written with its sign.
    head : str
        Under the title of a column; the suffix where it is empty.
    """

    suffix: str
    meaning: str
    shown: Callable[[float], float] = float
    more: bool = False
    head: str = ""


def _hundred(value: float) -> float:
    return 100 * value


def _over(value: float) -> float:
    return 100 * math.expm1(value)


UNITS: dict[str, Unit] = {
    "skew": Unit(
        "%",
        "how much more often in one group than in another, mean over pairs of groups (Max Skew)",
        _hundred,
        more=True,
        head="% more often",
    ),
    "log ratio": Unit(
        "%",
        "how far the share of the group in front, of the k best matches, is over its share of the images (MaxSkew@k); "
        "where only a group alone shows evidence, how far that group's is over or, with a minus, under it (Skew@k)",
        _over,
        more=True,
        head="% over its share",
    ),
    "points": Unit("points", "percentage points between the highest and the lowest group", _hundred),
    "sd": Unit("SD", "standard deviations between two groups"),
    "number": Unit("", "largest less smallest value of a group", head="largest less smallest"),
    "share": Unit("%", "of images", _hundred, head="% of images"),
    "score": Unit(
        "", "highest less lowest score in a scene, mean over scenes (MaxToxicity)", head="spread from 0 to 1"
    ),
    "rating": Unit("rating points", "points of 10 between the highest and the lowest group"),
    "dollars": Unit("dollars", "US dollars a year between the highest and the lowest group"),
}
"""How the values of the questions are written."""


@dataclass(frozen=True)
class Groups:
    """The rows that say who is worst off in a question.

    Attributes
    ----------
    metric, definition : str
        Of the rows of the groups; a group's value is the mean over its rows.
    worst : {"most", "least"}
        Whether the largest or the smallest value is the worst.
    shared : tuple of str
        What these rows have in common with that of the cell, besides model, dataset, attribute, suite and prompt.
    of_valence : bool
        Whether they are the rows of the probe words whose valence is the event of the cell.
    says : str
        How a value is told: `{value} of {group}`.
    over : str
        What stands before the values.
    written : callable
        From a value to text.
    """

    metric: str
    definition: str
    worst: Literal["most", "least"] = "most"
    shared: tuple[str, ...] = ("event",)
    of_valence: bool = False
    says: str = "{value} of {group}"
    over: str = ""
    written: Callable[..., str] = percent


@dataclass(frozen=True)
class Question:
    """A column of the scorecard: which row of the metric table answers it.

    Attributes
    ----------
    id : str
        Name in exports. Of what is asked of any attribute it ends in `race`, and the attribute takes that place.
    topic : str
        What is asked, for the middle of a sentence.
    kind : {"encoder", "generator"}
        Of which models it is asked.
    metric, suite : str
        Of the row.
    definitions : tuple of str
        The first that a cell has is taken.
    unit : str
        One of `UNITS`.
    direction : {"less is better", "more is better", "around zero"}
        How the value is read.
    chapter : str
        Anchor of the chapter that shows more.
    attribute : str or None
        None where the dataset's own classes are compared.
    event, probe, statistic, group, reference_group : str or None
        Of the row.
    groups : Groups or None
        Who is worst off.
    of_bias : bool
        False for what stands beside harm: how well the model does its work.
    tested_by : str or None
        Metric whose rows of the groups test on whom it falls, where the value itself has no test.
    head : str
        Under the title of its column, where its unit says too little.
    meaning : str
        What its value is, where its unit says something else.
    """

    id: str
    topic: str
    kind: Kind
    metric: str
    definitions: tuple[str, ...]
    suite: str
    unit: str
    chapter: str
    attribute: str | None = None
    event: str | None = None
    probe: str | None = None
    statistic: str = "estimate"
    group: str | None = None
    reference_group: str | None = None
    direction: Literal["less is better", "more is better", "around zero"] = "less is better"
    groups: Groups | None = None
    of_bias: bool = True
    tested_by: str | None = None
    head: str = ""
    meaning: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that images are compared with; none of recognition, accuracy and generated texts."""
        if self.kind == "generator" or self.event is None or self.metric == GAP:
            return ()
        if self.suite == "trident":
            return probes_of(self.event)
        if is_own_suite(self.suite):
            return ()
        suite = load_suite(self.suite)
        categories = suite.events.get(self.event, ())
        labels = tuple(each.id for each in suite.candidates if each.category in categories)
        return labels or suite.scales.get(self.event, suite.scales.get(f"{self.event}_positive", ()))

    @property
    def opposite_words(self) -> tuple[str, ...]:
        """Return the words whose closeness is subtracted from that of `words`, where the metric does so."""
        if self.metric != "weat_effect" or is_own_suite(self.suite):
            return ()
        return load_suite(self.suite).scales.get(f"{self.event}_negative", ())

    @property
    def without_difference(self) -> float:
        """Return the value where no group is treated unlike another: 0, of a ratio 1."""
        return value_without_difference(self.metric) or 0.0

    @property
    def ranks(self) -> bool:
        """Return whether its value is that of the group in front of a ranking."""
        return self.groups is _RANKED

    @property
    def title(self) -> str:
        """Return the heading of its column."""
        by = "" if self.attribute is None else f" by {attribute_title(self.attribute)}"
        return f"{sentence_start(self.topic)}{by}"

    @property
    def measure(self) -> str:
        """Return title and unit, for where values stand without one: `Crime labels by race: percent more often`."""
        unit = UNITS[self.unit].head or UNITS[self.unit].suffix
        # What stands in brackets are the probe words, which the head of a column has no room for.
        title = self.title.partition(" (")[0] if self.suite == "trident" and self.event else self.title
        return f"{title}: {unit.replace('%', 'percent')}" if unit else title

    def measure_of(self, prompt: str) -> str:
        """Return the same for the answers to a prompt."""
        return f"{self.measure} - {prompt_title(prompt)}"

    @property
    def measure_smoothed(self) -> str:
        """Return the same for a smoothed skew."""
        return f"{self.measure} - {SMOOTHED}"


def _labels(id: str, topic: str, suite: str, event: str, attribute: str) -> Question:
    """Return the question how unequally a label falls on groups."""
    return Question(
        id, topic, "encoder", "max_skew", ("mean_over_pairs",), suite, "skew", "bias", attribute, event,
        groups=Groups("outcome_proportion", "top1"),
    )  # fmt: skip


def _non_human(attribute: str) -> Question:
    """Return the question how unequally labels such as animal fall on groups."""
    return Question(
        f"non_human_{attribute}", "non-human labels", "encoder", "parity_difference", ("max_minus_min",), "crime",
        "points", "bias", attribute, "non_human", groups=Groups("outcome_proportion", "top1"),
    )  # fmt: skip


def _recognition(attribute: str) -> Question:
    """Return the question how unequally the classes of a dataset are recognised."""
    return Question(
        f"recognition_{attribute}", "recognition", "encoder", "equal_opportunity_gap", ("mean_over_classes",),
        "trident", "points", "opportunity", attribute,
        groups=Groups(
            "true_positive_rate", "classes_alone", "least", shared=(), over="over all classes "
        ),
        head="points, of a face’s own class",
        meaning="percentage points between the best and the worst recognised group of a class, mean over classes",
    )  # fmt: skip


_ABOUT = "{value} about {group}"
_RANKED = Groups("skew_at_k", "ranked", "least", shared=("event", "k"), over="of the {k} best matches ")

QUESTIONS: tuple[Question, ...] = (
    _labels("crime_race", "crime labels", "crime", "crime", "race"),
    _labels("crime_gender", "crime labels", "crime", "crime", "gender"),
    _non_human("race"),
    _non_human("gender"),
    _labels("agency_race", "negative agency words", "agency", "negative_agency", "race"),
    _labels("agency_gender", "negative agency words", "agency", "negative_agency", "gender"),
    _labels("communion_race", "negative communion words", "communion", "negative_communion", "race"),
    _labels("communion_gender", "negative communion words", "communion", "negative_communion", "gender"),
    Question(
        "trident_negative", probe_words("negative"), "encoder", "probe_rate_gap", ("by_valence",), "trident", "points",
        "trident", event="negative", groups=Groups("probe_rate", "logit", shared=(), of_valence=True),
    ),
    Question(
        "association_agency", "association with agency", "encoder", "weat_effect", ("cluster_t", "two_sided"),
        "perception", "sd", "associations", "gender", "agency", group="man", reference_group="woman",
        direction="around zero",
    ),
    Question(
        "ranking_gender", "ranking for competence", "encoder", "max_skew_at_k", ("ranked",), "perception",
        "log ratio", "rankings", "gender", "competence", groups=_RANKED,
    ),
    Question(
        "ranking_race", "ranking for competence", "encoder", "max_skew_at_k", ("ranked",), "perception",
        "log ratio", "rankings", "race", "competence", groups=_RANKED,
    ),
    _recognition("gender"),
    _recognition("race"),
    Question(
        "accuracy", "accuracy", "encoder", "macro_accuracy", ("paper",), "trident", "share", "trident", probe="person",
        direction="more is better", of_bias=False, head="% in the right class",
    ),
    Question(
        "max_toxicity", "toxicity", "generator", "max_toxicity", ("paper",), SUITE, "score", "generation",
        statistic="mean", groups=Groups(
            "toxicity", "score", shared=("scorer", "statistic"), says=_ABOUT, written=number
        ), tested_by="max_score_share",
    ),
    Question(
        "competence_words", "words of competence", "generator", "competence_gap", ("paper",), SUITE, "points",
        "ratings", groups=Groups("competence_words", "paper", "least", shared=(), over="of the words ", says=_ABOUT),
    ),
    Question(
        "warmth_words", "words of warmth", "generator", "warmth_gap", ("paper",), SUITE, "points", "ratings",
        groups=Groups("warmth_words", "paper", "least", shared=(), over="of the words ", says=_ABOUT),
    ),
    Question(
        "ratings", "ratings", "generator", "rating_gap", ("paper",), SUITE, "rating", "ratings",
        groups=Groups("rating", "paper", "least", shared=(), says="{value} for {group}", written=number),
    ),
    Question(
        "pay", "pay", "generator", "salary_gap", ("paper",), SUITE, "dollars", "ratings",
        groups=Groups("salary", "paper", "least", shared=(), says="{value} for {group}", written=money),
    ),
    Question(
        "refusals", "refusals", "generator", "refusal_rate_gap", ("paper",), SUITE, "points", "ratings",
        groups=Groups("refusal_rate", "paper", shared=(), over="of the answers ", says=_ABOUT),
    ),
)  # fmt: skip
"""The columns: what does most harm first, and how well the model does its work at the end."""

BY_ID: dict[str, Question] = {question.id: question for question in QUESTIONS}

_OF_ANY_ATTRIBUTE = {
    question.id.removesuffix("race"): question for question in QUESTIONS if question.attribute == "race"
}
"""Beginning of an id -> what is asked of any attribute, such as `department`, in the order of the columns."""

_LABELS = tuple(question for question in QUESTIONS if question.chapter == "bias" and question.metric == "max_skew")


_OWN, _SUITE = "own", "suite"


def own_question(metric: str, suite: str, event: str, attribute: str, topic: str) -> str:
    """Return the id of the question that a metric of one's own answers; `question_of` makes it of that."""
    return ":".join((_OWN, *(quote(part, safe=" ") for part in (metric, suite, event, attribute, topic))))


def question_of(id: str) -> Question:
    """Return a question by its id; of a metric or suite of one's own, and of any other attribute, it is made."""
    if id in BY_ID:
        return BY_ID[id]
    if id.startswith(f"{_OWN}:"):
        metric, own_suite, event, of, topic = map(unquote, id.split(":")[1:])
        return Question(
            id, topic, "encoder", GAP, (metric,), own_suite, "number", "own-metrics", of, event,
            groups=Groups(VALUE, metric),
        )  # fmt: skip
    if id.startswith(f"{_SUITE}:"):
        own_suite, event, of = map(unquote, id.split(":")[1:])
        return _labels(id, event_title(event, own_suite), own_suite, event, of)
    start = max((each for each in _OF_ANY_ATTRIBUTE if id.startswith(each)), key=len)
    return replace(_OF_ANY_ATTRIBUTE[start], id=id, attribute=id.removeprefix(start))


def questions(table: pl.DataFrame, declared: Sequence[str] = ()) -> tuple[Question, ...]:
    """Return the questions that a metric table may answer: the declared ones, and those of own attributes and suites.

    What is asked of race is asked of every other attribute of the dataset whose gender and race are shown, which is
    that on which most models were asked for them; of all attributes, where no dataset has gender or race. An attribute
    of one's own elsewhere, and a cross of two attributes, has the first of these columns; gender × race those in which
    a model shows evidence, and by neither alone. Each event of an own suite
    whose skew is computed has a column an attribute.

    Parameters
    ----------
    declared : sequence of str
        Ids of those that metrics of one's own answer.
    """
    metrics = tuple({question.metric for question in _OF_ANY_ATTRIBUTE.values()})
    compared = where(table, metric=metrics, statistic="estimate").drop_nulls("attribute")
    skews = where(compared, metric=_LABELS[0].metric, definition=_LABELS[0].definitions)
    answers = [row["dataset"] for question in _LABELS for row in _answers(skews, question).values()]
    shown = [max(sorted(set(answers)), key=answers.count)] if answers else compared["dataset"].unique()
    beside = set(compared.filter(pl.col("dataset").is_in(shown))["attribute"])
    more: list[Question] = []
    for name in sorted(set(compared["attribute"]) - {"gender", "race", "auto_gender"}):
        if name in ATTRIBUTE_TITLES and is_composite(name):
            crossed = (question_of(f"{start}{name}") for start in _OF_ANY_ATTRIBUTE)
            more += [each for each in crossed if _tells_more(compared, each)]
            continue
        if name in ATTRIBUTE_TITLES and name not in beside:
            continue
        possible = [question_of(f"{start}{name}") for start in _OF_ANY_ATTRIBUTE]
        possible = [each for each in possible if not _rows_of(compared, each).is_empty()]
        more += possible[:1] if is_composite(name) or name not in beside else possible
    for suite, event, name in skews.select("suite", "event", "attribute").unique(maintain_order=True).iter_rows():
        if has_no_question(suite) and name != "auto_gender" and not is_composite(name):
            more.append(question_of(":".join((_SUITE, *(quote(part, safe=" ") for part in (suite, event, name))))))
    columns: list[Question] = []
    last = {question.chapter: place for place, question in enumerate(QUESTIONS)}
    for place, question in enumerate(QUESTIONS):
        columns.append(question)
        if last[question.chapter] == place:
            columns += [each for each in more if each.chapter == question.chapter]
            columns += map(question_of, declared if question.chapter == "bias" else ())
    return tuple(columns)


def _tells_more(table: pl.DataFrame, question: Question) -> bool:
    """Return whether a model shows evidence between crossed groups, and between those of neither attribute alone."""
    start = question.id.removesuffix(question.attribute or "")
    alone = [_answers(table, question_of(f"{start}{name}")) for name in ("gender", "race")]
    return any(
        evidence_state(row) == "evidence"
        and all(model in one and evidence_state(one[model]) == "no_evidence" for one in alone)
        for model, row in _answers(table, question).items()
    )


_PLACE = ("dataset", "attribute", "prompt")
_STATES = {"no_evidence": "none", None: "measured"}


def scorecard(table: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    """Return the scorecard of a metric table, the worst model first, generative models behind the encoders.

    Models are in the order of the first question that tells two apart: one with evidence stands before one without, and
    among these the one whose interval ends further from no difference; equal ones are in the order of their names.
    Those that were asked on other images than most (`not_ranked`) stand behind the others of their kind.

    Parameters
    ----------
    table : DataFrame
        Columns of `plumbline.catalog.schema`.
    reading : Reading
        What counts as evidence, and which scorer is that of the headlines.

    Returns
    -------
    DataFrame
        Columns of `SCORECARD_SCHEMA`; a row a model and question of its kind, of the models and questions that have an
        answer.

    Raises
    ------
    MetricError
        If the table lacks columns of the schema.
    """
    plain = where(checked(table), condition=BEFORE, instruction=None, occupation=None)
    scorer = headline_scorer(plain, reading)
    plain = plain.filter(pl.col("scorer").is_null() | (pl.col("scorer") == pl.lit(scorer, pl.String)))
    by_id = {question.id: question for question in questions(plain, reading.own_questions)}
    refused = _refused(plain)
    answers = {name: _answers(plain, question, refused) for name, question in by_id.items()}
    of_groups = [question.groups.metric for question in by_id.values() if question.groups]
    of_groups += [question.tested_by for question in by_id.values() if question.tested_by]
    of_groups += ["max_skew", "parity_difference"]
    compared = plain.filter(pl.col("metric").is_in(of_groups))
    tests = family_sizes(table)
    kinds: dict[str, Kind] = {model: by_id[name].kind for name, by_model in answers.items() for model in by_model}
    weak = set(too_weak(plain).select(CELL).iter_rows())
    cells = [
        _cell(model, by_id[name], by_model.get(model), compared, reading, weak, tests, refused)
        for name, by_model in answers.items()
        for model, kind in kinds.items()
        if by_model and kind == by_id[name].kind
    ]
    order = {name: place for place, name in enumerate(by_id)}
    worst_first = _worst_first(cells, kinds)
    apart = _asked_elsewhere(pl.DataFrame(cells, schema=SCORECARD_SCHEMA, orient="row"))

    def place(cell: Mapping[str, Any]) -> tuple[Any, ...]:
        return kinds[cell["model"]], cell["model"] in apart, worst_first[cell["model"]], order[cell["question"]]

    in_order = [{**cell, "ranked": cell["model"] not in apart} for cell in sorted(cells, key=place)]
    return pl.DataFrame(in_order, schema=SCORECARD_SCHEMA, orient="row")


def _asked_elsewhere(card: pl.DataFrame) -> set[str]:
    """Return the models that were asked every question of bias on another dataset than most models of the question."""
    usual = usual_datasets(card)
    answers = [cell for cell in card.to_dicts() if cell["dataset"] and question_of(cell["question"]).of_bias]
    return {cell["model"] for cell in answers} - {cell["model"] for cell in answers if not elsewhere(cell, usual)}


def headline_numbers(table: pl.DataFrame) -> dict[str, float]:
    """Return measure -> value of the questions that the rows of one model answer, under one condition and scorer.

    Of several datasets and prompts the one that the scorecard would show, named where another model's may be of
    another prompt; what is undefined is left out. Beside Max Skew stands the smoothed one (`measure_smoothed`), and it
    alone where Max Skew leaves out pairs: another model may do so. A ranking's is always that of the group in front,
    since the rows of one model have no q that would say whether another group speaks. Values are in the unit that the
    measure names, as the scorecard shows them.
    """
    plain = where(table, occupation=None)
    numbers, refused = {}, _refused(plain)
    for question in questions(plain):
        for row in [*_answers(plain, question, refused).values()][:1]:
            usual = next(iter(_answers(plain, question).values()))
            sent = {question.measure if row["prompt"] == usual["prompt"] else question.measure_of(row["prompt"]): row}
            if question.metric == "max_skew":
                disparity = Disparity.of(row, plain)
                if disparity.partial:
                    sent.clear()
                # Of a label that no image got it would be the ratio of the sizes of groups.
                if disparity.smoothed is not None and not disparity.never:
                    sent[question.measure_smoothed] = disparity.smoothed
            for measure, each in sent.items():
                if defined(each["value"]):
                    numbers[measure] = UNITS[question.unit].shown(each["value"])
    return numbers


def _answers(
    table: pl.DataFrame, question: Question, refused: Mapping[tuple[Any, ...], float] = MappingProxyType({})
) -> dict[str, Row]:
    """Return model -> the row that answers a question, each on the dataset and prompt that most models have.

    Parameters
    ----------
    refused : mapping
        See `_refused`; without it prompts come in the order of the catalogue alone.
    """
    rows = _rows_of(table, question)
    prompts = {name: place for place, name in enumerate(prompt_ids("all"))}
    by_place: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in sorted(rows.to_dicts(), key=lambda row: question.definitions.index(row["definition"])):
        # Of several readings, such as two k of a ranking, the first of the table: that of the audit file.
        by_place.setdefault(tuple(row[name] for name in _PLACE), {}).setdefault(row["model"], row)

    def preference(place: tuple[Any, ...]) -> tuple[Any, ...]:
        answered = by_place[place]
        most = max(row["n"] or 0 for row in answered.values())
        return (-len(answered), silence(place), prompts.get(place[2], 0), -most, *map(str, place))

    def silence(place: tuple[Any, ...]) -> float:
        # Of all answers, so that no group has a say in what is compared.
        known = (refused.get((model, *place)) for model in by_place[place])
        shares = [share for share in known if share is not None]
        if question.metric == "refusal_rate_gap":
            return -sum(share * (1 - share) for share in shares)
        return float(bool(shares) and min(shares) == 1)

    chosen: dict[str, Row] = {}
    for place in sorted(by_place, key=preference):
        chosen = by_place[place] | chosen
    return chosen


def _rows_of(table: pl.DataFrame, question: Question) -> pl.DataFrame:
    names = ("event", "probe", "statistic", "group", "reference_group")
    fixed = {name: getattr(question, name) for name in names}
    rows = where(table, metric=question.metric, suite=question.suite, definition=question.definitions, **fixed)
    if question.attribute is not None:
        rows = where(rows, attribute=question.attribute)
    return spoken(rows) if question.metric == "max_toxicity" else rows


def _cell(
    model: str,
    question: Question,
    row: Row | None,
    table: pl.DataFrame,
    reading: Reading,
    weak: Collection[tuple[str, str]],
    tests: Mapping[tuple[Any, ...], int],
    refused: Mapping[tuple[Any, ...], float],
) -> dict[str, Any]:
    about = {
        "model": model, "kind": question.kind, "question": question.id, "title": question.title, "unit": question.unit,
        "chapter": question.chapter,
    }  # fmt: skip
    if row is None:
        return {**about, "state": "not_asked"}
    row = _told(row, question, table, reading)
    state, another = state_of(row, reading), row["metric"] != question.metric
    if another:
        about["unit"] = UNIT_OF_OTHERS[row["metric"]]
    if question.of_bias and (model, row["dataset"]) in weak:
        why = "the model is at chance on this dataset: too weak to interpret"
        return {**about, "dataset": row["dataset"], "state": "undefined", "reason": why, "row": row_id(row)}
    share = refused.get(tuple(row[name] for name in _ANSWERED)) if question.kind == "generator" else None
    if share == 1:
        state = "all_refused"
    elif share == 0 and question.metric == "refusal_rate_gap":
        state = "none_refused"
    estimate = ("value", "ci_low", "ci_high", "p", "q", "n")
    place = ("dataset", "metric", "definition", "attribute", "prompt")
    same = (*place, *estimate, "smallest_detectable", "reason", "reason_codes")
    names_group = state in ("evidence", "measured") and question.of_bias
    alone = question.ranks and another
    ends = ends_of(row, question, table) if names_group and not alone else None
    evident = _tested_groups(row, question, table, reading)
    if question.tested_by and ends is not None and ends.worst not in evident["group"]:
        ends = None
    return {
        **about,
        **{name: row[name] for name in same},
        "state": state,
        # The number of a ranking is that of the group in front, or of the one that alone shows evidence.
        "group": row["group"] if alone else None if ends is None else ends.best if question.ranks else ends.worst,
        "tied": 0 if ends is None or question.ranks else ends.tied,
        "groups": between(row, question, table) + _on_whom(evident) if state not in ("undefined", *NOTHING) else "",
        "compared": groups_compared(row, question, table),
        "tests": tests.get(tuple(row[name] for name in CORRECTED_TOGETHER["metric_table"])),
        "row": row_id(row),
    }


_ANSWERED = ("model", "dataset", "attribute", "prompt")


def _refused(table: pl.DataFrame) -> dict[tuple[Any, ...], float]:
    """Return model, dataset, attribute and prompt -> the share of all answers that are refusals."""
    rows = where(table, metric="refusal_rate", definition="paper", group=None)
    return {row[:-1]: row[-1] for row in rows.select(*_ANSWERED, "value").iter_rows()}


UNIT_OF_OTHERS = {"parity_difference": "points", "skew_at_k": "log ratio"}
"""Metric of another reading than a question's -> its unit."""


def _told(row: Row, question: Question, table: pl.DataFrame, reading: Reading) -> Row:
    """Return the reading of an answer that speaks: that of the question, unless it alone would say too little.

    Max Skew leaves out a pair of groups of which one never has the label, which may be the worst: the findings and the
    scorecard tell the same other reading then (`Disparity.told`). MaxSkew@k asks whether a group has too many of the
    best matches; that one has too few is a test of its own, so that of a ranking without evidence the group with the
    smallest q speaks, if that is evidence.
    """
    if question.metric == "max_skew":
        return Disparity.of(row, table).told(reading)
    if not question.ranks or state_of(row, reading) not in ("none", "too_weak"):
        return row
    groups = group_rows(row, question, table).filter(pl.col("value").is_finite(), pl.col("q") < reading.significance)
    return first(groups.sort("q", pl.col("value").abs(), "group", descending=[False, True, False])) or row


def _tested_groups(row: Row, question: Question, table: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    """Return the rows of the groups that a test of another metric says get the worst more often than chance."""
    if question.tested_by is None:
        return table.clear()
    same = {name: row[name] for name in ("model", "dataset", "attribute", "suite", "prompt", "scorer", "definition")}
    rows = where(table, metric=question.tested_by, event="toxicity", **same).drop_nulls("group")
    chance = 1 / max(1, rows["group"].n_unique())
    return rows.filter(pl.col("q") < reading.significance, pl.col("value") > chance).sort("q", "group")


def _on_whom(evident: pl.DataFrame) -> str:
    return "".join(
        f"; evidence on whom it falls: in the {each['n']} scenes whose texts differ most in toxicity, the most toxic "
        f"text is about {people(each['group'])} in {percent(each['value'])} ({p_value(each['q'], 'q')})"
        for each in evident.to_dicts()
    )


def detectable(cell: Mapping[str, Any]) -> str:
    """Say which difference would have been found in a cell without evidence; empty where nobody knows."""
    least = cell["smallest_detectable"]
    if not defined(least):
        return ""
    lifted = defined(cell["value"]) and abs(cell["value"]) >= least
    # A largest less a smallest value is above 0 by chance alone.
    why = "; by chance alone a largest less a smallest value is positive" if lifted else ""
    pairs = " on average over pairs of groups" if cell["unit"] == "skew" and (cell.get("compared") or 0) > 2 else ""
    if cell.get("metric") in SIGNED and defined(cell["value"]) and cell["value"] < 0:
        return f"{value_text({**cell, 'value': -least})} or less."
    return f"{value_text({**cell, 'value': least})} or more{pairs}{why}."


def family_sizes(table: pl.DataFrame) -> dict[tuple[Any, ...], int]:
    """Return what identifies a family of tests -> how many it has: q of a row is corrected for them."""
    sizes = table.filter(pl.col("p").is_finite()).group_by(CORRECTED_TOGETHER["metric_table"]).len()
    return {row[:-1]: row[-1] for row in sizes.iter_rows()}


def state_of(row: Row, reading: Reading) -> State:
    """Return what a row of the metric table is evidence of."""
    if not defined(row["value"]):
        return "undefined"
    if find(row["reason_codes"], "event_never_happens") is not None:
        return "no_label"
    evidence = evidence_state(row, significance=reading.significance)
    least = row["smallest_detectable"]
    if evidence == "no_evidence" and least is not None and math.isnan(least):
        return "too_weak"
    return _STATES.get(evidence, evidence)  # type: ignore[return-value]


class Ends(NamedTuple):
    """The groups that are worse and better off by a disparity, and how many more are as badly off."""

    worst: str
    best: str
    tied: int = 0


def ends_of(row: Row, question: Question, table: pl.DataFrame) -> Ends | None:
    """Return the groups at both ends of what a row measures; None where the table does not say it.

    Parameters
    ----------
    row : dict
        Of the metric table.
    question : Question
        That it answers, or one of the same metric.
    table : DataFrame
        The metric table, or the part of it that may hold the rows of groups.
    """
    if row["reference_group"] is not None:
        names = row["group"], row["reference_group"]
        return Ends(*names) if row["value"] < 0 else Ends(*names[::-1])
    known = _worst_off_first(row, question, table)
    groups = known["group"]
    return Ends(groups[0], groups[-1], _tied(known)) if len(groups) > 1 else None


def _tied(known: pl.DataFrame) -> int:
    """Return how many groups are as badly off as the worst; 0 where all are."""
    tied = int(np.isclose(known["value"], known["value"][0], rtol=1e-9, atol=0).sum()) - 1
    return tied if tied < known.height - 1 else 0


def and_more(tied: int | None) -> str:
    """Return ` and 2 more groups`; nothing for none."""
    return f" and {tied} more group{'' if tied == 1 else 's'}" if tied else ""


def between(row: Row, question: Question, table: pl.DataFrame) -> str:
    """Tell the values of the groups at both ends of what a row measures, the worst off first; empty without them.

    `53% of Black faces, 8.3% of White faces`; of a ranking the shares of the best matches and of all that are ranked.

    Parameters
    ----------
    row, question, table
        As of `ends_of`.
    """
    groups = question.groups
    if groups is None or row["reference_group"] is not None:
        return ""
    known = _worst_off_first(row, question, table)
    ends = known.filter(group=row["group"]) if row["group"] else known[[0, -1]] if known.height > 1 else known.clear()
    if ends.is_empty():
        return ""
    names = [
        people(group) if question.kind == "generator" else faces_of(row["attribute"], group) for group in ends["group"]
    ]
    over = groups.over.format(k=row["k"])
    tied = _tied(known) if row["group"] is None and groups is not _RANKED else 0
    names[0] += and_more(tied)
    if groups is _RANKED:
        # A group that is not among the best matches has no skew, and is ranked all the same.
        ranked = group_rows(row, question, table).drop_nulls("group").unique("group")["n"].sum()
        of_all = [n / ranked for n in ends["n"]]
        shares = [
            f"{percent(share * math.exp(skew))} are {name}, of all {percent(share)}"
            for share, skew, name in zip(of_all, ends["value"], names)
        ]
        return over + "; ".join(shares)
    values, gap = ends["value"].to_list(), row["value"]
    is_gap = len(values) == 2 and math.isclose(abs(values[0] - values[1]), gap, rel_tol=1e-6)
    agreed = agreeing_decimals(min(values), max(values), gap, share=groups.written is percent) if is_gap else None
    # More than one decimal of a percentage is no help to a reader.
    none = agreed is None or groups.written is money or (groups.written is percent and agreed > 1)
    more = {} if none else {"decimals": agreed}
    written = [groups.written(value, **more) for value in values]
    written[0] += " each" if tied else ""
    return over + ", ".join(groups.says.format(value=value, group=name) for value, name in zip(written, names))


def faces_of(attribute: str, group: str) -> str:
    """Return a group of images in words: `Black faces`, `faces of Black men`."""
    composite = is_composite(attribute or "") and attribute in ATTRIBUTE_TITLES
    return f"faces of {people(group)}" if composite else group_faces(attribute, group)


def smallest_group(row: Row, question: Question, table: pl.DataFrame) -> int | None:
    """Return how many images, or texts, the smallest group has that a row compares; None where the table lacks them."""
    n = _worst_off_first(row, question, table)["n"].min()
    return None if n is None else int(n)  # type: ignore[arg-type]


def groups_compared(row: Row, question: Question, table: pl.DataFrame) -> int | None:
    """Return how many groups the table has a value of; None where it has none."""
    return _worst_off_first(row, question, table).height or None


def _worst_off_first(row: Row, question: Question, table: pl.DataFrame) -> pl.DataFrame:
    """Return group, value and n of the groups that a row compares, the worst off first; means over several rows."""
    if question.groups is None:
        return pl.DataFrame(schema={"group": pl.String, "value": pl.Float64, "n": pl.Int64})
    rows = group_rows(row, question, table).filter(pl.col("value").is_finite()).drop_nulls("group")
    means = rows.group_by("group").agg(pl.mean("value"), pl.first("n"))
    return means.sort(["value", "group"], descending=[question.groups.worst == "most", False])


def group_rows(row: Row, question: Question, table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the groups that a row compares, several a group where it is a mean over probes or classes."""
    groups = question.groups
    if groups is None:
        return table.clear()
    shared = ("model", "dataset", "attribute", "suite", "prompt", "instruction", "occupation", *groups.shared)
    conditions = {name: row.get(name) for name in shared}
    if groups.of_valence:
        conditions["probe"] = probes_of(str(row["event"]))
    return where(table, metric=groups.metric, definition=groups.definition, **conditions)


def _worst_first(cells: Sequence[Mapping[str, Any]], models: Mapping[str, Kind]) -> dict[str, tuple[Any, ...]]:
    """Return model -> a key that sorts the worst first."""
    keys: dict[str, list[tuple[int, float]]] = {model: [] for model in models}
    for cell in cells:
        if question_of(cell["question"]).of_bias:
            keys[cell["model"]].append(worse_first(cell))
    return {model: (kind, keys[model], model) for model, kind in models.items()}


NO_EVIDENCE = 2
"""Where a cell without evidence stands in its question: last."""


def worse_first(cell: Mapping[str, Any]) -> tuple[int, float]:
    """Return what sorts the cells of a question, the worst first; all without evidence are alike."""
    rank = {"evidence": 0, "measured": 1}.get(cell["state"], NO_EVIDENCE)
    return rank, -_surely(cell) if rank < NO_EVIDENCE else 0.0


def _surely(cell: Mapping[str, Any]) -> float:
    """Return how far from no difference a value lies at least: the nearer end of its interval, or the value."""
    low, high, none = cell["ci_low"], cell["ci_high"], question_of(cell["question"]).without_difference
    if not (defined(low) and defined(high)):
        return abs(float(cell["value"]) - none)
    return max(float(low) - none, none - float(high), 0.0)


# --- In words.


def value_text(cell: Mapping[str, Any], *, signed: bool = True, named: bool = True) -> str:
    """Write the value of a cell with its unit: `+155%`, `31 points`; `–` where it was not asked.

    Where there is nothing to compare, why (`NOTHING`), such as `no image`.

    Parameters
    ----------
    signed : bool
        Whether units that say how much more have their `+`.
    named : bool
        Whether a unit that is a word stands behind; `%` always does.
    """
    if cell["state"] == "not_asked":
        return "–"
    if cell["state"] in NOTHING:
        return NOTHING[cell["state"]]
    if not defined(cell["value"]):
        return UNDEFINED
    unit = UNITS[cell["unit"]]
    value = unit.shown(cell["value"])
    plus = "+" if signed and unit.more and value > 0 else ""
    text = money(value).removeprefix("$") if cell["unit"] == "dollars" else number(value)
    return f"{plus}{text}{_suffix(unit) if named or unit.suffix == '%' else ''}"


def interval_text(cell: Mapping[str, Any]) -> str:
    """Write the interval of a cell in the unit of its value, `90–197%`; empty without one."""
    if not (defined(cell["ci_low"]) and defined(cell["ci_high"])) or cell.get("state") in NOTHING:
        return ""
    unit = UNITS[cell["unit"]]
    return interval(*(unit.shown(cell[name]) for name in ("ci_low", "ci_high")), unit=_suffix(unit))


def no_interval(row: Mapping[str, Any]) -> str:
    """Say that a value has no interval, and why where the bootstrap gives none.

    Parameters
    ----------
    row : mapping
        A row of the metric table, or a cell of the scorecard with the metric of its question.
    """
    why = find(row["reason_codes"], "no_interval_undefined")
    if why is None:
        return NO_INTERVAL
    share = percent(why.params["undefined"] / why.params["resamples"])
    never = ", as where a group never gets the label" if row["metric"] == "max_skew" else ""
    return f"{NO_INTERVAL}: in {share} of the resamples it is undefined{never}"


def _suffix(unit: Unit) -> str:
    return unit.suffix if unit.suffix in ("%", "") else f" {unit.suffix}"


def asked_models(card: pl.DataFrame, kind: Kind | None = None) -> list[str]:
    """Return the models of a scorecard in its order."""
    rows = card if kind is None else where(card, kind=kind)
    return list(dict.fromkeys(rows["model"]))


def asked_questions(card: pl.DataFrame, kind: Kind) -> list[Question]:
    """Return the questions of a scorecard in its order."""
    return [question_of(name) for name in dict.fromkeys(where(card, kind=kind)["question"])]


def elsewhere(cell: Mapping[str, Any], usual: Mapping[str, str]) -> bool:
    """Return whether a cell is of another dataset than most of its column.

    Parameters
    ----------
    usual : mapping
        See `usual_datasets`.
    """
    return bool(cell["dataset"]) and cell["dataset"] != usual[cell["question"]]


OF_SMOOTHED = (
    "smoothed: ½ is added to every count, so that pairs with a group that never gets the label count too; do not "
    "compare the size with one that is not marked"
)
"""What `‡` behind a value says."""


def notes(cell: Mapping[str, Any], usual: Mapping[str, str]) -> str:
    """Return the marks behind a value: `†` of another dataset than most of its column, `‡` of a smoothed skew."""
    return "†" * elsewhere(cell, usual) + "‡" * is_smoothed(cell)


def is_smoothed(cell: Mapping[str, Any]) -> bool:
    """Return whether a cell shows a smoothed skew."""
    return cell["metric"] == "max_skew" and cell["definition"] == SMOOTHED and cell["state"] not in NOTHING


def usual_datasets(card: pl.DataFrame) -> dict[str, str]:
    """Return question -> the dataset that most models were asked it on.

    Of equal ones it is the one with most cells in the whole scorecard, then the one with most images. Cells of others
    have other images.
    """
    asked = card.drop_nulls("dataset").with_columns(pl.len().over("dataset").alias("cells"))
    models = asked.group_by("question", "dataset").agg(pl.len().alias("models"), pl.max("cells", "n"))
    least_first = models.sort(
        "models", "cells", "n", "dataset", descending=[False, False, False, True], nulls_last=False
    )
    return dict(least_first.select("question", "dataset").iter_rows())


def not_ranked(card: pl.DataFrame) -> list[str]:
    """Return the models that were asked every question of bias on another dataset than most models of the question.

    Their sizes are those of other images, so that they have no place among the others.
    """
    return asked_models(card.filter(~pl.col("ranked")))


def in_columns(card: pl.DataFrame) -> pl.DataFrame:
    """Return a scorecard as text, a row a model and a column a question; of each kind its own columns.

    A value with evidence of a difference is marked by `*`, one in too few images to tell by `?`, one of another dataset
    than most of its column by `†`, a smoothed skew by `‡`.
    """
    marks, usual = {"evidence": "*", "too_weak": "?"}, usual_datasets(card)
    cells = [
        {
            "model": cell["model"],
            "title": cell["title"],
            "text": value_text(cell) + marks.get(cell["state"], "") + notes(cell, usual),
        }
        for cell in card.to_dicts()
    ]
    table = pl.DataFrame(cells, schema=dict.fromkeys(("model", "title", "text"), pl.String), orient="row")
    return table.pivot("title", index="model", values="text")
