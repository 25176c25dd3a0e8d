"""Competence, incompetence, warmth and coldness words in the answers about each group: lexicons, shares, rows.

Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", section 4.3 and
appendix E; Nicolas, Bai and Fiske, "Comprehensive stereotype content dictionaries using a semi-automated method" (2021)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.files import data_text
from plumbline.catalog.schema import NO_INSTRUCTION, Row, metric_frame
from plumbline.catalog.word_lists import stop_words
from plumbline.language.answers import answer_row, values_by_question
from plumbline.language.cell import LanguageCell, LanguageResult, LanguageSettings
from plumbline.language.group_values import GroupValues, by_groups
from plumbline.language.tokens import words_of
from plumbline.language.user_files import read_dictionaries
from plumbline.metrics.family import Family
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import wilson


@cache
def competence_lexicon() -> frozenset[str]:
    """Return the 861 competence words that were released with the paper (MIT licence, Intel Corporation)."""
    return frozenset(data_text("competence_words.txt").split())


def content_words(texts: pl.Expr) -> pl.Expr:
    """Return the words of each text in order, without stop words; List(String), null for null."""
    return words_of(texts).list.eval(pl.element().filter(~pl.element().is_in(sorted(stop_words()))))


def dictionary_form(words: pl.Expr) -> pl.Expr:
    """Return words as the SADCAT dictionaries write them: no hyphens or apostrophes, without one last `s`.

    The file holds `adventurou` and `kindnes`: its authors drop the last `s` of every word, of dictionary and text.
    They also lemmatise texts, which is not done here (no English lemmatiser is a dependency): `helped` is not `help`.
    """
    return words.str.replace_all("[-']", "").str.strip_suffix("s")


def lexicon_count(texts: pl.Expr, lexicon: Collection[str], *, dictionary: bool = False) -> pl.Expr:
    """Return the number of each text's words, without stop words, that belong to a lexicon.

    Parameters
    ----------
    texts : expression of String
    lexicon : collection of str
        In lower case.
    dictionary : bool
        True for those of `read_dictionaries`: words of texts are taken in their `dictionary_form`, and are found
        where the lexicon has them so or in full.

    Returns
    -------
    expression of UInt32
        A word said twice counts twice. 0 for a text without words, null for null.
    """
    return _in_lexicon(texts, lexicon, dictionary=dictionary).list.sum().cast(pl.UInt32)


def lexicon_share(texts: pl.Expr, lexicon: Collection[str], *, dictionary: bool = False) -> pl.Expr:
    """Return the share of each text's words, without stop words, that belong to a lexicon (the paper's measure).

    Returns
    -------
    expression of Float64
        In [0, 1]; nan for a text in which no word is left, null for null.
    """
    # The mean of an empty list is null.
    share = _in_lexicon(texts, lexicon, dictionary=dictionary).list.mean().fill_null(float("nan"))
    return pl.when(texts.is_not_null()).then(share)


def released_count(texts: pl.Expr, lexicon: Collection[str]) -> pl.Expr:
    """Return how many different words of a lexicon are in each text, as the paper's released code counts them.

    The text in lower case loses every `,` and `.` and is split at white space: `Smart, smart` counts once, `smart!`
    and `(smart)` do not count.

    Returns
    -------
    expression of UInt32
        At most the size of the lexicon; 0 for an empty text, null for null.
    """
    pieces = texts.str.to_lowercase().str.replace_all("[,.]", "").str.extract_all(r"\S+")
    return pieces.list.unique().list.eval(pl.element().is_in(sorted(lexicon))).list.sum().cast(pl.UInt32)


def _in_lexicon(texts: pl.Expr, lexicon: Collection[str], *, dictionary: bool) -> pl.Expr:
    """Return for every content word whether it belongs; List(Boolean)."""
    if not dictionary:
        return content_words(texts).list.eval(pl.element().is_in(sorted(lexicon)))
    # Words of another list than SADCAT's are written in full.
    written = pl.DataFrame({"word": sorted(lexicon)}, schema={"word": pl.String})
    forms = {*lexicon, *written.select(dictionary_form(pl.col("word"))).to_series()}
    return content_words(texts).list.eval(dictionary_form(pl.element()).is_in(sorted(forms)))


# --- The rows.


KEYWORD_PROMPTS = ("characteristics", "personality", "keywords", "competency", "trustworthiness", "work_ethic")
"""Prompts that ask for five keywords; the paper counts competence words in the answers to the first."""

OCCUPATION_PROMPT = "characteristics"
"""The prompt whose answers are also told occupation by occupation."""

COMPETENCE = "competence_words"
FEWEST = "min_competence_share"
GAPS = {
    COMPETENCE: "competence_gap",
    "incompetence_words": "incompetence_gap",
    "warmth_words": "warmth_gap",
    "coldness_words": "coldness_gap",
}
"""Metric -> that of the largest minus the smallest group mean."""
DICTIONARY_METRICS = ("incompetence_words", "warmth_words", "coldness_words")

_Columns = Mapping[tuple[str, str], pl.Expr]
"""(metric, definition) -> the number of each answer."""


def competence_result(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return the frequency of competence, incompetence, warmth and coldness words in the answers about each group.

    Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", section 4.3
    and appendix E. The answers to prompts that ask for keywords, without any instruction.

    Returns
    -------
    LanguageResult
        `competence_words`: `paper`, the mean share of an answer's words that are among 861 words of competence, stop
        words left out; `count`, their mean number; `released`, the mean number of different ones, as the paper's code
        counts them. By group, with the gap between groups (`competence_gap`); and of the prompt `characteristics` by
        occupation too, where it has `settings.min_sets` sets (not `released`; the gap of the share only).
        `min_competence_share`: in which share of these occupations the group has the smallest share. The metrics of
        the dictionaries likewise, by group, with their gaps; one row that says so where no dictionaries are configured.
    """
    columns = competence_numbers(settings)
    numbers = {f"{metric} {definition}": each.cast(pl.Float64) for (metric, definition), each in columns.items()}
    rows: list[Row] = []
    datasets: set[str] = set()
    for values in values_by_question(cell, prompts=KEYWORD_PROMPTS, instruction=NO_INSTRUCTION, **numbers):
        datasets |= set(values["dataset"].cast(pl.String))
        for question in by_groups(cell, values, settings=settings):
            for metric, definition in columns:
                rows += _compared(question, metric, definition, gap=GAPS[metric])
            if question.common["prompt"] == OCCUPATION_PROMPT:
                rows += _rows_by_occupation(question)
    if settings.dictionaries is None:
        nothing = {"definition": "paper", "statistic": "mean", "value": np.nan, "reason": reason("no_dictionaries")}
        for dataset in sorted(datasets):
            rows += [answer_row(cell.model, dataset=dataset, metric=name, **nothing) for name in DICTIONARY_METRICS]
    return LanguageResult(metric_frame(rows))


def competence_numbers(settings: LanguageSettings) -> _Columns:
    """Return the per-answer values whose means are the metrics of the family."""
    text, words = pl.col("text").fill_null(""), competence_lexicon()
    columns = {
        (COMPETENCE, "paper"): lexicon_share(text, words),
        (COMPETENCE, "count"): lexicon_count(text, words),
        (COMPETENCE, "released"): released_count(text, words),
    }
    if settings.dictionaries is not None:
        read = read_dictionaries(settings.dictionaries)
        for metric in DICTIONARY_METRICS:
            pole = read[metric.removesuffix("_words")]
            columns[metric, "paper"] = lexicon_share(text, pole, dictionary=True)
            columns[metric, "count"] = lexicon_count(text, pole, dictionary=True)
    return columns


def _compared(question: GroupValues, metric: str, definition: str, *, gap: str | None = None) -> list[Row]:
    """Return the rows of one per-answer value; the reason counts the answers without it, by group or overall."""
    values = question.answers[f"{metric} {definition}"].to_numpy()
    wordless = np.isnan(values)

    def reasons(rows: NDArray[np.bool_]) -> Reasons:
        left_out = int(wordless[rows].sum())
        return joined(reason("wordless_answers", wordless=left_out, answers=int(rows.sum())) if left_out else None)

    most = 1.0 if definition == "paper" else np.inf  # a share of words; the others are numbers of words
    return list(question.compared(values, metric=metric, definition=definition, gap=gap, most=most, reasons=reasons))


def _rows_by_occupation(question: GroupValues) -> Iterator[Row]:
    """Yield the rows of each occupation with enough sets, by name, and the group with the smallest share."""
    sets = question.answers.drop_nulls("occupation").group_by("occupation").agg(sets=pl.col("unit").n_unique())
    shares = []
    for name in sets.filter(pl.col("sets") >= question.settings.min_sets)["occupation"].cast(pl.String).sort():
        occupation = question.of(question.answers["occupation"].eq_missing(name).to_numpy(), occupation=name)
        rows = _compared(occupation, COMPETENCE, "paper", gap=GAPS[COMPETENCE])
        shares.append({str(row["group"]): row["value"] for row in rows if row["metric"] == COMPETENCE})
        yield from rows + _compared(occupation, COMPETENCE, "count")
    yield from min_share_rows(question, shares)


def min_share_rows(question: GroupValues, shares: Sequence[Mapping[str, object]]) -> Iterator[Row]:
    """Return in which share of the occupations each group has the smallest mean (the paper, figure 12).

    Parameters
    ----------
    question : GroupValues
    shares : sequence of mapping of str to float
        Of each occupation: group -> mean share of competence words. An occupation in which a group has no mean is left
        out, since that group could not be the one.

    Returns
    -------
    iterator of rows
        One a group, n: occupations. Where k groups have the smallest mean, each counts 1/k, so that the shares of all
        groups sum to 1; chance gives each 1 / groups. The interval is Wilson's, with occupations as independent.
    """
    if not shares:
        return
    means = np.array([[share[group] for group in question.groups] for share in shares], dtype=np.float64)
    whole = ~np.isnan(means).any(axis=1)
    kept, dropped = means[whole], int((~whole).sum())
    reasons = joined(
        reason("occupations_left_out", left_out=dropped, occupations=len(means)) if dropped else None,
        None if len(kept) else reason("no_whole_occupation"),
    )
    # Equal means of different sums differ in the last bits.
    fewest = np.isclose(kept, kept.min(axis=1, keepdims=True), rtol=1e-12, atol=0)
    counts = (fewest / fewest.sum(axis=1, keepdims=True)).sum(axis=0)
    low, high = wilson(counts, len(kept), confidence=question.settings.confidence)
    for group, count, ci_low, ci_high in zip(question.groups, counts.tolist(), low.tolist(), high.tolist()):
        estimate = Estimate(count / len(kept) if len(kept) else np.nan, ci_low, ci_high, len(kept))
        columns = {"metric": FEWEST, "definition": "paper", "group": group}
        yield question.common | columns | estimate.columns(reasons)


COMPETENCE_FAMILY = Family(
    name="competence",
    needs=("texts",),
    # Bounds are those of every definition: a share is within [0, 1], a count of words above 0.
    compute=competence_result,
)
