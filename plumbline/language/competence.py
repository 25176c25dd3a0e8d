"""Words of competence and warmth, and of their opposites, in what is said of each group: lexicons, shares, rows.

Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", section 4.3 and
appendix E; Nicolas, Bai and Fiske, "Comprehensive stereotype content dictionaries using a semi-automated method" (2021)
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.files import data_text
from plumbline.catalog.schema import NO_INSTRUCTION, Row, metric_frame
from plumbline.catalog.word_lists import stop_words
from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.language.answers import answer_row, values_by_question
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.language.family import LanguageResult
from plumbline.language.group_values import GroupValues, ReasonsOf, by_groups
from plumbline.language.tokens import words_of
from plumbline.metrics.family import Family
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.intervals import wilson

_COLUMNS = {
    "warmth": "Warmth_dict_hi",
    "coldness": "Warmth_dict_lo",
    "competence": "Competence_dict_hi",
    "incompetence": "Competence_dict_lo",
}


@dataclass(frozen=True)
class Dictionaries:
    """The two poles of warmth and of competence in the SADCAT dictionaries.

    Attributes
    ----------
    warmth, coldness, competence, incompetence : frozenset of str
        Words as the file writes them, which is the form that `dictionary_form` gives. A word may be in both poles.
    """

    warmth: frozenset[str]
    coldness: frozenset[str]
    competence: frozenset[str]
    incompetence: frozenset[str]

    @property
    def hash(self) -> str:
        """Return the sha256 of all words."""
        return digest_json({name: sorted(getattr(self, name)) for name in _COLUMNS})


@cache
def competence_lexicon() -> frozenset[str]:
    """Return the 861 competence words that were released with the paper (MIT licence, Intel Corporation)."""
    return frozenset(data_text("competence_words.txt").split())


def read_dictionaries(path: Path) -> Dictionaries:
    """Read warmth, coldness, competence and incompetence from a copy of the SADCAT dictionaries.

    The poles are the columns `Warmth_dict_hi`, `Warmth_dict_lo`, `Competence_dict_hi` and `Competence_dict_lo`. The
    file also has `Warmth_dir` and `Competence_dir` with directions; they differ from the poles for 9 words of
    competence, and in all 9 the 861 words that the paper's authors released follow the poles (`exploit`, `commit` and
    `bully` are among them, `licence` is not). A word that is in both poles counts in both, as `bully` there.

    Parameters
    ----------
    path : Path
        CSV with a header: `word` and those four columns of 0 and 1; others are passed over.

    Raises
    ------
    ConfigError
        If the file is not there or not UTF-8, lacks a column, has a line without a word, a value besides 0 and 1, or
        no word in one of the poles.
    """
    poles: dict[str, set[str]] = {name: set() for name in _COLUMNS}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            _check_header(path, reader.fieldnames)
            for row in reader:
                _add(poles, row, f"{path}, line {reader.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(
            "the dictionaries cannot be read",
            where=path,
            found=error,
            hint="set the path to your copy of the SADCAT dictionaries, as CSV in UTF-8",
        ) from error
    if empty := [name for name, words in poles.items() if not words]:
        raise ConfigError("a dictionary has no words", where=path, found=", ".join(_COLUMNS[n] for n in empty))
    return Dictionaries(**{name: frozenset(words) for name, words in poles.items()})


def _check_header(path: Path, columns: Collection[str] | None) -> None:
    wanted = ["word", *_COLUMNS.values()]
    if missing := [name for name in wanted if name not in (columns or ())]:
        raise ConfigError(
            "the dictionaries lack a column",
            where=f"{path}, line 1",
            found=", ".join(list(columns or ())[:8]) or "nothing",
            expected=", ".join(missing),
        )


def _add(poles: dict[str, set[str]], row: dict[str, str], where: str) -> None:
    word = (row["word"] or "").strip().lower()
    if not word:
        raise ConfigError("a line of the dictionaries has no word", where=where)
    for name, column in _COLUMNS.items():
        if row[column] not in ("0", "1"):
            raise ConfigError(
                "a dictionary says something else than yes or no",
                where=f"{where}, column {column}",
                found=row[column],
                expected="0 or 1",
            )
        if row[column] == "1":
            poles[name].add(word)


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
    """Return how many of each text's words, stop words left out, belong to a lexicon.

    Parameters
    ----------
    texts : expression of String
    lexicon : collection of str
        In lower case.
    dictionary : bool
        True for the sets of `Dictionaries`: words are compared in their `dictionary_form`.

    Returns
    -------
    expression of UInt32
        A word said twice counts twice. 0 for a text without words, null for null.
    """
    return _in_lexicon(texts, lexicon, dictionary=dictionary).list.sum().cast(pl.UInt32)


def lexicon_share(texts: pl.Expr, lexicon: Collection[str], *, dictionary: bool = False) -> pl.Expr:
    """Return the share of each text's words, stop words left out, that belong to a lexicon (the paper's measure).

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
    word = dictionary_form(pl.element()) if dictionary else pl.element()
    return content_words(texts).list.eval(word.is_in(sorted(lexicon)))


# --- The rows.


KEYWORD_PROMPTS = ("characteristics", "personality", "keywords", "competency", "trustworthiness", "work_ethic")
"""Prompts that ask for five keywords; the paper counts competence words in the answers to the first."""

OCCUPATION_PROMPT = "characteristics"
"""The prompt whose answers are also told occupation by occupation."""

COMPETENCE = "competence_words"
FEWEST = "fewest_competence_words"
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
    for occupation in _occupations(question):
        share, count = (_values(occupation, COMPETENCE, definition) for definition in ("paper", "count"))
        means = _means(occupation, share, metric=COMPETENCE, definition="paper")
        shares.append({str(row["group"]): row["value"] for row in means})
        yield from means
        yield from _means(occupation, count, metric=COMPETENCE, definition="count")
        yield _gap(occupation, share, metric=GAPS[COMPETENCE], definition="paper")
    yield from fewest_rows(question, shares)


def fewest_rows(question: GroupValues, shares: Sequence[Mapping[str, object]]) -> Iterator[Row]:
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
    for place, group in enumerate(question.groups):
        yield question.common | {
            "metric": FEWEST,
            "definition": "paper",
            "group": group,
            "value": float(counts[place]) / len(kept) if len(kept) else float("nan"),
            "ci_low": float(low[place]),
            "ci_high": float(high[place]),
            "n": len(kept),
            "reason": reasons,
        }


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
    return question.mean_rows(values, reasons=_wordless(question, values), **columns)


def _gap(question: GroupValues, values: NDArray[np.float64], *, metric: str, definition: str) -> Row:
    return question.gap_row(values, reasons=_wordless(question, values), metric=metric, definition=definition)


def _wordless(question: GroupValues, values: NDArray[np.float64]) -> ReasonsOf:
    """Return how many answers were left out, of a group or of all."""
    wordless = np.isnan(values)

    def reasons(group: int | None) -> Reasons:
        of_group = wordless if group is None else wordless[question.codes == group]
        if not of_group.any():
            return ()
        return joined(reason("wordless_answers", wordless=int(of_group.sum()), answers=len(of_group)))

    return reasons


def _unconfigured(model: str, datasets: list[str]) -> Iterator[Row]:
    for dataset in datasets:
        common = answer_row(model, dataset=dataset, definition="paper", statistic="mean", value=float("nan"))
        yield from (common | {"metric": metric, "reason": reason("no_dictionaries")} for metric in DICTIONARY_METRICS)


COMPETENCE_FAMILY = Family(
    name="competence",
    code_version="2",
    needs=("texts",),
    # Bounds are those of every definition: a share is within [0, 1], a count of words above 0.
    compute=competence_result,
)
