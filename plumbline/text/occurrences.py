"""How often chosen words are said in each of many cells, such as a group's part of one block of sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.text.batches import BATCH_ROWS, Texts, text_batches
from plumbline.text.pieces import Pieces, pieces_of


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
    texts: Texts | Iterable[Texts],
    words: Sequence[str],
    *,
    cells: int,
    batch_rows: int = BATCH_ROWS,
) -> Occurrences:
    """Count chosen words in every cell, over texts of any number.

    Parameters
    ----------
    texts : DataFrame, LazyFrame, or an iterable of them
        One row a text, with the columns `text` and `cell`, 0 .. cells - 1. A row without a cell is not counted. A
        LazyFrame over files is never in memory as a whole: the counts and one batch are. Several frames are parts of
        one corpus.
    words : sequence of str
        Each once, as `plumbline.text.words_of` writes them.
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
        raise MetricError(
            "a word to count is given twice", found=f"{len(words)} words, {len(set(words))} distinct"
        )
    place = pl.DataFrame({"word": pl.Series(words, dtype=pl.String), "column": np.arange(len(words))})
    found = Occurrences(
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
                    "a text is of no cell",
                    found=f"{codes.min()} .. {codes.max()}",
                    expected=f"0 .. {cells - 1}",
                )
            _add(found, codes, pieces_of(batch["text"]), place)
    return found


def _add(found: Occurrences, cells: NDArray[np.int64], pieces: Pieces, place: pl.DataFrame) -> None:
    said = pieces.words()
    in_piece = np.bincount(said["piece"].to_numpy(), minlength=len(pieces.distinct))
    found.words[:] += np.bincount(cells, pieces.sums(in_piece), minlength=len(found.words)).astype(np.int64)
    chosen = said.join(place, on="word").select("piece", "column")
    listed = np.zeros(len(pieces.distinct), dtype=bool)
    listed[chosen["piece"].to_numpy()] = True
    at = listed[pieces.piece]
    spoken = pl.DataFrame({"text": pieces.text[at], "piece": pieces.piece[at]}).join(chosen, on="piece")
    # A piece may hold a word twice, and a text often does.
    per_text = spoken.group_by("text", "column").len()
    cell, column = cells[per_text["text"].to_numpy()], per_text["column"].to_numpy()
    np.add.at(found.times, (cell, column), per_text["len"].to_numpy().astype(np.int64))
    np.add.at(found.texts, (cell, column), 1)
