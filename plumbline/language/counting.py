"""Word counts and document frequencies over many answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.language.tokens import WhitespaceTokens, whitespace_tokens, words_of

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
