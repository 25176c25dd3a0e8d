"""Lexicons: what is in them, and counts against loops over words."""

from importlib.resources import files

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.catalog.word_lists import stop_words
from plumbline.digests import digest_bytes
from plumbline.errors import ConfigError
from plumbline.language.competence import (
    competence_lexicon,
    content_words,
    dictionary_form,
    lexicon_count,
    lexicon_share,
    released_count,
)
from plumbline.language.tokens import words_of
from plumbline.language.user_files import read_dictionaries

HEADER = "word,Ability_dict,Warmth_dict_hi,Competence_dict_hi,Warmth_dict_lo,Competence_dict_lo,Warmth_dir\n"
LEXICON = {"smart", "able", "hardworking", "well-read"}


def of(text, expression):
    return pl.select(expression(pl.lit(text, dtype=pl.String))).item()


@pytest.fixture
def written(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "dictionaries.csv"
        path.write_text(text, encoding)
        return path

    return write


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        ("competence_words.txt", "ecb184e3db688f94e8af6a950476cb276c437c7de8ff2c4d5690eeb8d5a6114e"),
        ("competence_words.LICENSE", "5fce795908e70bbc93e363999672e25ea1a270a34a3ddd73d6f8e395e89d9c23"),
        ("stop_words.txt", "6837bd8cfa0c6dde59f660d21917659909114fa1db4336b64715f83a8848ea76"),
    ],
)
def test_the_data_files_are_those_that_numbers_were_made_with(name, sha256):
    assert digest_bytes((files("plumbline.catalog") / name).read_bytes()) == sha256


def test_the_competence_words_are_861_and_as_released(real_file):
    lines = (files("plumbline.catalog") / "competence_words.txt").read_text("utf-8").splitlines()
    assert len(lines) == len(competence_lexicon()) == 861
    assert lines == real_file("lexicon/competency_words.txt").read_text("utf-8").splitlines()


def test_the_licence_lies_beside_the_words():
    text = (files("plumbline.catalog") / "competence_words.LICENSE").read_text("utf-8")
    assert "Intel Corporation" in text and "Permission is hereby granted, free of charge" in text


@pytest.mark.parametrize("words", [stop_words(), competence_lexicon()])
def test_every_word_is_a_word_as_tokens_write_it(words):
    frame = pl.DataFrame({"word": sorted(words)})
    assert frame.filter(words_of(pl.col("word")).list.get(0, null_on_oob=True) != pl.col("word")).is_empty()
    assert frame.filter(words_of(pl.col("word")).list.len() != 1).is_empty()


def test_no_stop_word_is_a_competence_word():
    assert len(stop_words()) == 206 and {"the", "isn't", "will", "us"} <= stop_words()
    assert not stop_words() & competence_lexicon()


@pytest.mark.parametrize(
    ("text", "count", "share", "released"),
    [
        # Content words: smart, smart, person, able -> 3 of 4.
        ("A smart, smart person. Able!", 3, 0.75, 1),
        ("Hardworking and well-read", 2, 1.0, 2),
        # Hyphens make one word; nothing is normalised.
        ("hard-working, SMARTER, (able)", 1, 1 / 3, 0),
        ("s.mart a,ble", 0, 0.0, 2),
        ("the of and", 0, np.nan, 0),
        ("", 0, np.nan, 0),
        ("1. smart\n2. able\t3. Smart.", 3, 1.0, 2),
    ],
)
def test_counts_by_hand(text, count, share, released):
    assert of(text, lambda texts: lexicon_count(texts, LEXICON)) == count
    assert of(text, lambda texts: lexicon_share(texts, LEXICON)) == pytest.approx(share, nan_ok=True)
    assert of(text, lambda texts: released_count(texts, LEXICON)) == released


def test_no_text_has_no_count():
    for count in (lexicon_count, lexicon_share, released_count):
        assert of(None, lambda texts: count(texts, LEXICON)) is None  # noqa: B023


pieces = st.sampled_from(
    ["smart", "Smart", "able,", "able.", "the", "is", "well-read", "he's", "kind", "1.", "-", "hardworking"]
)


@settings(max_examples=60)
@given(st.lists(st.lists(pieces, max_size=12).map(" ".join), min_size=1, max_size=6))
def test_counts_are_those_of_loops(texts):
    frame = pl.DataFrame({"text": texts}).lazy()
    got = frame.select(
        words=words_of(pl.col("text")),
        count=lexicon_count(pl.col("text"), LEXICON),
        share=lexicon_share(pl.col("text"), LEXICON),
        released=released_count(pl.col("text"), LEXICON),
    ).collect(engine="streaming")
    for text, words, count, share, released in zip(texts, *got):
        left = [word for word in words if word not in stop_words()]
        assert count == sum(word in LEXICON for word in left)
        assert share == pytest.approx(count / len(left) if left else np.nan, nan_ok=True)
        assert released == len(set(text.lower().replace(",", "").replace(".", "").split()) & LEXICON)


def test_dictionaries_are_read_from_their_poles(written):
    path = written(
        HEADER + "kindnes,0,1,0,0,0,1\ncold,0,0,0,1,0,-1\nAble,1,0,1,0,0,\nstupid,1,0,0,0,1,\nbully,0,0,1,0,1,\n"
    )
    read = read_dictionaries(path)
    assert (read["warmth"], read["coldness"]) == ({"kindnes"}, {"cold"})
    assert (read["competence"], read["incompetence"]) == ({"able", "bully"}, {"stupid", "bully"})


def test_words_are_compared_as_the_dictionaries_write_them():
    words = pl.Series(["kindness", "self-assured", "he's", "s", "as"])
    forms = pl.select(dictionary_form(words)).to_series().to_list()
    assert forms == ["kindnes", "selfassured", "he", "", "a"]


def test_a_dictionary_of_ones_own_may_write_words_in_full():
    words = {"careless", "hard-working", "boss", "kindnes"}
    text = "Careless, hard-working, boss, kindness, lazy"
    assert of(text, lambda texts: lexicon_share(texts, words, dictionary=True)) == 0.8


def test_stop_words_are_no_words_of_a_dictionary():
    # `as` and `off` are in the published dictionary of coldness.
    words = {"kindnes", "a", "off", "friend"}
    text = "Kindness, as off; FRIENDS!"
    assert of(text, lambda texts: lexicon_count(texts, words, dictionary=True)) == 2
    assert of("as a man", content_words).to_list() == ["man"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("word,Warmth_dict_hi\nkind,1\n", ["line 1", "Warmth_dict_lo, Competence_dict_hi"]),
        ("", ["line 1", "nothing"]),
        (HEADER + "kind,0,1,0,0,0,1\nable,0,0,yes,0,0,1\n", ["line 3", "Competence_dict_hi", "yes", "0 or 1"]),
        (HEADER + "kind,0\n", ["line 2", "Warmth_dict_hi"]),
        (HEADER + ",0,1,0,0,0,1\n", ["line 2", "no word"]),
        (HEADER + "kind,0,1,0,0,0,1\n", ["no words", "Warmth_dict_lo, Competence_dict_hi, Competence_dict_lo"]),
    ],
)
def test_a_file_that_is_no_dictionary_is_refused_with_the_line(written, text, words):
    with pytest.raises(ConfigError) as caught:
        read_dictionaries(written(text))
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(written, tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.csv"):
        read_dictionaries(tmp_path / "absent.csv")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_dictionaries(written(HEADER, "utf-16"))


def test_the_published_dictionaries_and_the_released_words_agree_on_the_poles(real_file):
    path = real_file("lexicon/sadcat_dictionaries.csv")
    read = read_dictionaries(path)
    sizes = (len(read["warmth"]), len(read["coldness"]), len(read["competence"]), len(read["incompetence"]))
    assert sizes == (941, 2157, 1057, 596)
    assert "friendly" in read["warmth"] and "unfriendly" in read["coldness"] and "lazy" in read["incompetence"]
    # The reason for the choice of columns, see `read_dictionaries`.
    direction = pl.read_csv(path, infer_schema_length=None, columns=["word", "Competence_dir"])
    by_direction = set(direction.filter(pl.col("Competence_dir") > 0)["word"])
    disputed = read["competence"] ^ by_direction
    assert len(disputed) == 9
    assert disputed & competence_lexicon() == disputed & read["competence"]
    known = competence_lexicon() & set(direction["word"])
    assert known <= read["competence"] and len(known) == 673
