"""Counts of chosen words by cell against a loop, and pieces against words of whole texts."""

from collections import Counter

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.language.tokens import count_occurrences, text_batches, whitespace_tokens, word_number, words_of

WORDS = ["kind", "well-known", "isn't", "tall"]
PIECES = ["Kind", "kind,", "tall/kind", "well-known.", "isn\u2019t", "--", "", "kind\nkind", "old", "12"]
texts = st.lists(st.none() | st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join), max_size=15)


def words_by_text(rows):
    return pl.DataFrame({"text": rows}, schema={"text": pl.String}).select(words_of(pl.col("text")))["text"].to_list()


@settings(max_examples=60)
@given(texts, st.integers(1, 4))
def test_chosen_words_are_counted_in_every_cell(rows, batch_rows):
    frame = pl.DataFrame(
        {"cell": [i % 3 for i in range(len(rows))], "text": rows}, schema={"cell": pl.Int64, "text": pl.String}
    )
    times, said, total = Counter(), Counter(), Counter()
    for i, words in enumerate(words_by_text(rows)):
        times.update((i % 3, word) for word in words or [])
        said.update((i % 3, word) for word in set(words or []))
        total[i % 3] += len(words or [])
    found = count_occurrences(frame.iter_slices(batch_rows), WORDS, cells=4)
    assert found.times.tolist() == [[times[c, word] for word in WORDS] for c in range(4)]
    assert found.texts.tolist() == [[said[c, word] for word in WORDS] for c in range(4)]
    assert found.words.tolist() == [total[c] for c in range(4)]


@settings(max_examples=60)
@given(st.lists(st.none() | st.text("abÉ'-\u2019\u2011 \n.\u0301ह\u093f中", max_size=20), max_size=8))
def test_pieces_have_the_words_of_their_texts(rows):
    pieces = whitespace_tokens(pl.Series("text", rows, dtype=pl.String))
    of_piece = pieces.words().group_by("piece").agg("word")
    words = dict(zip(of_piece["piece"], of_piece["word"].to_list()))
    found = [[] for _ in rows]
    for text, piece in zip(pieces.text, pieces.piece):
        found[text] += words.get(piece, [])
    assert found == [each or [] for each in words_by_text(rows)]


def test_sums_of_pieces():
    pieces = whitespace_tokens(pl.Series(["a b a", "", None, "b"]))
    worth = np.array([{"a": 10, "b": 1, "": 0}[piece] for piece in pieces.distinct])
    assert pieces.sums(worth).tolist() == [21, 0, 0, 1]


@settings(max_examples=100)
@given(st.text("abÉß'-\u2019\u2010\u2011 \n.1_\u0301ह\u093f中İ", max_size=30))
def test_the_number_of_words_is_that_of_the_words(text):
    frame = pl.DataFrame({"text": [text, None]})
    assert frame.select(word_number(pl.col("text")))["text"].to_list() == [len(words_by_text([text])[0]), None]


def test_the_same_frame_without_a_cell_is_not_counted():
    frame = pl.DataFrame({"cell": [None, 0], "text": ["kind kind", "kind"]})
    assert count_occurrences(text_batches(frame.lazy(), "cell"), ["kind"], cells=1).times.tolist() == [[1]]
