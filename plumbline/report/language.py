"""Generative models: what was asked of them, and the findings about what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from plumbline.report.data import short_digest
from plumbline.report.evidence import evidence, finding_of, titled
from plumbline.report.finding import DIFFERENCES, Finding
from plumbline.report.inputs import LvlmSummary, ReportInputs
from plumbline.report.language_words import (
    HEADLINE_PROMPT,
    STAND_IN,
    STATISTICS,
    left_out,
    of_headline_scorer,
    people,
    plain,
    prompt_title,
)
from plumbline.report.listings import LONGEST_LISTING, Listing
from plumbline.report.numbers import confidence, count, interval, money, number, p_value, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, where
from plumbline.report.vocabulary import attribute_title, sentence_start


def lvlm_listing(inputs: ReportInputs) -> Listing:
    """List the generative models: what was asked where, how tokens were drawn, who scored, and any judge."""
    judged = any(one.judge for one in inputs.lvlms)
    rows = [
        (
            f"{one.id} ({'; '.join(_kinds(one))})" if _kinds(one) else one.id,
            one.address,
            short_digest(one.version),
            f"{count(one.rows)}{_without_answer(one)}",
            one.decoding,
            _scorers(one),
            f"{one.checks['passed'].sum()} of {one.checks.height}" if one.checks.height else "none run",
            *([one.judge or "none"] if judged else []),
        )
        for one in inputs.lvlms
    ]
    heads = ("Generative model", "From", "Version", "Answers", "How tokens are drawn", "Scorers", "Checks passed")
    return Listing((*heads, "Judge") if judged else heads, rows, frozenset({3, 6}))


def _without_answer(one: LvlmSummary) -> str:
    return f"; to {count(one.unanswered)} more questions there is none" if one.unanswered else ""


def _kinds(one: LvlmSummary) -> list[str]:
    built_on_it = [f"base language model of {', '.join(one.base_llm_of)}"] if one.base_llm_of else []
    return ["planted"] * one.planted + built_on_it


def _scorers(one: LvlmSummary) -> str:
    names = [f"{name} ({STAND_IN})" if stand_in else name for name, stand_in in one.scorers.items()]
    return ", ".join(names) or "none"


def check_listing(inputs: ReportInputs) -> Listing:
    """List what was checked of the answers, failures first."""
    rows = [
        (one.id, row["check"], "passed" if row["passed"] else "failed", row["observed"] or "–", row["expected"] or "–")
        for one in inputs.lvlms
        for row in one.checks.to_dicts()
    ]
    rows.sort(key=lambda row: row[2])
    heads = ("Generative model", "Check", "Result", "Observed", "Expected")
    note = left_out(len(rows) - LONGEST_LISTING, "rows", "the quality pages of the audit")
    return Listing(heads, rows[:LONGEST_LISTING], note=note)


# --- Headline findings about generated texts: who gets the most toxic text, lower ratings, fewer words of
# competence.

_SUBSET = ("model", "dataset", "attribute")


def with_evidence(found: list[Finding]) -> list[Finding]:
    """Return the findings of the topics in which at least one model has evidence; the others only count the models."""
    sure = {finding.topic for finding in found if finding.tone in DIFFERENCES}
    return [finding for finding in found if finding.topic in sure]


def max_score_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return which groups get the most toxic text of a scene more often than chance, of each model and subset.

    A group that is the worst off of one model with evidence is told of every model, so that a reader can count them.
    """
    rows = where(_answered(plain(table)), metric="max_score_share", event="toxicity")
    rows = of_headline_scorer(rows, reading).filter(pl.col("value").is_finite())
    rows = rows.with_columns(groups=pl.col("group").n_unique().over("dataset", "attribute"))
    findings: list[Finding] = []
    for subset in _each(rows, "dataset", "attribute"):
        worst = [_strongest(_above_chance(of_model), reading) for of_model in _each(subset, "model")]
        for group in sorted({row["group"] for row in worst if _is_worst(row, reading)}):
            of_group = where(subset, group=group)
            findings += [
                _max_score_finding(_strongest(of_model, reading), reading) for of_model in _each(of_group, "model")
            ]
    return findings


def _above_chance(own: pl.DataFrame) -> pl.DataFrame:
    above = own.filter(pl.col("value") * pl.col("groups") > 1)
    return above if above.height else own


def _is_worst(row: Row, reading: Reading) -> bool:
    return evidence(row, reading) and row["value"] * row["groups"] > 1


def _max_score_finding(row: Row, reading: Reading) -> Finding:
    tone = "bias" if _is_worst(row, reading) else "none"
    are = "most toxic texts are" if tone in DIFFERENCES else "a larger share of the most toxic texts"
    short = f"{are} about {people(row['group'])}"
    return _finding(row, reading, tone, "toxicity", short, row["group"], share=True)


class _Gap(NamedTuple):
    """A tested gap between groups."""

    kind: str
    tone: str
    metric: str
    of_groups: str
    short: str
    share: bool = False


_GAPS = (
    _Gap("rating", "bias", "rating_gap", "rating", "gap of ratings ({prompt})"),
    _Gap("rating", "bias", "salary_gap", "salary", "gap of offered salaries"),
    _Gap("competence", "bias", "competence_gap", "competence_words", "gap of words of competence", share=True),
    _Gap("refusal", "difference", "refusal_rate_gap", "refusal_rate", "gap of refusals", share=True),
    _Gap("refusal", "difference", "response_length_ratio", "response_length", "unequal lengths"),
)


def gap_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the gaps between groups of ratings, salaries, words of competence, refusals and lengths."""
    rows = where(plain(table), occupation=None)
    answered = _answered(rows)
    gaps = with_evidence([finding for gap in _GAPS for finding in _of_gap(answered, gap, reading)])
    return [*gaps, *_mostly_refused(rows, reading)]


MOSTLY = 0.5
"""Share of refused answers above which it is told: what the answers are compared by is largely refusals then."""


def _mostly_refused(rows: pl.DataFrame, reading: Reading) -> Iterator[Finding]:
    """Yield, of each model and dataset, to which question it refused most answers, if to any."""
    rates = where(rows, metric="refusal_rate", definition="paper", group=None)
    rates = rates.filter(pl.col("value").is_finite(), pl.col("value") > MOSTLY)
    for of_dataset in _each(rates, "model", "dataset"):
        each = of_dataset.sort("value", "prompt", "attribute", descending=[True, False, False]).unique(
            "prompt", keep="first", maintain_order=True
        )
        row, others = each.row(0, named=True), each.height - 1
        more = f", and most of those to {count(others)} other{'s' * (others > 1)}" if others else ""
        share = "every answer" if row["value"] == 1 else f"{percent(row['value'])} of the answers"
        # No interval is told, so that no headline is picked from these rows.
        finding = _finding(
            row, replace(reading, picked=None), "undefined", "refusal", "refused answers", "rate", share=True
        )
        says = f"On {row['dataset']}, {row['model']} refused {share} to “{prompt_title(row['prompt'])}”{more}: "
        what = "numbers of these answers are of refusals above all."
        yield replace(finding, short="Most answers were refused", sentence=f"{says}{what}")


def _answered(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows about answers, those left out where every answer to a question was refused."""
    silent = where(rows, metric="refusal_rate", definition="paper", group=None).filter(pl.col("value") == 1)
    same = ["model", "dataset", "attribute", "prompt"]
    return rows.join(silent, on=same, how="anti", nulls_equal=True, maintain_order="left")


def _of_gap(rows: pl.DataFrame, gap: _Gap, reading: Reading) -> Iterator[Finding]:
    gaps = where(rows, metric=gap.metric, definition="paper").filter(pl.col("value").is_finite())
    # Each rating asks another question; of the other metrics the prompt tells in which answers it is largest.
    keys = (*_SUBSET, "prompt") if gap.kind == "rating" else _SUBSET
    for subset in _each(gaps, *keys):
        row = _strongest(subset, reading)
        same = {name: row[name] for name in (*_SUBSET, "prompt")}
        groups = where(rows, metric=gap.of_groups, definition="paper", **same)
        if groups.filter(pl.col("value").is_finite()).drop_nulls("group").height < 2:
            continue
        prompt = prompt_title(row["prompt"]) if gap.kind == "rating" else ""
        short = gap.short.format(prompt=prompt) + f" between groups of {attribute_title(row['attribute'])}"
        tone = gap.tone if evidence(row, reading) else "none"
        finding = _finding(row, reading, tone, gap.kind, short, gap.metric, prompt, share=gap.share)
        yield replace(finding, value_text=money(row["value"])) if gap.metric == "salary_gap" else finding


def base_llm_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return where a model speaks more, or less, differently of people than the base language model."""
    rows = where(plain(table), metric="max_toxicity_minus_base_llm", statistic=tuple(STATISTICS))
    rows = of_headline_scorer(rows, reading).filter(pl.col("value").is_finite())
    findings = []
    for subset in _each(rows, *_SUBSET):
        row = _strongest(subset, reading)
        more = "above" if row["value"] > 0 else "below"
        tone = "difference" if evidence(row, reading) else "none"
        findings.append(_finding(row, reading, tone, "base_llm", f"MaxToxicity {more} the base language model"))
    return with_evidence(findings)


def word_findings(words: pl.DataFrame | None, reading: Reading) -> list[Finding]:
    """Return the word that each model says most above the others of a group, stereotypes before other words.

    Parameters
    ----------
    words : DataFrame or None
        The table `word_associations`, with `model`.
    """
    if words is None or words.is_empty():
        return []
    sure = words.filter(pl.col("word").is_not_null(), pl.col("q") < reading.significance)
    return [_word(subset, words, reading) for subset in _each(sure, *_SUBSET)]


def _word(own: pl.DataFrame, words: pl.DataFrame, reading: Reading) -> Finding:
    judged = own.filter(pl.col("stereotype").fill_null(False))
    chosen = judged if judged.height else own
    row = chosen.sort(["ci_low", "group", "word"], descending=[True, False, False], nulls_last=True).row(0, named=True)
    who = people(row["group"])
    named = "a word that the judge names a stereotype of them" if judged.height else "the word most their own"
    ends = interval(row["ci_low"], row["ci_high"])
    sentence = (
        f"On {row['dataset']}, {row['model']} says “{row['word']}” of {who}, {named}: {count(row['count'])} times in "
        f"{count(row['n'])} words, against {count(row['count_others'])} times in {count(row['n_others'])} words about "
        f"others{_mostly_of(row, words)} (log₂ ratio {number(row['association'])}, "
        f"{confidence(reading.confidence)} CI {ends}; {p_value(row['q'], 'q')})."
    )
    tone, short = "bias" if judged.height else "difference", f"“{row['word']}” is said of {who}"
    if row["reason"]:
        sentence += f" {sentence_start(row['reason'])}."
    finding = _finding(row | {"value": row["association"]}, reading, tone, "words", short, row["model"])
    return replace(finding, sentence=sentence)


def _mostly_of(row: Row, words: pl.DataFrame) -> str:
    """Say of which other group a word is said at least half of the times that it is not of this one."""
    same = where(words, **{name: row[name] for name in (*_SUBSET, "word")}).filter(pl.col("group") != row["group"])
    most = same.filter(2 * pl.col("count") >= max(1, row["count_others"])).sort(
        "count", "group", descending=[True, False]
    )
    if most.is_empty():
        return ""
    other, times = most["group"][0], most["count"][0]
    return f", {'all' if times == row['count_others'] else count(times)} of these about {people(other)}"


def check_findings(models: Sequence[LvlmSummary]) -> list[Finding]:
    """Return which checks of the answers failed, one finding a model."""
    findings = []
    for one in models:
        failed = one.checks.filter(~pl.col("passed"))["check"].to_list()
        if failed:
            of = f"{len(failed)} of {one.checks.height}"
            finding = Finding(
                tone="refused",
                topic=("answers", one.id),
                model=one.id,
                dataset="–",
                short="Checks of answers failed",
                sentence=f"{one.id}: {of} checks of its answers failed: {', '.join(failed)}.",
                value=float(len(failed)),
                value_text=str(len(failed)),
                interval_text="–",
                strength=float(len(failed)),
            )
            findings.append(finding)
    return findings


def _each(rows: pl.DataFrame, *keys: str) -> Iterator[pl.DataFrame]:
    ordered = rows.drop_nulls(list(keys)).sort(*keys, maintain_order=True)
    yield from (subset for _, subset in ordered.group_by(*keys, maintain_order=True))


def _strongest(own: pl.DataFrame, reading: Reading) -> Row:
    """Return the row that is surest and largest: evidence first, then the end of its interval that is nearest 0."""
    rows = own.to_dicts()

    def strength(row: Row) -> tuple[bool, float, bool, str]:
        low, high = row["ci_low"], row["ci_high"]
        nearest = row["value"] if not defined(low) else max(low, -high) if defined(high) else low
        return evidence(row, reading), nearest, row["prompt"] == HEADLINE_PROMPT, row["group"] or ""

    return max(rows, key=strength)


def _finding(row: Row, reading: Reading, tone: str, kind: str, short: str, *more: str, share: bool = False) -> Finding:
    title = titled(tone, short)
    topic = (kind, row["dataset"], row["attribute"], *more)
    return finding_of(row, reading, tone=tone, topic=topic, short=title, share=share)
