"""Stored scores: what files are accepted, every bad value with its line, coverage."""

import gzip
import math
import zlib
from hashlib import sha256

import polars as pl
import pytest
from upath import UPath

from plumbline.errors import ConfigError, ScoringError
from plumbline.scorers.scoring import join_scores, score_coverage, score_texts, text_keys
from plumbline.scorers.stored import NO_VALUE, NOT_STORED, StoredScorer, StoredSettings, read_stored


def written(folder, content, name="scores.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def scorer_of(path, columns=None):
    return StoredScorer(read_stored(path, columns))


def score(path, *texts, columns=None):
    found = dict(scorer_of(path, columns).score(texts))
    return [found[i] for i in range(len(texts))]


def refused(path, *words, columns=None):
    with pytest.raises(ScoringError) as caught:
        read_stored(path, columns)
    for word in words:
        assert word in str(caught.value)


def test_a_csv_by_text_in_the_apis_names(tmp_path):
    path = written(
        tmp_path, 'text,TOXICITY,IDENTITY_ATTACK,SEVERE_TOXICITY\n"a, b",0.25,0,9\n"two\nlines, ""said""",1,0.125,9\n'
    )
    first, second, absent = score(path, "a, b", 'two\nlines, "said"', "a")
    assert first.scores == {"toxicity": 0.25, "identity_attack": 0.0}
    assert second.scores == {"toxicity": 1.0, "identity_attack": 0.125}
    assert first.reason is second.reason is None
    assert absent.reason == NOT_STORED
    assert list(absent.scores) == ["toxicity", "identity_attack"]
    assert all(math.isnan(value) for value in absent.scores.values())


def test_the_file_that_is_named_is_read_whatever_signs_its_name_holds(tmp_path):
    written(tmp_path, "text,toxicity\na,0.9\n", name="s1.csv")
    path = written(tmp_path, "text,toxicity\na,0.1\n", name="s[1].csv")
    (found,) = score(path, "a")
    assert found.scores == {"toxicity": 0.1}


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_compressed_csv_is_refused_and_not_unpacked(tmp_path, pack):
    refused(written(tmp_path, pack(b"text,toxicity\na,0.1\n")), "compressed", "unpack them first")


def test_digests_in_place_of_texts_in_parquet(tmp_path):
    texts = ["é", "", "b"]
    frame = pl.DataFrame(
        {
            "text_sha256": [sha256(text.encode()).hexdigest().upper() for text in texts],
            "Flirtation score": pl.Series([0.1, 0.2, None], dtype=pl.Float32),
            "truncated": [True, False, False],
        }
    )
    frame.write_parquet(tmp_path / "scores.parquet")
    first, second, third = score(tmp_path / "scores.parquet", *texts)
    assert (first.scores, first.truncated) == ({"flirtation": 0.1}, True)
    assert (second.scores, second.truncated) == ({"flirtation": 0.2}, False)
    assert math.isnan(third.scores["flirtation"])
    assert third.reason == NO_VALUE


def test_what_the_engine_keeps_can_be_read_again(tmp_path):
    """So that scores can be handed on without texts."""
    path = written(tmp_path, "text,toxicity,insult\na,0.5,0.25\nb,1,0\n")
    texts = pl.DataFrame({"row_key": ["1", "2", "3"], "text": ["a", "b", "c"]})
    scored = score_texts(scorer_of(path), [texts], UPath(tmp_path / "store"))
    kept = tmp_path / "kept.parquet"
    scored.kept.collect().write_parquet(kept)
    again = [one.scores for one in score(kept, "a", "b")]
    assert [one["toxicity"] for one in again] == [0.5, 1.0]
    assert again[0]["insult"] == 0.25


def test_columns_of_other_names_are_named(tmp_path):
    path = written(tmp_path, "generation,tox,toxicity_score\na,0.5,0.9\n")
    (found,) = score(path, "a", columns={"text": "generation", "toxicity": "tox"})
    assert found.scores == {"toxicity": 0.5}
    refused(path, "no column for `text`", "answer", columns={"text": "answer"})
    assert (
        scorer_of(path, {"text": "generation"}).identity
        != scorer_of(path, {"text": "generation", "toxicity": "tox"}).identity
    )


def test_equal_repeats_are_one_and_different_ones_are_refused(tmp_path):
    path = written(tmp_path, "text,toxicity,insult\na,0.5,\nb,0.1,0\na,0.50,\n")
    assert read_stored(path).rows.height == 2
    assert score(path, "a")[0].scores["toxicity"] == 0.5
    path = written(tmp_path, 'text,toxicity\n"two\nlines",0.5\nb,0.1\n"two\nlines",0.6\n')
    refused(path, "two different scores", "line 5", "line 2")


@pytest.mark.parametrize("value", ["1.5", "-0.1", "high", "inf", "0,5"])
def test_a_value_that_is_no_score_is_refused_with_its_line(tmp_path, value):
    path = written(tmp_path, f'text,toxicity\n"two\nlines",0.5\nb,"{value}"\nc,2\n')
    refused(path, "`toxicity` is not from 0 to 1", f"{path}, line 4", value)


def test_a_value_of_a_parquet_that_is_no_score_is_refused_with_its_row(tmp_path):
    pl.DataFrame({"text": ["a", "b"], "insult": [0.5, 1.01]}).write_parquet(tmp_path / "s.parquet")
    refused(tmp_path / "s.parquet", "`insult` is not from 0 to 1", "row 2", "1.01")


@pytest.mark.parametrize("empty", ["", "nan", "NaN", " "])
def test_no_score_is_none(tmp_path, empty):
    path = written(tmp_path, f"text,toxicity,insult\na,{empty},0.5\n")
    (found,) = score(path, "a")
    assert math.isnan(found.scores["toxicity"])
    assert found.scores["insult"] == 0.5
    assert found.reason == NO_VALUE


def test_digests_are_checked(tmp_path):
    right, wrong = text_keys(["a", "b"])
    both = "text,text_sha256,toxicity\na,{},0.5\n"
    assert score(written(tmp_path, both.format(right)), "a")[0].reason is None
    refused(written(tmp_path, both.format(wrong)), "sha256 of another text", "line 2", wrong)
    refused(written(tmp_path, f"text_sha256,toxicity\n{right},0.5\nabc,0.5\n"), "no sha256", "line 3", "abc")
    refused(written(tmp_path, f"text_sha256,toxicity\n{right},0.5\n,0.5\n"), "no sha256", "line 3")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("answer,toxicity\na,0.5\n", ("lack a column", "answer, toxicity", "`columns`")),
        ("text,threat\na,0.5\n", ("lack a column", "toxicity, insult")),
        ("text,toxicity,TOXICITY\na,0.5,0.5\n", ("two columns for `toxicity`",)),
        ("text,toxicity,toxicity\na,0.5,0.6\n", ("two columns for `toxicity`", "text, toxicity, toxicity")),
        ("\ntext,toxicity,text\na,0.5,b\n", ("two columns for `text`",)),
        ("", ("cannot be read",)),
        (b"text,toxicity\n\xff\xfe,0.5\n", ("cannot be read",)),
        ("text,toxicity\na,0.5,0.6,0.7\n", ("cannot be read",)),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content, words):
    refused(written(tmp_path, content), *words)


def test_a_field_without_end_is_no_place_to_fail(tmp_path):
    long = "x" * ((1 << 24) + 1)
    refused(written(tmp_path, f"text,toxicity,{long}\na,0.5,b\n"), "cannot be read", "field larger")
    refused(written(tmp_path, f"text,toxicity\n{long},0.5\nb,2\n"), "`toxicity` is not from 0 to 1", "row 2")


def test_a_file_that_is_absent_or_no_parquet_is_refused(tmp_path):
    refused(tmp_path / "none.csv", "cannot be read", "none.csv")
    refused(written(tmp_path, "text,toxicity\n", "s.parquet"), "cannot be read")


def test_a_file_without_rows_has_no_scores(tmp_path):
    (found,) = score(written(tmp_path, "text,toxicity\n"), "a")
    assert found.reason == NOT_STORED


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert score(written(tmp_path, "\ufefftext,toxicity\na,0.5\n"), "a")[0].scores == {"toxicity": 0.5}


def test_coverage_is_counted(tmp_path):
    path = written(tmp_path, "text,toxicity,insult\na,0.5,\nb,0.1,0.2\n")
    asked = pl.DataFrame({"row_key": ["1", "2", "3", "4"], "text": ["a", "b", "c", "c"]})
    scored = score_texts(scorer_of(path), [asked], UPath(tmp_path / "store"))
    assert score_coverage(join_scores(asked, scored, "perspective-2024")).rows() == [
        ("insult", NOT_STORED, 2, 0), ("insult", None, 1, 0), ("insult", NO_VALUE, 1, 0),
        ("toxicity", None, 2, 0), ("toxicity", NOT_STORED, 2, 0),
    ]  # fmt: skip


def test_the_identity_follows_the_file(tmp_path):
    path = written(tmp_path, "text,toxicity\na,0.5\n")
    first = scorer_of(path)
    assert scorer_of(path).identity == first.identity
    assert first.version.startswith("scores.csv ")
    written(tmp_path, "text,toxicity\na,0.6\n")
    assert scorer_of(path).identity != first.identity


def test_many_texts_are_looked_up_as_one_by_one(tmp_path):
    texts = [f"text {i}" for i in range(3000)]
    values = [i / 3000 for i in range(3000)]
    pl.DataFrame({"text": texts, "toxicity": values}).write_parquet(tmp_path / "s.parquet")
    found = score(tmp_path / "s.parquet", *reversed(texts), "absent")
    assert [one.scores["toxicity"] for one in found[:-1]] == values[::-1]
    assert found[-1].reason == NOT_STORED


def test_a_path_of_the_audit_file_starts_at_the_project(tmp_path):
    written(tmp_path, "text,toxicity\na,0.5\n")
    settings = StoredSettings(kind="stored", path="scores.csv")
    scorer = settings.load(project=tmp_path, fetched=tmp_path, placement=None)
    assert next(scorer.score(["a"]))[1].scores == {"toxicity": 0.5}
    before = settings.content(project=tmp_path, fetched=tmp_path)
    written(tmp_path, "text,toxicity\na,0.6\n")
    assert settings.content(project=tmp_path, fetched=tmp_path) != before
    with pytest.raises(ConfigError, match="is not there"):
        settings.content(project=tmp_path / "elsewhere", fetched=tmp_path)
