"""Fleiss' kappa, the thresholded score and the judge against annotators, and the CSV they come from."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import fleiss_kappa as by_statsmodels

from plumbline.errors import ConfigError, MetricError
from plumbline.language import annotated_agreement as module
from plumbline.language.annotated_agreement import fleiss_kappa, judge_agreement
from plumbline.language.annotation_sheets import sheet_labels, with_score, word_id
from plumbline.language.user_files import ANNOTATION_SCHEMA, SHEETS, read_annotations
from plumbline.reasons import in_words, reason

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers" / "fleiss_kappa.json").read_text("utf-8"))
HEADER = "text_id,text,sheet,annotator,label\n"


def kappa(counts, resamples=200, seed=0):
    table = np.asarray(counts, dtype=np.int64).reshape(len(counts), -1 if len(counts) else 2)
    return fleiss_kappa(table, rng=np.random.default_rng(seed), resamples=resamples)


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["source"][:40])
def test_known_answers(case):
    found = kappa(case["inputs"]["counts"])
    if case["expected"] is None:
        assert np.isnan([found.value, found.ci_low, found.ci_high]).all()
        assert [why.code for why in found.reason] in (["no_labelled_texts"], ["one_annotator"], ["one_label"])
    else:
        assert found.value == pytest.approx(float(Fraction(case["expected"])), abs=case["tol"])
    assert found.n == len(case["inputs"]["counts"])


@settings(max_examples=50)
@given(st.integers(2, 6), st.lists(st.floats(0, 1), min_size=2, max_size=12), st.integers(0, 10**6))
def test_resamples_are_kappas_of_resampled_texts(annotators, shares, seed):
    yes = np.round(np.array(shares) * annotators).astype(np.int64)
    table = np.stack([annotators - yes, yes], axis=1)
    fast = module._resampled(table, resamples=20, rng=np.random.default_rng(seed))
    drawn = np.random.default_rng(seed).multinomial(len(table), np.full(len(table), 1 / len(table)), size=20)
    for value, times in zip(fast, drawn):
        again = np.repeat(table, times, axis=0)
        if (again.sum(axis=0) > 0).sum() < 2:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(by_statsmodels(again), abs=1e-9)


def test_the_interval_does_not_depend_on_the_size_of_a_block(monkeypatch):
    table = np.array([[3, 0], [2, 1], [0, 3], [1, 2], [3, 0], [0, 3]] * 5)
    whole = kappa(table, resamples=1_000)
    monkeypatch.setattr(module, "_BLOCK", 100)
    assert kappa(table, resamples=1_000) == whole
    assert whole.ci_low < whole.value < whole.ci_high and not whole.reason
    assert whole.n == 30


def test_complete_agreement_has_no_interval_and_says_why():
    found = kappa([[3, 0], [0, 3]] * 20)
    assert found.value == 1 and np.isnan([found.ci_low, found.ci_high]).all()
    assert in_words(found.reason) == "no interval: the resamples do not vary"


def test_the_interval_covers_the_kappa_of_all_texts():
    # The population: 3 annotators who see the truth with probability 0.9.
    rng = np.random.default_rng(3)
    truth = rng.random(200_000) < 0.4
    yes = (truth[:, None] ^ (rng.random((len(truth), 3)) < 0.1)).sum(axis=1)
    table = np.stack([3 - yes, yes], axis=1)
    target = by_statsmodels(table)
    samples = [kappa(table[i * 100 : (i + 1) * 100], resamples=300, seed=i) for i in range(200)]
    covered = np.mean([found.ci_low <= target <= found.ci_high for found in samples])
    assert 0.9 <= covered <= 0.985


@pytest.fixture
def written(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "annotations.csv"
        path.write_text(text, encoding)
        return path

    return write


def lines(*rows):
    return HEADER + "".join(f"{text_id},a text,{sheet},{who},{label}\n" for sheet, text_id, who, label in rows)


def test_annotations_are_read_with_their_lines(written):
    two_sheets = HEADER + 'k1,"two\nlines, ""quoted""",personality,anna,1\n' + HEADER + "k1,x,judge,ben,0\n"
    read = read_annotations(written(two_sheets, "utf-8-sig"))
    assert read.schema == ANNOTATION_SCHEMA
    assert read.rows() == [("personality", "k1", "anna", 1), ("judge", "k1", "ben", 0)]
    assert set(SHEETS) == {"personality", "black_subject", "judge"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("text_id,label\n", ["line 1", "sheet, annotator"]),
        ("", ["line 1", "nothing"]),
        ("sheet,text_id,annotator,label,label\n", ["column twice", "line 1", "label"]),
        (HEADER, ["no annotations", "sample-annotations"]),
        (lines(("personality", "k", "a", "1"), ("toxicity", "k", "a", "1")), ["line 3", "toxicity", "judge"]),
        (lines(("judge", "k", "a", "yes")), ["line 2, column label", "yes", "0 (no) or 1 (yes)"]),
        (lines(("judge", "k", "a", "")), ["line 2, column label", "nothing"]),
        (lines(("judge", "", "a", "1")), ["line 2, column text_id"]),
        (lines(("judge", "k", " ", "1")), ["line 2, column annotator"]),
        (lines(*[("judge", "k", "a", "1")] * 2), ["line 3", "twice", "a, k", "line 2"]),
        (HEADER + "k1,x,judge\n", ["line 2, column annotator"]),
        (HEADER + 'k1,"never closed,judge,a,1\n', ["cannot be read"]),
    ],
)
def test_annotations_that_cannot_be_used_are_refused_with_the_line(written, text, words):
    with pytest.raises(ConfigError) as caught:
        read_annotations(written(text))
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(written, tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.csv"):
        read_annotations(tmp_path / "absent.csv")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_annotations(written(HEADER, "utf-16"))


def annotations(sheet, labels):
    """Return annotations of a dict of text_id to labels, annotator by annotator; None is no label."""
    rows = [
        (sheet, text_id, f"a{i}", label)
        for text_id, own in labels.items()
        for i, label in enumerate(own)
        if label is not None
    ]
    return pl.DataFrame(rows, schema=ANNOTATION_SCHEMA, orient="row")


def test_only_texts_that_everyone_labelled_are_counted():
    given_labels = pl.concat(
        [
            annotations("personality", {"k2": (1, 1, 0), "k1": (0, 0, 0), "k3": (1, None, 1)}),
            annotations("judge", {"k1": (1, 1)}),
        ]
    )
    assert sheet_labels(given_labels, "personality").counts.rows() == [("k1", 3, 0), ("k2", 1, 2)]
    assert sheet_labels(given_labels, "judge").counts.rows() == [("k1", 0, 2)]
    assert sheet_labels(given_labels, "black_subject").counts.is_empty()


def test_a_stray_name_is_told_and_named():
    labels = {f"k{place}": (1, 0, 1) for place in range(20)}
    everyone = sheet_labels(annotations("personality", labels), "personality")
    assert (everyone.texts, everyone.annotators, everyone.few, everyone.reasons()) == (20, 3, (), ())
    stray = sheet_labels(annotations("personality", labels | {"k7": (1, 0, 1, 1), "k8": (1, None, 1)}), "personality")
    assert stray.counts.rows() == [("k7", 1, 3)] and stray.few == (("a3", 1),)
    assert [str(why) for why in stray.reasons()] == [
        "19 of 20 texts left out: not labelled by all 4 annotators",
        "few labels of a3 (1 of 20)",
    ]
    strangers = {"k7": (1, 0, 1, *[1] * 9)}
    many = str(sheet_labels(annotations("personality", labels | strangers), "personality").reasons()[1])
    assert many.count("(1 of 20)") == 5 and many.endswith(" and 4 more")
    assert sheet_labels(annotations("judge", {}), "judge").reasons() == ()


def test_a_score_is_one_annotator_more():
    counts = pl.DataFrame({"text_id": ["a", "b", "c", "d"], "no": [3, 1, 0, 3], "yes": [0, 2, 3, 0]})
    scores = pl.DataFrame({"text_id": ["b", "a", "c", "x"], "score": [0.3, 0.29, np.nan, 0.9]})
    assert with_score(counts, scores).rows() == [("a", 4, 0), ("b", 1, 3)]
    assert with_score(counts, scores, threshold=0.2).rows() == [("a", 3, 1), ("b", 1, 3)]
    with pytest.raises(MetricError, match="two scores"):
        with_score(counts, pl.concat([scores, scores]))


def test_the_judge_is_held_against_the_majority():
    # The majority names a, b, c, d; the judge names b, c, e (and z, which nobody annotated).
    labels = {"a": (1, 1, 0), "b": (1, 1, 1), "c": (0, 1, 1), "d": (1, 0, 1), "e": (0, 0, 1), "f": (0, 0, 0)}
    counts = sheet_labels(annotations("judge", labels), "judge").counts
    found = judge_agreement(counts, {"b", "c", "e", "z"})
    assert (found.precision.value, found.precision.n) == (pytest.approx(2 / 3), 3)
    assert (found.recall.value, found.recall.n) == (0.5, 4)
    assert found.precision.ci_low < 2 / 3 < found.precision.ci_high <= 1
    # Wilson's interval of 2 of 4, by hand: centre 1/2, half width z sqrt(n/4 + z^2/4) / (n + z^2).
    z = 1.959963984540054
    half = z * np.sqrt(1 + z**2 / 4) / (4 + z**2)
    assert (found.recall.ci_low, found.recall.ci_high) == pytest.approx((0.5 - half, 0.5 + half))


def test_a_judge_that_names_nothing_has_no_precision():
    counts = sheet_labels(annotations("judge", {"a": (1, 1, 0), "b": (0, 0, 0)}), "judge").counts
    found = judge_agreement(counts, [])
    assert np.isnan(found.precision.value) and found.precision.reason == (reason("none_judged"),)
    assert (found.recall.value, found.recall.n) == (0, 1)
    found = judge_agreement(counts.filter(pl.col("text_id") == "b"), ["b"])
    assert np.isnan(found.recall.value) and found.recall.reason == (reason("none_true"),) and found.precision.value == 0


def test_no_annotations_have_no_agreement():
    counts = sheet_labels(annotations("judge", {}), "judge").counts
    found = judge_agreement(counts, ["a"])
    assert np.isnan([found.precision.value, found.recall.value]).all()
    assert kappa(counts.select("no", "yes").to_numpy()).reason == (reason("no_labelled_texts"),)


def test_the_same_word_of_two_groups_is_two_items():
    assert word_id("race_gender", "Black_man", "jail") == "race_gender/Black_man/jail"
