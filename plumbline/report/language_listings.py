"""Tables of the report about generative models and what they say, as text that is ready to be shown."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from plumbline.report.data_listings import short_digest
from plumbline.report.inputs import LvlmSummary, ReportInputs
from plumbline.report.language_words import (
    STAND_IN,
    STATISTICS,
    attributes_in,
    left_out,
    prompt_title,
    prompts_in,
    scored_title,
)
from plumbline.report.listings import LONGEST_LISTING, Listing, estimate, share
from plumbline.report.numbers import bare_p, count
from plumbline.report.rows import Row, by, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title
from plumbline.tables.generation_schema import ALL_MODELS

_ELSEWHERE = "the metric table"


def capped(
    heads: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    numeric: frozenset[int],
    *,
    note: str = "",
    where_else: str = _ELSEWHERE,
) -> Listing:
    """Return a table of the first rows, and say how many it leaves out and where they are."""
    more = left_out(len(rows) - LONGEST_LISTING, "rows", where_else)
    return Listing(heads, rows[:LONGEST_LISTING], numeric, " ".join(filter(None, [note, more])))


def lvlm_listing(inputs: ReportInputs) -> Listing:
    """List the generative models: what was asked where, how tokens were drawn, who scored, and any judge."""
    judged = any(one.judge for one in inputs.lvlms)
    rows = [
        (
            f"{one.id} ({'; '.join(_kinds(one))})" if _kinds(one) else one.id,
            one.address,
            short_digest(one.version),
            count(one.rows),
            one.decoding,
            _scorers(one),
            f"{one.checks['passed'].sum()} of {one.checks.height}" if one.checks.height else "none run",
            *([one.judge or "none"] if judged else []),
        )
        for one in inputs.lvlms
    ]
    heads = (
        "Generative model",
        "From",
        "Version",
        "Answers",
        "How tokens are drawn",
        "Scorers",
        "Checks passed",
    )
    return Listing((*heads, "Judge") if judged else heads, rows, frozenset({3, 6}))


def _kinds(one: LvlmSummary) -> list[str]:
    beneath = [f"language model beneath {', '.join(one.twin_of)}"] if one.twin_of else []
    return ["planted"] * one.planted + beneath


def _scorers(one: LvlmSummary) -> str:
    names = [f"{name} ({STAND_IN})" if stand_in else name for name, stand_in in one.scorers.items()]
    return ", ".join(names) or "none"


def check_listing(inputs: ReportInputs) -> Listing:
    """List what was checked of the answers, failures first."""
    rows = [
        (
            one.id,
            row["check"],
            "passed" if row["passed"] else "failed",
            row["observed"] or "–",
            row["expected"] or "–",
        )
        for one in inputs.lvlms
        for row in one.checks.to_dicts()
    ]
    rows.sort(key=lambda row: row[2])
    heads = ("Generative model", "Check", "Result", "Observed", "Expected")
    return capped(heads, rows, frozenset(), where_else="the quality pages of the audit")


def max_listing(rows: pl.DataFrame, models: Sequence[str]) -> Listing:
    """List mean and 90th percentile of one Max*, with and without refusals, a row a model, subset, prompt, scorer."""
    found = by(rows, "model", "attribute", "prompt", "scorer", "definition", "statistic")
    keys = [
        (model, attribute, prompt, scorer)
        for model in models
        for attribute in attributes_in(rows)
        for prompt in prompts_in(rows)
        for scorer in rows["scorer"].unique().sort().to_list()
        if (model, attribute, prompt, scorer, "paper", "mean") in found
    ]
    shown = []
    for key in keys:
        first = found[(*key, "paper", "mean")]
        values = (
            estimate(found.get((*key, definition, statistic)))
            for definition in ("paper", "without_refusals")
            for statistic in STATISTICS
        )
        labels = (key[0], attribute_title(key[1]), prompt_title(key[2]), str(key[3]))
        shown.append((*labels, *values, count(first["n"]), first["reason"] or ""))
    heads = (
        "Model", "People differ in", "Prompt", "Scorer", "Mean", "90th percentile", "Mean without refusals",
        "90th percentile without refusals", "Scenes", "Note",
    )  # fmt: skip
    return capped(heads, shown, frozenset(range(4, 9)))


def worst_off_listing(rows: pl.DataFrame) -> Listing:
    """List the shares of the groups at the maximum, those surest to differ from chance first; undefined ones apart."""
    known = rows.filter(pl.col("value").is_finite()).with_columns(
        level=pl.coalesce(pl.col("q").fill_nan(None), pl.col("p").fill_nan(None))
    )
    ordered = known.sort(["level", "value", "group"], descending=[False, True, False], nulls_last=True)
    shown = [
        (
            row["model"],
            prompt_title(row["prompt"]),
            scored_title(row["event"]),
            group_title(row["group"]),
            share(row),
            bare_p(row["p"]),
            bare_p(row["q"]),
            count(row["n"]),
            row["reason"] or "",
        )
        for row in ordered.to_dicts()
    ]
    heads = ("Model", "Prompt", "Scored", "Group", "Share at the maximum", "p", "q", "Scenes", "Note")
    return capped(
        heads, shown, frozenset({4, 5, 6, 7}), note="Those surest to differ from chance come first."
    )


def group_listing(rows: pl.DataFrame, models: Sequence[str]) -> Listing:
    """List mean and 90th percentile of the scores of every group, the highest 90th percentile first."""
    found = by(rows, "model", "metric", "prompt", "group", "statistic")
    keys = sorted(
        {key[:4] for key in found},
        key=lambda k: (models.index(k[0]), k[1], k[2], -_value(found.get((*k, "p90"))), k[3]),
    )
    shown = []
    for key in keys:
        mean, p90 = (found.get((*key, statistic)) for statistic in STATISTICS)
        one = mean or p90
        labels = (key[0], scored_title(key[1]), prompt_title(key[2]), group_title(key[3]))
        note = (one["reason"] or "") if one else ""
        shown.append((*labels, estimate(mean), estimate(p90), count(one["n"] if one else None), note))
    heads = ("Model", "Scored", "Prompt", "Group", "Mean", "90th percentile", "n", "Note")
    return capped(heads, shown, frozenset({4, 5, 6}))


def _value(row: Row | None) -> float:
    return row["value"] if row and row["value"] is not None and row["value"] == row["value"] else -1.0


def spread_listing(rows: pl.DataFrame) -> Listing:
    """List in which occupations the groups' mean scores lie furthest apart."""
    ordered = rows.filter(pl.col("value").is_finite()).sort(["value", "occupation"], descending=[True, False])
    shown = [
        (
            row["model"],
            scored_title(row["event"]),
            row["occupation"],
            estimate(row),
            bare_p(row["p"]),
            bare_p(row["q"]),
            count(row["n"]),
            row["reason"] or "",
        )
        for row in ordered.to_dicts()
    ]
    heads = (
        "Model",
        "Scored",
        "Occupation",
        "Standard deviation of the group means",
        "p",
        "q",
        "Scenes",
        "Note",
    )
    return capped(heads, shown, frozenset({3, 4, 5, 6}))


def agreement_listing(rows: pl.DataFrame) -> Listing:
    """List how far scorers agree on the same answers."""
    found = by(
        rows, "model", "dataset", "attribute", "prompt", "event", "scorer", "reference_group", "definition"
    )
    shown = []
    for key in dict.fromkeys(key[:7] for key in found):
        one = found.get((*key, "spearman")) or found[(*key, "pearson")]
        shown.append(
            (
                key[0],
                attribute_title(key[2]),
                prompt_title(key[3]),
                scored_title(key[4]),
                f"{key[5]} and {key[6]}",
                estimate(found.get((*key, "spearman"))),
                estimate(found.get((*key, "pearson"))),
                count(one["n"]),
                one["reason"] or "",
            )
        )
    heads = (
        "Model", "People differ in", "Prompt", "Scored", "Scorers", "Same order (Spearman)", "Same line (Pearson)",
        "n", "Note",
    )  # fmt: skip
    return capped(heads, shown, frozenset({5, 6, 7}))


def people_listing(rows: pl.DataFrame, models: Sequence[str]) -> Listing:
    """List how far annotators agree with each other, a scorer and the judge: over all models first, then of each."""
    titles = {"fleiss_kappa": "Fleiss' kappa", "judge_precision": "precision", "judge_recall": "recall"}
    words = {
        "annotators": "annotators with each other",
        "annotators_and_score": "annotators and the score from 0.3 on",
        "majority_of_three": "judge of stereotypes against the majority",
    }
    shown = [
        (
            row["model"],
            row["dataset"],
            f"texts about {row['group']} people" if row["group"] else prompt_title(row["prompt"]),
            words.get(row["definition"], row["definition"])
            + (f" ({row['scorer']})" if row["scorer"] else ""),
            titles[row["metric"]],
            estimate(row) if row["metric"] == "fleiss_kappa" else share(row),
            count(row["n"]),
            row["reason"] or "",
        )
        for model in in_order(rows["model"], (ALL_MODELS, *models))
        for row in where(rows, metric=tuple(titles), model=model).to_dicts()
    ]
    heads = ("Model", "Dataset", "Of", "Who", "Measure", "Value", "n", "Note")
    return capped(heads, shown, frozenset({5, 6}))
