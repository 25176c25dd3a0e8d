"""Word counts by group over texts of any number, in the memory of one batch and of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from plumbline.errors import MetricError
from plumbline.text.batches import BATCH_ROWS, Texts, text_batches
from plumbline.text.tokens import words_of

COUNTS_SCHEMA: dict[str, type[pl.DataType]] = {"group": pl.String, "word": pl.String, "count": pl.Int64}
"""What `count_words` gives and `word_associations` takes."""

WAITING_ROWS = 1_000_000
"""Pieces that wait at least, of some 40 bytes each."""


def count_words(
    texts: Texts | Iterable[Texts],
    *,
    group: str = "group",
    text: str = "text",
    batch_rows: int = BATCH_ROWS,
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
