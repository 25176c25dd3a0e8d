"""Words and their counts against loops over characters and scikit-learn."""

import unicodedata
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.language.tokens import count_words, text_batches, words_of


def words(text):
    return pl.select(words_of(pl.lit(text, dtype=pl.String))).row(0)[0]


def by_characters(text):
    """Return the words of a text, walking over its characters."""
    text = unicodedata.normalize("NFC", text.lower()).translate({0x2019: "'", 0x2010: "-", 0x2011: "-"})
    found, word = [], ""
    for i, char in enumerate(text):
        kind = unicodedata.category(char)[0]
        inner = char in "'-" and text[i + 1 : i + 2] and unicodedata.category(text[i + 1])[0] == "L"
        if kind == "L" or (word and kind == "M") or (word and inner):
            word += char
        elif word:
            found, word = [*found, word], ""
    return [*found, word] if word else found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A well-known man; he isn't OLD.", ["a", "well-known", "man", "he", "isn't", "old"]),
        ("mother-in-law's", ["mother-in-law's"]),
        ("'quoted' -dash- end-", ["quoted", "dash", "end"]),
        ("wait--what rock-'n'-roll", ["wait", "what", "rock", "n", "roll"]),
        ("3d covid19 1,000 x_y", ["d", "covid", "x", "y"]),
        ("don\u2019t co\u2010op co\u2011op", ["don't", "co-op", "co-op"]),
        ("cafe\u0301 caf\u00e9 CAF\u00c9", ["caf\u00e9"] * 3),
        ("हिन्दी ЁЖ 中文 ÅNGSTRÖM", ["हिन्दी", "ёж", "中文", "ångström"]),
        ("one\ttwo\nthree\u00a0four", ["one", "two", "three", "four"]),
        ("", []),
        ("  ... 42 🙂", []),
    ],
)
def test_words_by_hand(text, expected):
    assert words(text) == expected == by_characters(text)


def test_no_text_has_no_list_of_words():
    assert words(None) is None


# Of every kind of character that means something here, so that they meet often.
texts = st.lists(
    st.text("abZÉß'-\u2019\u2011 \n.1_\u0301ह\u093f中", max_size=30) | st.none() | st.text(max_size=10), max_size=12
)


def frame(rows):
    return pl.DataFrame(
        {"group": ["xyz"[i % 3] for i in range(len(rows))], "text": rows},
        schema={"group": pl.String, "text": pl.String},
    )


def by_loop(data):
    counts = Counter()
    for group, text in data.iter_rows():
        counts.update((group, word) for word in by_characters(text or ""))
    return counts


@settings(max_examples=60)
@given(texts, st.integers(1, 5))
def test_streamed_and_whole_counts_agree_with_a_loop(rows, batch_rows):
    # Python's and Polars's Unicode tables may be of different years: only characters that both know can agree.
    rows = [row and "".join(c for c in row if unicodedata.category(c) != "Cn") for row in rows]
    data = frame(rows)
    whole = count_words([data])
    said = whole.filter(pl.col("word").is_not_null())
    assert {(group, word): n for group, word, n in said.iter_rows()} == by_loop(data)
    assert whole["group"].unique().sort().to_list() == data["group"].unique().sort().to_list()
    assert count_words(data.iter_slices(batch_rows)).equals(whole)


def test_files_are_counted_without_reading_them_whole(tmp_path):
    rng = np.random.default_rng(0)
    vocabulary = np.array(["doctor", "well-known", "isn't", "Kind", "the", "THE"])
    data = frame([" ".join(rng.choice(vocabulary, rng.integers(0, 30))) for _ in range(1000)])
    for i, part in enumerate(data.iter_slices(130)):
        part.write_parquet(tmp_path / f"{i}.parquet", row_group_size=50)
    scanned = count_words(text_batches(pl.scan_parquet(tmp_path / "*.parquet"), "group", batch_rows=64))
    assert scanned.equals(count_words([data])) and scanned["count"].sum() > 10_000


def test_agrees_with_scikit_learn_on_plain_text():
    rng = np.random.default_rng(1)
    pieces = np.array(["The", "well-known", "isn't,", "co-op.", "(old)", "x2y", "--", "a", "man!\n"])
    data = frame([" ".join(rng.choice(pieces, 40)) for _ in range(300)])
    from sklearn.feature_extraction.text import CountVectorizer

    vectoriser = CountVectorizer(token_pattern=r"[a-z]+(?:[-'][a-z]+)*")
    matrix = vectoriser.fit_transform(data["text"].to_list())
    names = vectoriser.get_feature_names_out()
    expected = {}
    for group in "xyz":
        sums = np.asarray(matrix[(data["group"] == group).to_numpy()].sum(axis=0)).ravel()
        expected |= {(group, name): int(n) for name, n in zip(names, sums) if n}
    assert {(group, word): n for group, word, n in count_words([data]).iter_rows()} == expected


def test_a_group_without_words_is_kept_and_a_row_without_a_group_is_not():
    data = pl.DataFrame({"group": ["a", "a", "b", "b", "c", None], "text": ["", "Hi hi", None, " ", "!", "nothing"]})
    counts = count_words(text_batches(data.lazy(), "group"))
    assert counts.rows() == [("a", "hi", 2), ("b", None, 0), ("c", None, 0)]


def test_a_group_that_speaks_in_a_later_partition_is_not_wordless():
    silent, speaking = (pl.DataFrame({"group": ["a"], "text": [text]}) for text in ("", "word"))
    assert count_words([silent, speaking, silent]).rows() == [("a", "word", 1)]
