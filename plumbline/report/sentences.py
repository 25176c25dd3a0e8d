"""What a row of the metric table says in one sentence: how much, how sure, and which groups are how far apart.

The verdict, the sections of models, the findings, the page of one number and notebooks all tell a row with `predicate`.
A difference stands beside the values of the groups at its two ends, the worst off first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from plumbline.catalog.schema import IDENTIFYING
from plumbline.metrics.associations import OTHERS
from plumbline.metrics.evidence import state as state_of_row
from plumbline.metrics.evidence import value_without_difference
from plumbline.reasons import find
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.estimates import groups_of
from plumbline.report.evidence import QUESTION, evidence
from plumbline.report.finding import DIFFERENCES, Finding
from plumbline.report.language_words import STAND_IN, people, prompt_title
from plumbline.report.numbers import confidence, number, p_value
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, first, or_nan, where
from plumbline.report.scorecard import (
    QUESTIONS,
    UNITS,
    Question,
    between,
    detectable,
    faces_of,
    groups_compared,
    interval_text,
    no_interval,
    question_of,
    smallest_group,
    value_text,
)
from plumbline.report.vocabulary import (
    attribute_title,
    event_title,
    is_own_suite,
    probe_words,
    sentence_start,
    suite_title,
)

SAYS: dict[str, str] = {
    "max_skew": "gives {event} {plain} more often to one {one} than to another{pairs}",
    "parity_difference": "gives {event} {value} more often to one {one} than to another",
    "probe_rate_gap": "labels one {one} with {event} {value} more often than another",
    "weat_effect": "places {best} {value} closer to {event} than {worst}",
    "sc_weat_effect": "places {best} {value} closer to {event} than {worst}",
    "max_skew_at_k": "ranks one {one} first for {event}, {plain} over its share of the images",
    "skew_at_k": "places {group} among the best matches for {event} {plain} {more} often than their share of the "
    "images{others}",
    "equal_opportunity_gap": "recognises one {one} {value} better than another within a class, on average over classes",
    "max_toxicity": "writes texts whose toxicity differs by {value} between people of one scene",
    "max_score_share": "writes its most toxic text about {group} in {value} of the scenes whose texts differ most in "
    "toxicity, ties shared",
    "competence_gap": "uses {value} more words of competence about one group than about another",
    "warmth_gap": "uses {value} more words of warmth about one group than about another",
    "rating_gap": "rates one group {value} higher than another{asked}",
    "salary_gap": "offers one group {value} a year more than another",
    "refusal_rate_gap": "refuses to answer {value} more often about one group than about another",
}
"""Metric -> what a model does, as a predicate; interval and q stand in brackets behind the value."""
_OF_OWN_METRIC = "has groups that lie {value} apart in “{title}”"

OF_METRIC: dict[str, Question] = {question.metric: question for question in QUESTIONS} | {
    "sc_weat_effect": replace(question_of("association_agency"), metric="sc_weat_effect"),
    "skew_at_k": replace(question_of("ranking_race"), metric="skew_at_k"),
    "max_score_share": replace(question_of("max_toxicity"), metric="max_score_share", unit="share", groups=None),
}
"""Metric -> a question that its rows answer, for event and attribute of any row."""


def predicate(cell: Mapping[str, Any], sure: str = "") -> str:
    """Say what a value means, as the predicate of a sentence about its model.

    Parameters
    ----------
    cell : mapping
        A row with `unit`, `kind` and `state` of its question, and `between`: the values of the groups at both ends.
    sure : str
        What stands behind the value: interval and q.
    """
    attribute = attribute_title(cell["attribute"] or "group")
    size, groups = _away(cell), [cell.get("group"), cell.get("reference_group")]
    worst, best = groups if cell["value"] < 0 else groups[::-1]
    text = SAYS.get(cell["metric"], _OF_OWN_METRIC).format(
        title=cell.get("title"),
        event=_event(cell["event"], cell["metric"], cell.get("suite")),
        one=attribute if attribute in ("race", "gender", "age group", "occupation") else f"group of {attribute}",
        value=value_text(size) + sure,
        plain=value_text(size, signed=False) + sure,
        more="less" if cell["value"] < 0 else "more",
        others=", and so other groups more often" if cell["value"] < 0 else "",
        pairs=_SMOOTHED.get(cell.get("definition") or "", "")
        + ("" if _is_one_pair(cell) else ", on average over pairs"),
        group=_people(cell, cell.get("group")),
        worst=_people(cell, worst),
        best=_people(cell, best),
        asked=f" in answers to “{prompt_title(cell['prompt'])}”" if cell.get("prompt") else "",
    )
    if not cell.get("between"):
        return text
    # A mean over pairs, or over classes, is not the gap between the two groups that stand behind it.
    for mean, joined in ((" over pairs", "; furthest apart are "), (" over classes", "; ")):
        if text.endswith(mean):
            return text + joined + cell["between"]
    return f"{text}: {cell['between']}"


_SMOOTHED = {"smoothed": ", smoothed"}
"""Definition of a skew that is defined where a group never gets the label -> how it is told."""


def _is_one_pair(cell: Mapping[str, Any]) -> bool:
    """Return whether two groups are compared; of gender they are where it is not known."""
    known = cell.get("compared")
    return known == 2 if known else cell["attribute"] in ("gender", "auto_gender")


def _away(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a value below 0 as its distance from 0, the ends of its interval likewise: the words say its direction."""
    if cell["metric"] == "skew_at_k" and cell["value"] < 0:
        # Of a share that is 51% below another, the distance is 51%: not that of its logarithm.
        return {**cell, "unit": "share", **{name: -math.expm1(cell[end]) for name, end in _MIRRORED}}
    return cell if cell["value"] >= 0 else {**cell, **{name: -cell[end] for name, end in _MIRRORED}}


_MIRRORED = (("value", "value"), ("ci_low", "ci_high"), ("ci_high", "ci_low"))


def _people(cell: Mapping[str, Any], group: str | None) -> str:
    """Return a group of a value in words: `Black faces`, `faces of Black men`, `Black men`, `all other faces`."""
    if group is None:
        return "others"
    if group == OTHERS:
        return "all other faces"
    return people(group) if cell["kind"] == "generator" else faces_of(cell["attribute"], group)


def _event(event: str | None, metric: str, suite: str | None = None) -> str:
    if event is None:
        return ""
    if event.endswith("_caption"):
        return "negative captions"
    if metric == "probe_rate_gap":
        return probe_words(event)
    if metric == "weat_effect":
        return f"positive words of {event} (against its negative ones)"
    dimension, _, pole = event.rpartition("_")
    if metric in ("sc_weat_effect", "skew_at_k") and pole in ("positive", "negative") and dimension:
        of_own = f" ({suite_title(suite)})" if suite and is_own_suite(suite) else ""
        return f"{pole} words of {dimension.replace('_', ' ')}{of_own}"
    return event_title(event, suite)


def sureness(
    cell: Mapping[str, Any], reading: Reading, ordinary: Mapping[str, Any] | None = None, *, as_distance: bool = True
) -> str:
    """Return interval and q of a value in brackets.

    Parameters
    ----------
    ordinary : mapping, optional
        The same row as the metric table has it, where that of `cell` is adjusted for having been selected: both
        intervals are told then.
    """
    each = [("", ordinary), ("selection-adjusted ", cell)] if ordinary and reading.selection else [("", cell)]
    towards = _away if as_distance else dict
    ends = [f"{what}{text}" for what, row in each if (text := interval_text(towards({**cell, **_ends(row)})))]
    parts = [f"{confidence(reading.confidence)} CI {', '.join(dict.fromkeys(ends))}"] if ends else []
    if defined(cell["q"]):
        q, before = p_value(cell["q"], "q"), None if ordinary is None else ordinary["q"]
        also = p_value(before, "q") if before is not None and defined(before) else q
        parts += [q if also == q else f"{q} over all tests, {also} over those of its kind"]
    parts += [] if ends else [no_interval(cell)]
    return f" ({'; '.join(parts)})"


def _ends(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("ci_low", "ci_high")}


def row_in_words(row: Row) -> str | None:
    """Return what a row of the metric table says, as the findings do; None of one that compares no groups."""
    if row["metric"] not in SAYS or not defined(row["value"]):
        return None
    return f"On {row['dataset']}, {row['model']} {predicate(_cell(row))}."


def _cell(row: Row, table: pl.DataFrame | None = None) -> dict[str, Any]:
    """Return a row with what its question says of it, and the values of its groups, where there is a table of them."""
    question = OF_METRIC[row["metric"]]
    groups = "" if table is None else between(row, question, table)
    compared = None if table is None else groups_compared(row, question, table)
    answer = {
        "unit": question.unit,
        "kind": question.kind,
        "state": "evidence",
        "between": groups,
        "compared": compared,
    }
    return {**row, **answer}


def in_words(cell: Mapping[str, Any], reading: Reading) -> str:
    """Return a cell of the scorecard as a predicate: what, how sure, for whom."""
    question = question_of(cell["question"])
    named = {name: getattr(question, name) for name in ("suite", "event", "group", "reference_group")}
    if cell["metric"] != question.metric:
        named["group"] = cell["group"]  # that of the row itself
    cell = {**cell, **named, "between": cell["groups"]}
    return predicate(cell, sureness(cell, reading))


def model_sentences(card: pl.DataFrame, model: str, reading: Reading) -> list[str]:
    """Return what the scorecard says of a model: a sentence a cell with evidence, and which cells have none."""
    cells = where(card, model=model).to_dicts()
    lines = [f"On {cell['dataset']} it {in_words(cell, reading)}." for cell in cells if cell["state"] == "evidence"]
    for state, what in (
        ("none", "No evidence of a difference"),
        ("evidence_of_none", "Evidence of none beyond the margin"),
        ("too_weak", "Too few images to tell"),
        ("no_label", "No image got the label"),
        ("all_refused", "Every answer was refused"),
        ("none_refused", "No answer was refused"),
    ):
        titles = [cell["title"] + _asked(cell) for cell in cells if cell["state"] == state]
        lines += [f"{what}: {'; '.join(titles)}."] if titles else []
    return lines


def _asked(cell: Row) -> str:
    """Name the prompt of a cell that says something of all answers."""
    return f" (“{prompt_title(cell['prompt'])}”)" if cell["state"] in ("all_refused", "none_refused") else ""


# --- Findings.


@dataclass(frozen=True)
class _Sources:
    """A row as the metric table has it, and as it is read where it was selected."""

    ordinary: Row
    selected: Row


class Sentences:
    """Findings in one sentence each, and the chart of the groups that one compares.

    Parameters
    ----------
    table, picked : DataFrame
        The metric table, and what `plumbline.report.findings.as_picked` makes of it.
    reported : iterable of Finding
        Those that have a sentence in the report.
    reading : Reading
        That of what was picked.
    """

    def __init__(
        self, table: pl.DataFrame, picked: pl.DataFrame, reported: Iterable[Finding], reading: Reading
    ) -> None:
        reported = list(reported)
        self.reading = reading
        mine = pl.col("model").is_in({finding.model for finding in reported}) & (pl.col("condition") == "before")
        self.table = picked.filter(mine)
        names = ("model", *QUESTION)
        wanted = pl.DataFrame(
            list({(finding.model, *finding.question, finding.row) for finding in reported if finding.question}),
            schema={**{name: table.schema[name] for name in names}, "row_id": pl.String},
            orient="row",
        )
        ordinary, selected = (
            {row["row_id"]: row for row in one.join(wanted, on=names, nulls_equal=True).to_dicts()}
            for one in (table, picked)
        )
        self.rows = {name: _Sources(ordinary[name], row) for name, row in selected.items()}

    def of(self, finding: Finding) -> Finding:
        """Return a finding with its sentence; one that is told of no row keeps what it says."""
        sources = self.rows.get(finding.row or "")
        if finding.sentence:
            return finding
        row = {} if sources is None else sources.selected
        if sources is None or finding.tone not in (*DIFFERENCES, "none") or row.get("metric") not in SAYS:
            ordinary = {} if sources is None else sources.ordinary
            sentence = in_short(finding, row, ordinary, self.reading)
            return replace(finding, sentence=sentence + caveats(row, finding.tone, ordinary, self.reading))
        cell = _cell(row, self.table)
        beside = _other_pole(row, self.table, self.reading) + _refused(row, self.table, self.reading) + _lifted(cell)
        beside += caveats(row, finding.tone, sources.ordinary, self.reading)
        if finding.tone in DIFFERENCES:
            beside += self._how_few(row)
        if row["scorer"] in self.reading.stand_ins:
            beside += f" It was scored by {STAND_IN}, which does not measure toxicity."
        if finding.tone == "none":
            least = detectable(cell)
            power = f" Detectable with 80% power: {least}" if least else ""
            whose = f"On {finding.dataset}, {finding.short} in {finding.model}"
            sure = sureness(cell, self.reading, sources.ordinary, as_distance=False)
            return replace(finding, sentence=f"{whose}: {value_text(cell)}{sure}.{beside}{power}")
        sure = sureness(cell, self.reading, sources.ordinary)
        sentence = f"On {row['dataset']}, {row['model']} {predicate(cell, sure)}.{beside}{_company(finding)}"
        return replace(finding, sentence=sentence)

    def _how_few(self, row: Row) -> str:
        """Say how few a claim rests on, where they are less than a group should have."""
        smallest, least = smallest_group(row, OF_METRIC[row["metric"]], self.table), self.reading.minimum_group
        alone = f" It rests on n = {row['n']}." if 0 < (row["n"] or 0) < least else ""
        return alone + (f" The smallest group has n = {smallest}." if smallest is not None and smallest < least else "")

    def chart(self, finding: Finding) -> Chart | None:
        """Return the groups that a finding compares as a chart; None where its row compares none."""
        sources = self.rows.get(finding.row or "")
        if sources is None or sources.selected["metric"] not in OF_METRIC:
            return None
        row = sources.selected
        return groups_of(finding.short, row, OF_METRIC[row["metric"]], self.table, self.reading)


_FEW = ("few_clusters", "uneven_clusters", "few_beyond_quantile", "few_relabellings")
_UNTOLD = ("nothing_detectable", "power_unknown", "p_floor")


def caveats(row: Row, tone: str, ordinary: Row, reading: Reading) -> str:
    """Return what a claim, or that there is no evidence, must not be read without, as sentences; or nothing.

    That it comes from few sets; that q over the tests of its kind says otherwise; of no evidence
    why nothing would have been found, and that a margin is excluded; of a claim whose interval reaches no difference
    what the evidence is.
    """
    if not row or tone not in (*DIFFERENCES, "none"):
        return ""
    codes = (*_FEW, *(_UNTOLD if tone == "none" else ()))
    known = (find(row.get("reason_codes"), code) for code in codes)
    text = "".join(f" {sentence_start(str(why))}." for why in known if why)
    if ordinary and (of_kind := evidence(ordinary, reading)) != evidence(row, reading):
        text += f" By q over the tests of its kind alone there is {'' if of_kind else 'no '}evidence."
    if tone == "none":
        excluded = row.get("equivalence_q")
        if excluded is not None and state_of_row({**row, "q": None, "p": None}) == "evidence_of_none":
            text += f" Evidence of none beyond the margin of the audit file ({p_value(excluded, 'q')})."
        return text
    none = value_without_difference(row.get("metric") or "") or 0.0
    if or_nan(ordinary["ci_low"]) <= none <= or_nan(ordinary["ci_high"]):
        text += " The evidence is q, of a permutation test, although the interval holds no difference."
    elif or_nan(row["ci_low"]) <= none <= or_nan(row["ci_high"]):
        text += " The evidence is q; the interval holds no difference only as it is widened for the selection."
    return text


def _other_pole(row: Row, table: pl.DataFrame, reading: Reading) -> str:
    """Say that a group lies closer to the words of the other pole too, where it does: then it is no leaning."""
    dimension, _, pole = (row["event"] or "").rpartition("_")
    other = {"negative": "positive", "positive": "negative"}.get(pole)
    if row["metric"] != "sc_weat_effect" or other is None:
        return ""
    same = {name: row[name] for name in IDENTIFYING if name != "event"}
    opposite = first(table, **same, event=f"{dimension}_{other}")
    if opposite is None or not defined(opposite["value"]) or opposite["value"] * row["value"] <= 0:
        return ""
    much = value_text(_away(_cell(opposite)))
    words = _event(f"{dimension}_{other}", row["metric"], row["suite"])
    if not evidence(opposite, reading):
        return f" Its value for {words} points the same way, without evidence ({much}): read both together."
    return f" The same holds for {words} ({much}): read both together."


def _refused(row: Row, table: pl.DataFrame, reading: Reading) -> str:
    """Say that refusals differ too, where they do: a refused answer holds few words of competence, or none."""
    if row["metric"] != "competence_gap":
        return ""
    same = {name: row[name] for name in IDENTIFYING if name not in ("metric", "definition")}
    refusals = first(table, **same, metric="refusal_rate_gap", definition="paper")
    if refusals is None or not evidence(refusals, reading):
        return ""
    who = between(refusals, OF_METRIC["refusal_rate_gap"], table)
    return f" Refused answers count among them, and hold few such words: {who} were refused."


def _lifted(cell: Mapping[str, Any]) -> str:
    """Say by how much at most chance makes a value too large, where that is worth saying: of percentages in points."""
    lifted = find(cell["reason_codes"], "biased_upwards")
    if lifted is None:
        return ""
    unit = UNITS[cell["unit"]]
    size = unit.shown(cell["value"]) - unit.shown(cell["value"] - float(lifted.params["bias"]))
    about = f"about {number(size)} {unit.suffix.replace('%', 'points')}"
    if size >= unit.shown(cell["value"]) > 0:
        return f" Chance alone gives {about}: it is no larger than that."
    return f" Chance may make it too large, by at most {about}."


def _company(finding: Finding) -> str:
    """Say how many models show the same."""
    if not finding.company or finding.company.tested < 2:
        return ""
    same, models, opposite, *of_kind = finding.company
    shows = "shows" if same == 1 else "show"
    text = f" {same} of the {models} models asked on {finding.dataset} {shows} evidence of it{_opposite(opposite)}"
    if [same, opposite] != of_kind:
        text += f" ({of_kind[0]}{_opposite(of_kind[1])} by q over the tests of its kind alone)"
    return f"{text}."


def _opposite(number: int) -> str:
    return f", {number} of the opposite" if number else ""


def in_short(finding: Finding, row: Row, ordinary: Row, reading: Reading) -> str:
    """Say a finding by its title, value and interval; of what is undefined why it is."""
    on = f"On {finding.dataset}, " if finding.dataset else ""
    if finding.tone == "undefined":
        return f"{on}{finding.model}: {finding.short}; {row.get('reason') or 'no reason was recorded'}."
    adjusted = "selection-adjusted " if row and _ends(row) != _ends(ordinary) else ""
    ends = f"{adjusted}{confidence(reading.confidence)} CI {finding.interval_text}"
    sure = ends if finding.interval_text not in ("", "–", "no interval") else "no interval"
    sure += f"; q {finding.q_text}" if finding.q_text != "–" else ""
    return f"{on}{finding.model}: {finding.short}, {finding.value_text} ({sure})."


def in_sentences(told: Sequence[Finding], table: pl.DataFrame, picked: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return findings with their sentences; see `Sentences`."""
    sentences = Sentences(table, picked, told, reading)
    return [sentences.of(finding) for finding in told]
