"""The competence family: how many of a model's words about people of each group say that they are competent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import NO_INSTRUCTION, Row, metric_frame
from plumbline.language.answers import answer_row, values_by_question
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.language.family import STUDY, LanguageResult
from plumbline.language.group_values import FEWEST, GroupValues, Reason, by_groups, fewest_rows
from plumbline.language.lexicons import (
    competence_lexicon,
    lexicon_count,
    lexicon_share,
    read_dictionaries,
    released_count,
)
from plumbline.metrics.family import Family, Traits

KEYWORD_PROMPTS = (
    "characteristics",
    "personality",
    "keywords",
    "competency",
    "trustworthiness",
    "work_ethic",
)
"""Prompts that ask for five keywords; the paper counts competence words in the answers to the first."""

OCCUPATION_PROMPT = "characteristics"
"""The prompt whose answers are also told occupation by occupation."""

COMPETENCE = "competence_words"
GAPS = {
    COMPETENCE: "competence_gap",
    "incompetence_words": "incompetence_gap",
    "warmth_words": "warmth_gap",
    "coldness_words": "coldness_gap",
}
"""Metric -> that of the largest minus the smallest group mean."""
DICTIONARY_METRICS = ("incompetence_words", "warmth_words", "coldness_words")
NO_DICTIONARIES = "no dictionaries are configured"

_Columns = Mapping[tuple[str, str], pl.Expr]
"""(metric, definition) -> the number of each answer."""


def competence_result(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return how many words of competence, incompetence, warmth and coldness the answers about each group hold.

    Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", section 4.3
    and appendix E. The answers to prompts that ask for keywords, without any instruction.

    Returns
    -------
    LanguageResult
        `competence_words`: `paper`, the mean share of an answer's words that are among 861 words of competence, stop
        words left out; `count`, their mean number; `released`, the mean number of different ones, as the paper's code
        counts them. By group, with the gap between groups (`competence_gap`); and of the prompt `characteristics` by
        occupation too, where it has `settings.min_sets` sets (not `released`; the gap of the share only).
        `fewest_competence_words`: in which share of these occupations the group has the smallest share. The metrics of
        the dictionaries likewise, by group, with their gaps; one row that says so where no dictionaries are configured.
    """
    columns = competence_numbers(settings)
    named = {f"{metric} {definition}": expression for (metric, definition), expression in columns.items()}
    numbers = {name: each.cast(pl.Float64) for name, each in named.items()}
    rows: list[Row] = []
    datasets: set[str] = set()
    for values in values_by_question(cell, prompts=KEYWORD_PROMPTS, instruction=NO_INSTRUCTION, **numbers):
        datasets |= set(values["dataset"].cast(pl.String))
        for question in by_groups(cell, values, settings=settings):
            rows += _rows(question, columns)
    if settings.dictionaries is None:
        rows += _unconfigured(cell.model, sorted(datasets))
    return LanguageResult(metric_frame(rows))


def competence_numbers(settings: LanguageSettings) -> _Columns:
    """Return the number of each answer of which every metric of the family is the mean."""
    text, words = pl.col("text").fill_null(""), competence_lexicon()
    columns = {
        (COMPETENCE, "paper"): lexicon_share(text, words),
        (COMPETENCE, "count"): lexicon_count(text, words),
        (COMPETENCE, "released"): released_count(text, words),
    }
    if settings.dictionaries is not None:
        read = read_dictionaries(settings.dictionaries)
        for metric in DICTIONARY_METRICS:
            pole = getattr(read, metric.removesuffix("_words"))
            columns[metric, "paper"] = lexicon_share(text, pole, dictionary=True)
            columns[metric, "count"] = lexicon_count(text, pole, dictionary=True)
    return columns


def _rows(question: GroupValues, columns: _Columns) -> Iterator[Row]:
    for metric, definition in columns:
        values = _values(question, metric, definition)
        yield from _means(question, values, metric=metric, definition=definition)
        yield _gap(question, values, metric=GAPS[metric], definition=definition)
    if question.answers["prompt"][0] == OCCUPATION_PROMPT:
        yield from _rows_by_occupation(question)


def _rows_by_occupation(question: GroupValues) -> Iterator[Row]:
    shares = []
    for own in _occupations(question):
        share, count = (_values(own, COMPETENCE, definition) for definition in ("paper", "count"))
        found = list(_means(own, share, metric=COMPETENCE, definition="paper"))
        shares.append({str(row["group"]): row["value"] for row in found})
        yield from found
        yield from _means(own, count, metric=COMPETENCE, definition="count")
        yield _gap(own, share, metric=GAPS[COMPETENCE], definition="paper")
    yield from fewest_rows(question, shares)


def _occupations(question: GroupValues) -> Iterator[GroupValues]:
    """Yield the answers of each occupation with enough sets, by name."""
    sets = (
        question.answers.group_by("occupation")
        .agg(sets=pl.col("unit").n_unique())
        .filter(pl.col("occupation").is_not_null(), pl.col("sets") >= question.settings.min_sets)
        .sort("occupation")
    )
    for name in sets["occupation"].cast(pl.String):
        rows = (question.answers["occupation"] == name).fill_null(False).to_numpy()
        yield question.of(rows, occupation=name)


def _values(question: GroupValues, metric: str, definition: str) -> NDArray[np.float64]:
    return question.answers[f"{metric} {definition}"].to_numpy()


def _means(question: GroupValues, values: NDArray[np.float64], **columns: object) -> list[Row]:
    return question.mean_rows(values, reason=_wordless(question, values), **columns)


def _gap(question: GroupValues, values: NDArray[np.float64], *, metric: str, definition: str) -> Row:
    reason = _wordless(question, values)
    return question.gap_row(values, reason=reason, metric=metric, definition=definition)


def _wordless(question: GroupValues, values: NDArray[np.float64]) -> Reason:
    """Return what says how many answers were left out, of a group or of all."""
    wordless = np.isnan(values)

    def reason(group: int | None) -> str | None:
        own = wordless if group is None else wordless[question.codes == group]
        return f"{own.sum()} of {len(own)} answers without words left out" if own.any() else None

    return reason


def _unconfigured(model: str, datasets: list[str]) -> Iterator[Row]:
    for dataset in datasets:
        common = answer_row(model, dataset=dataset, definition="paper", statistic="mean", value=float("nan"))
        yield from (common | {"metric": metric, "reason": NO_DICTIONARIES} for metric in DICTIONARY_METRICS)


# --- The competence family: words of competence in what is said of each group.

_DESCRIPTION = """
How many of the words that a model says of a person speak of competence (`skilled`, `diligent`), in its answers to the
prompts that ask for five keywords. Counted are 861 words that were published with the study; the number is the mean
share of an answer's words, with function words such as `the` left out. Compared between groups over all images and
within every occupation that has enough counterfactual sets, where it is also counted which group gets the fewest.
Words of incompetence, warmth and coldness are counted likewise where their dictionaries are configured. Intervals and
tests count a set of counterfactual images once.
"""

COMPETENCE_FAMILY = Family(
    name="competence",
    title="Words of competence",
    description=_DESCRIPTION.strip(),
    code_version="2",
    needs=("texts",),
    # Bounds are those of every definition: a share is within [0, 1], a count of words above 0.
    traits=(
        *(
            Traits(
                name=name,
                meaning=f"How many of the words about a group speak of {name.removesuffix('_words')}.",
                formula=(
                    "mean over answers of listed words / words without stop words (paper); of listed words "
                    "(count); of different ones (released, of competence alone)"
                ),
                source=f"{STUDY}, 4.3 and appendix E"
                if name == COMPETENCE
                else "SADCAT, Nicolas et al. (2021)",
                unit="share or words",
                bounds=(0, np.inf),
                when_identical=None,
                headline="paper",
            )
            for name in (COMPETENCE, *DICTIONARY_METRICS)
        ),
        *(
            Traits(
                name=name,
                meaning=f"By how much the words of {name.removesuffix('_gap')} differ between groups.",
                formula="largest - smallest mean of a group",
                source="Plumbline",
                unit="share or words",
                bounds=(0, np.inf),
                when_identical=0.0,
                headline="paper",
            )
            for name in GAPS.values()
        ),
        Traits(
            name=FEWEST,
            meaning="In how many occupations a group gets the smallest share of words of competence.",
            formula="|occupations in which the group's mean is the smallest| / |occupations|, ties shared",
            source=f"{STUDY}, figure 12",
            unit="share of occupations",
            bounds=(0, 1),
            when_identical=None,
            headline="paper",
        ),
    ),
    compute=competence_result,
)
