"""Words of texts: tokens, counts over many answers, and cheap checks of answers: English, not empty, scored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.catalog.word_lists import stop_words

# A letter carries its marks: composed é is one letter, a Devanagari vowel sign is part of its syllable.
_LETTERS = r"\p{L}[\p{L}\p{M}]*"
_WORD = rf"{_LETTERS}(?:[-']{_LETTERS})*"

_ONE_WRITING = {"\u2019": "'", "\u2010": "-", "\u2011": "-"}
"""Typographic apostrophe and hyphens, and how a keyboard writes them."""


# Case and composition change no number of words, so that texts are searched as they are.
_ANY_WRITING = rf"{_LETTERS}(?:[-'\u2019\u2010\u2011]{_LETTERS})*"


def words_of(texts: pl.Expr) -> pl.Expr:
    """Return the words of each text, in order.

    Words are lower-case runs of letters, with single hyphens and apostrophes between letters: `Well-known, isn't
    it?` gives `well-known`, `isn't`, `it`. Everything else ends a word: digits, underscores, dashes, two hyphens.
    Two writings of one word are one word: composed and decomposed accents (by NFC), straight and curved apostrophes,
    the hyphens U+2010 and U+2011. No space is ever inside a word, so that a text cut at spaces has the same words.

    Parameters
    ----------
    texts : expression of String

    Returns
    -------
    expression of List(String)
        Empty for a text without words, null for null.
    """
    plain = texts.str.to_lowercase().str.normalize("NFC").str.replace_many(_ONE_WRITING)
    return plain.str.extract_all(_WORD)


def word_number(texts: pl.Expr) -> pl.Expr:
    """Return how many words each text has: the length of `words_of`, without making the words.

    Parameters
    ----------
    texts : expression of String

    Returns
    -------
    expression of UInt32
        0 for a text without words, null for null.
    """
    return texts.str.count_matches(_ANY_WRITING)


# --- Texts cut at spaces, every distinct piece once: what is searched for words is then a small dictionary.


@dataclass(frozen=True)
class WhitespaceTokens:
    """The whitespace-separated tokens of some texts.

    Attributes
    ----------
    text, piece : (t,) int64
        Of each piece, in order: its text, and its place in `distinct`. A text without anything has one empty piece.
    distinct : (d,) Series of String
    texts : int
    """

    text: NDArray[np.int64]
    piece: NDArray[np.int64]
    distinct: pl.Series
    texts: int

    def words(self) -> pl.DataFrame:
        """Return `piece` (Int64), `word`: every word of every distinct piece, see `words_of`; most have just one."""
        return (
            pl.DataFrame({"piece": np.arange(len(self.distinct)), "text": self.distinct})
            .select("piece", word=words_of(pl.col("text")))
            .explode("word", empty_as_null=True)
            .drop_nulls("word")
        )

    def sums(self, of_pieces: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (texts,) the sum over each text's pieces of a whole number that every distinct piece has, (d,)."""
        return np.bincount(self.text, of_pieces[self.piece], minlength=self.texts).astype(np.int64)


def whitespace_tokens(texts: pl.Series) -> WhitespaceTokens:
    """Cut texts at spaces; no word crosses one. A null text is cut as an empty one."""
    cut = texts.fill_null("").str.split(" ")
    encoded = cut.explode(empty_as_null=True).to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
    return WhitespaceTokens(
        np.repeat(np.arange(len(texts)), cut.list.len().to_numpy()),
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        pl.Series("text", encoded.dictionary, dtype=pl.String),
        len(texts),
    )


# --- Word counts and document frequencies over many answers.

BATCH_ROWS = 20_000
"""Texts held at once: of 500 words each, some 200 MB."""


def text_batches(texts: pl.LazyFrame, *columns: str | pl.Expr, batch_rows: int = BATCH_ROWS) -> Iterator[pl.DataFrame]:
    """Yield some columns of texts, in frames of at most `batch_rows` rows, and in no particular order.

    Parameters
    ----------
    texts : LazyFrame
        One row a text, in `text`; over files, so that it is never in memory as a whole.
    *columns : str or expression
        What is wanted besides `text`. A row in which the first of them is null is left out.
    """
    kept = texts.select(*columns, "text").filter(pl.first().is_not_null())
    for batch in kept.collect_batches(chunk_size=batch_rows, maintain_order=False):
        yield from batch.iter_slices(batch_rows)


# --- Word counts by group over texts of any number, in the memory of one batch and of the vocabulary.

COUNTS_SCHEMA: dict[str, type[pl.DataType]] = {"group": pl.String, "word": pl.String, "count": pl.Int64}
"""What `count_words` gives and `word_associations` takes."""

WAITING_ROWS = 1_000_000
"""Pieces that wait at least, of some 40 bytes each."""


def count_words(batches: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Count every word of every group, see `words_of` for what a word is.

    Pieces between spaces are counted first, and wait until they are as many as the sums: each row is then merged a few
    times whatever the number of batches, and a piece is searched for words once instead of in every batch. No word
    crosses a space, and cutting at one is much cheaper than finding words.

    Parameters
    ----------
    batches : iterable of DataFrame
        `group`, `text`: one row a text; a null or empty text has no words. See `text_batches`.

    Returns
    -------
    DataFrame
        `group` String, `word` String, `count` Int64, sorted by group and word. A group whose texts hold no word
        has one row: word null, count 0. Stop words are counted, since associations are shares of all words.
    """
    counts, waiting = pl.DataFrame(schema=COUNTS_SCHEMA), list[pl.DataFrame]()
    for batch in batches:
        waiting += _pieces(batch)
        if sum(frame.height for frame in waiting) >= max(counts.height, WAITING_ROWS):
            counts, waiting = _merged(counts, waiting), []
    counts = _merged(counts, waiting)
    wordless = pl.col("word").is_null().all().over("group")
    return counts.filter(pl.col("word").is_not_null() | wordless).sort("group", "word")


def _pieces(batch: pl.DataFrame) -> list[pl.DataFrame]:
    """Count whitespace tokens group by group: text alone hashes faster than text with a group."""
    counted = [
        part.lazy()
        .select(piece=pl.col("text").fill_null("").str.split(" ").explode())
        .group_by("piece")
        .agg(count=pl.len().cast(pl.Int64))
        .select(group=pl.lit(part["group"][0]), piece="piece", count="count")
        for part in batch.partition_by("group")
    ]
    return pl.collect_all(counted, engine="streaming")


def _merged(counts: pl.DataFrame, waiting: list[pl.DataFrame]) -> pl.DataFrame:
    """Split counted whitespace tokens into words, and add their counts to those of the words."""
    if not waiting:
        return counts
    pieces = pl.concat(waiting).lazy()
    distinct = pieces.select(pl.col("piece").unique()).with_columns(word=words_of(pl.col("piece")))
    # A piece without a word leaves a null: kept at count 0, it says that the group has texts.
    counted = pl.when(pl.col("word").is_not_null()).then("count").otherwise(0)
    words = pieces.join(distinct.explode("word", empty_as_null=True), on="piece").select("group", "word", count=counted)
    sums = pl.concat([counts.lazy(), words]).group_by("group", "word").agg(pl.col("count").sum())
    return sums.collect(engine="streaming")


# --- How often chosen words are said in each of many cells, such as a group's part of one block of sets.


class Occurrences(NamedTuple):
    """Counts of chosen words by cell.

    Attributes
    ----------
    times : (c, w) int64
        Times that the cell's texts say the word.
    texts : (c, w) int64
        Texts of the cell that say it at all.
    words : (c,) int64
        All words of the cell's texts, chosen or not.
    """

    times: NDArray[np.int64]
    texts: NDArray[np.int64]
    words: NDArray[np.int64]


def count_occurrences(batches: Iterable[pl.DataFrame], words: Sequence[str], *, cells: int) -> Occurrences:
    """Count chosen words in every cell, over texts of any number.

    Parameters
    ----------
    batches : iterable of DataFrame
        `cell`, 0 .. cells - 1, and `text`: one row a text. See `text_batches`.
    words : sequence of str
        Each once, as `plumbline.language.tokens.words_of` writes them.
    cells : int

    Returns
    -------
    Occurrences
        Columns in the order of `words`.
    """
    place = pl.DataFrame({"word": pl.Series(words, dtype=pl.String), "column": np.arange(len(words))})
    times, texts = np.zeros((2, cells, len(words)), dtype=np.int64)
    counts = Occurrences(times, texts, np.zeros(cells, dtype=np.int64))
    for batch in batches:
        _add(counts, batch["cell"].to_numpy(), whitespace_tokens(batch["text"]), place)
    return counts


def _add(counts: Occurrences, cells: NDArray[np.int64], pieces: WhitespaceTokens, place: pl.DataFrame) -> None:
    words = pieces.words()
    in_piece = np.bincount(words["piece"].to_numpy(), minlength=len(pieces.distinct))
    counts.words[:] += np.bincount(cells, pieces.sums(in_piece), minlength=len(counts.words)).astype(np.int64)
    chosen = words.join(place, on="word").select("piece", "column")
    listed = np.zeros(len(pieces.distinct), dtype=bool)
    listed[chosen["piece"].to_numpy()] = True
    at = listed[pieces.piece]
    spoken = pl.DataFrame({"text": pieces.text[at], "piece": pieces.piece[at]}).join(chosen, on="piece")
    # A piece may hold a word twice, and a text often does.
    per_text = spoken.group_by("text", "column").len()
    cell, column = cells[per_text["text"].to_numpy()], per_text["column"].to_numpy()
    np.add.at(counts.times, (cell, column), per_text["len"].to_numpy().astype(np.int64))
    np.add.at(counts.texts, (cell, column), 1)


# --- A cheap check that an answer is in English, as the prompts are.
#
# The study evaluates English texts alone. Toxicity scorers, word lists and refusals say little about
# others, so that an audit checks how many answers are in another language. No model is needed; of the
# first 500 characters are looked at:
#
# - Letters of other scripts: more than 30% of what is not blank are letters that are not Latin. -
# Function words: of a text in sentences, with at least 12 words, less than 15% are stop words. English
# prose has 40 to 60%, other languages in Latin script up to some 10% by chance (`a`, `in`, `me`, `no`).
#
# Lists of keywords have no function words in any language. They are told from sentences by their short
# pieces: fewer than 4 words between two marks. A list in another language in Latin script is not noticed,
# nor is a short text.

OPENING = 500
OTHER_SCRIPT_FROM = 0.3
LEAST_WORDS = 12
LEAST_PIECE = 4
ENGLISH_FROM = 0.15

_OTHER_LETTER = r"[\p{L}--\p{Latin}]"
_PIECE_ENDS = r"[,;:.!?|\n]+"


def not_english(texts: pl.Expr) -> pl.Expr:
    """Return whether each text is detectably not English.

    Words are cut at blanks here, many times faster than `plumbline.language.tokens.words_of` finds them: a stop
    word with a mark behind it is missed, which does not move the share by much.

    Parameters
    ----------
    texts : expression of String

    Returns
    -------
    expression of Boolean
        False where that cannot be seen: of a text that is too short, a list of keywords, without letters, or null. Row
        by row, so that it streams.
    """
    opening = texts.str.slice(0, OPENING).str.strip_chars()
    pieces = opening.str.count_matches(_PIECE_ENDS) + 1
    blanks = opening.str.count_matches(r"\s")
    others = opening.str.count_matches(_OTHER_LETTER)
    other_script = others > OTHER_SCRIPT_FROM * (opening.str.len_chars() - blanks)
    plain = opening.str.to_lowercase().str.replace_many(["\u2019", "\n", "\t"], ["'", " ", " "])
    function_words = plain.str.split(" ").list.eval(pl.element().is_in(sorted(stop_words()))).list.sum()
    number = blanks + 1
    sentences = (number >= LEAST_WORDS) & (number >= LEAST_PIECE * pieces)
    return (other_script | (sentences & (function_words < ENGLISH_FROM * number))).fill_null(False)


# --- Shares of answers that say whether they can be measured: what the checks of answers look at.


def complete_sets(people: pl.DataFrame) -> pl.DataFrame:
    """Return, of each subset whose sets compare groups, the share of sets with every group.

    Others are left out of MaxToxicity. Sets of one person, of whom most show one group, compare none.
    """
    sets = people.filter(pl.col("set_id").is_not_null(), pl.col("set_groups").is_not_null()).group_by(
        "subset", "set_id"
    )
    complete = sets.agg((pl.col("group").n_unique() == pl.col("set_groups").first()).alias("complete"))
    return complete.group_by("subset").agg(
        pl.len().cast(pl.Int64).alias("sets"), pl.col("complete").mean().alias("share")
    )


def empty_answer() -> pl.Expr:
    """Return whether an answer is without text and is no refusal."""
    return (pl.col("text").str.strip_chars() == "") & pl.col("finish_reason").is_in(["stop", "length"])


def answer_shares(answers: pl.LazyFrame, share: pl.Expr, *, every: int = 1) -> pl.DataFrame:
    """Return a share of the answers to each prompt and instruction, of one answer in `every`."""
    # By the key, so that every prompt keeps its share.
    drawn = pl.col("row_key").str.slice(0, 8).str.to_integer(base=16) % every == 0
    return _shares(answers.filter(drawn), ["prompt", "instruction"], share)


def scored_shares(scores: pl.LazyFrame) -> pl.DataFrame:
    """Return the share of answers that each scorer scored."""
    known = scores.filter(pl.col("attribute").is_in(SCORED_ATTRIBUTES))
    return _shares(known, ["scorer", "attribute"], pl.col("score").is_not_nan())


def _shares(rows: pl.LazyFrame, by: list[str], share: pl.Expr) -> pl.DataFrame:
    counted = rows.group_by(by).agg(pl.len().cast(pl.Int64).alias("answers"), share.mean().alias("share"))
    return counted.sort(by).collect(engine="streaming")


def leading_source(sources: Mapping[str, int]) -> pl.DataFrame:
    """Return the share of answers from the source that gave most: an endpoint may change its model under way."""
    most, total = max(sources, key=lambda name: sources[name], default="none"), sum(sources.values())
    return pl.DataFrame({"source": [most], "answers": [total], "share": [sources.get(most, 0) / max(total, 1)]})
