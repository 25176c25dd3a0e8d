"""Counting words over many answers, and in how many texts each occurs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.language.tokens import WhitespaceTokens, whitespace_tokens, words_of

BATCH_ROWS = 20_000
"""Texts held at once: of 500 words each, some 200 MB."""

Texts = pl.DataFrame | pl.LazyFrame


def text_batches(
    texts: Texts,
    *,
    text: str = "text",
    keep: Mapping[str, pl.Expr],
    batch_rows: int = BATCH_ROWS,
    where: str = "the texts",
) -> Iterator[pl.DataFrame]:
    """Yield the texts and what else is wanted of their rows, in frames of at most `batch_rows` rows.

    Parameters
    ----------
    texts : DataFrame or LazyFrame
        One row a text. A LazyFrame over files is never in memory as a whole.
    text : str
        Column of String with the text; it is called `text` in what is given.
    keep : mapping of str to expression
        Name -> further column. A row in which the first of them is null is left out.
    where : str
        What the frame is, for messages.

    Yields
    ------
    DataFrame with the columns of `keep`, then `text`
        In no particular order.

    Raises
    ------
    MetricError
        If it is no Polars frame, a column is missing, the text is not text, or `batch_rows` is below 1.
    """
    if batch_rows < 1:
        raise MetricError("batch_rows must be at least 1", found=batch_rows)
    if not isinstance(texts, Texts):
        raise MetricError("a partition of texts must be a Polars frame", where=where, found=type(texts).__name__)
    lazy = texts.lazy()
    schema = lazy.collect_schema()
    needed = {name for each in keep.values() for name in each.meta.root_names()} | {text}
    if missing := needed - set(schema):
        raise MetricError(
            "a partition of texts lacks a column",
            where=where,
            found=", ".join(schema),
            expected=", ".join(sorted(missing)),
        )
    # A column of nothing but nulls has no type of its own.
    if schema[text] not in (pl.String, pl.Null):
        raise MetricError("the column of texts must be text", where=f"{where}, {text}", found=schema[text])
    chosen = lazy.select(**keep, text=pl.col(text).cast(pl.String))
    kept = chosen.filter(pl.col(next(iter(keep))).is_not_null()) if keep else chosen
    if isinstance(texts, pl.DataFrame):
        yield from kept.collect().iter_slices(batch_rows)
        return
    for batch in kept.collect_batches(chunk_size=batch_rows, maintain_order=False):
        yield from batch.iter_slices(batch_rows)


# --- Word counts by group over texts of any number, in the memory of one batch and of the vocabulary.

COUNTS_SCHEMA: dict[str, type[pl.DataType]] = {"group": pl.String, "word": pl.String, "count": pl.Int64}
"""What `count_words` gives and `word_associations` takes."""

WAITING_ROWS = 1_000_000
"""WhitespaceTokens that wait at least, of some 40 bytes each."""


def count_words(
    texts: Texts | Iterable[Texts], *, group: str = "group", text: str = "text", batch_rows: int = BATCH_ROWS
) -> pl.DataFrame:
    """Count every word of every group, see `words_of` for what a word is.

    Parameters
    ----------
    texts : DataFrame, LazyFrame, or an iterable of them
        One row a text. Several frames are partitions of one corpus: each is read in batches, and the counts are added.
        A LazyFrame over files is never in memory as a whole.
    group, text : str
        Columns with the group and the text. A row without a group is in no group and not counted; a null or empty
        text has no words.
    batch_rows : int
        Texts counted at once; the result does not depend on it.

    Returns
    -------
    DataFrame
        `group` String, `word` String, `count` Int64, sorted by group and word. A group whose texts hold no word
        has one row: word null, count 0. Stop words are counted, since associations are shares of all words.

    Raises
    ------
    MetricError
        If there is no frame at all, a column is missing or not of text, or `batch_rows` is below 1.
    """
    parts = [texts] if isinstance(texts, Texts) else texts
    sums, partitions = _Sums(), 0
    for partition in parts:
        partitions += 1
        for batch in text_batches(
            partition,
            text=text,
            keep={"group": pl.col(group).cast(pl.String)},
            batch_rows=batch_rows,
            where=f"partition {partitions}",
        ):
            sums.add(_pieces(batch))
    if not partitions:
        raise MetricError("there are no texts to count", expected="at least one frame of texts")
    return _without_needless_nulls(sums.merged()).sort("group", "word")


class _Sums:
    """Word counts so far, and counts of pieces that are not yet taken apart into words.

    Pieces wait until they are as many as the sums: each row is then merged a few times whatever the number of batches,
    and a piece is searched for words once instead of in every batch. No word crosses a space, and cutting at one is
    much cheaper than finding words.
    """

    def __init__(self) -> None:
        self._total = pl.DataFrame(schema=COUNTS_SCHEMA)
        self._pending: list[pl.DataFrame] = []

    def add(self, pieces: list[pl.DataFrame]) -> None:
        self._pending += pieces
        waiting = sum(frame.height for frame in self._pending)
        if waiting >= max(self._total.height, WAITING_ROWS):
            self._total, self._pending = self.merged(), []

    def merged(self) -> pl.DataFrame:
        if not self._pending:
            return self._total
        pieces = pl.concat(self._pending).lazy()
        distinct = pieces.select(pl.col("piece").unique()).with_columns(word=words_of(pl.col("piece")))
        # A piece without a word leaves a null: kept at count 0, it says that the group has texts.
        counted = pl.when(pl.col("word").is_null()).then(0).otherwise(pl.col("count"))
        words = pieces.join(distinct.explode("word", empty_as_null=True), on="piece").select(
            "group", "word", count=counted
        )
        sums = pl.concat([self._total.lazy(), words]).group_by("group", "word").agg(pl.col("count").sum())
        return sums.collect(engine="streaming")


def _pieces(batch: pl.DataFrame) -> list[pl.DataFrame]:
    """Count what stands between spaces, group by group: text alone hashes faster than text beside a group."""
    counted = [
        part.lazy()
        .select(piece=pl.col("text").fill_null("").str.split(" ").explode())
        .group_by("piece")
        .agg(count=pl.len().cast(pl.Int64))
        .select(group=pl.lit(part["group"][0]), piece="piece", count="count")
        for part in batch.partition_by("group")
    ]
    return pl.collect_all(counted, engine="streaming")


def _without_needless_nulls(counts: pl.DataFrame) -> pl.DataFrame:
    """Keep the null word only of groups without any other."""
    wordless = pl.col("word").is_null().all().over("group")
    return counts.filter(pl.col("word").is_not_null() | wordless)


# --- How often chosen words are said in each of many cells, such as a group's part of one block of sets.


@dataclass(frozen=True)
class Occurrences:
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


def count_occurrences(
    texts: Texts | Iterable[Texts], words: Sequence[str], *, cells: int, batch_rows: int = BATCH_ROWS
) -> Occurrences:
    """Count chosen words in every cell, over texts of any number.

    Parameters
    ----------
    texts : DataFrame, LazyFrame, or an iterable of them
        One row a text, with the columns `text` and `cell`, 0 .. cells - 1. A row without a cell is not counted. A
        LazyFrame over files is never in memory as a whole: the counts and one batch are. Several frames are parts of
        one corpus.
    words : sequence of str
        Each once, as `plumbline.language.tokens.words_of` writes them.
    cells : int
    batch_rows : int
        Texts held at once; the result does not depend on it.

    Returns
    -------
    Occurrences
        Columns in the order of `words`.

    Raises
    ------
    MetricError
        As `text_batches`; or if a cell is out of range, or a word is given twice.
    """
    if len(set(words)) < len(words):
        raise MetricError("a word to count is given twice", found=f"{len(words)} words, {len(set(words))} distinct")
    place = pl.DataFrame({"word": pl.Series(words, dtype=pl.String), "column": np.arange(len(words))})
    counts = Occurrences(
        times=np.zeros((cells, len(words)), dtype=np.int64),
        texts=np.zeros((cells, len(words)), dtype=np.int64),
        words=np.zeros(cells, dtype=np.int64),
    )
    kept = {"cell": pl.col("cell").cast(pl.Int64)}
    for part in [texts] if isinstance(texts, Texts) else texts:
        for batch in text_batches(part, keep=kept, batch_rows=batch_rows):
            codes = batch["cell"].to_numpy()
            if codes.size and not 0 <= codes.min() <= codes.max() < cells:
                raise MetricError(
                    "a text is of no cell", found=f"{codes.min()} .. {codes.max()}", expected=f"0 .. {cells - 1}"
                )
            _add(counts, codes, whitespace_tokens(batch["text"]), place)
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
