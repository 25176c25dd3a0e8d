"""How many words of a text belong to a lexicon: competence, warmth, and their opposites.

Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", appendix E.1;
Nicolas, Bai and Fiske, "Comprehensive stereotype content dictionaries using a semi-automated method" (2021).
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl

from plumbline.catalog.files import data_text
from plumbline.catalog.word_lists import stop_words
from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.language.tokens import words_of

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
        raise ConfigError(
            "a dictionary has no words", where=path, found=", ".join(_COLUMNS[n] for n in empty)
        )
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
