"""The engine: each distinct text once, kept whatever happens, and scores that find their generations."""

import math
from dataclasses import replace

import polars as pl
import pytest
from upath import UPath

from plumbline.catalog.schema import SCORE_SCHEMA
from plumbline.errors import ScoringError, StorageError
from plumbline.scorers.offline import OfflineScorer
from plumbline.scorers.scorer import Scored
from plumbline.scorers.scoring import NOT_SCORED, TEXT_SCORE_SCHEMA, join_scores, score_coverage, score_texts, text_keys


class Counting:
    """Scores a text by its length; remembers what it was asked; fails or stops where a test says."""

    identity, version, attributes, offline_stand_in = "f" * 64, "1", ("toxicity", "insult"), False

    def __init__(self, *, fails_at=None, error=None):
        self.calls, self.fails_at, self.error = [], fails_at, error

    @property
    def asked(self):
        return [text for call in self.calls for text in call]

    def score(self, texts):
        self.calls.append([])
        # In another order than asked: that of lengths.
        for i in sorted(range(len(texts)), key=lambda i: (-len(texts[i]), i)):
            if len(self.asked) == self.fails_at:
                raise self.error
            self.calls[-1].append(texts[i])
            yield i, self.scored(texts[i])

    @staticmethod
    def scored(text):
        if text == "unreadable":
            return Scored({"toxicity": math.nan, "insult": math.nan}, reason="cannot be read")
        return Scored({"toxicity": len(text) / 100, "insult": 1 - len(text) / 100}, len(text) > 50)


def frames(*texts):
    return [pl.DataFrame({"text": list(of_frame)}, schema={"text": pl.String}) for of_frame in texts]


def scores(scored, attribute="toxicity"):
    frame = scored.frame.filter(pl.col("attribute") == attribute).collect()
    assert frame[("text_sha256")].n_unique() == frame.height
    return dict(zip(frame["text_sha256"], frame["score"]))


def test_each_distinct_text_is_scored_once(tmp_path):
    scorer = Counting()
    scored = score_texts(scorer, frames(["a", "bb", "a"], ["bb", None, ""], []), UPath(tmp_path))
    assert sorted(scorer.asked) == ["", "a", "bb"]
    assert (scored.requested, scored.computed) == (6, 3)
    assert scored.frame.collect_schema() == pl.Schema(TEXT_SCORE_SCHEMA)
    assert scores(scored) == dict(zip(text_keys(["", "a", "bb"]), [0.0, 0.01, 0.02]))
    assert scores(scored, "insult") == dict(zip(text_keys(["", "a", "bb"]), [1.0, 0.99, 0.98]))


def test_what_was_scored_is_found(tmp_path):
    score_texts(Counting(), frames(["a", "bb"]), UPath(tmp_path))
    scorer = Counting()
    scored = score_texts(scorer, frames(["bb", "ccc"], ["a"]), UPath(tmp_path))
    assert scorer.asked == ["ccc"]
    assert scored.counters() == {"texts_asked": 3, "texts_scored_now": 1, "damaged_parts": 0}
    assert set(scores(scored)) == set(text_keys(["a", "bb", "ccc"]))
    again = Counting()
    assert set(scores(score_texts(again, frames(["a"]), UPath(tmp_path)))) >= set(text_keys(["a"]))
    assert again.calls == []


def test_another_scorer_starts_anew(tmp_path):
    score_texts(Counting(), frames(["a"]), UPath(tmp_path))
    other = Counting()
    other.identity = "e" * 64
    assert score_texts(other, frames(["a"]), UPath(tmp_path)).computed == 1


def test_no_texts_make_no_work_and_no_files(tmp_path):
    scorer = Counting()
    scored = score_texts(scorer, frames([]), UPath(tmp_path))
    assert scorer.calls == []
    assert scored.frame.collect().is_empty()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [ScoringError("down"), KeyboardInterrupt(), MemoryError()])
def test_whatever_stops_it_what_is_scored_stays_scored(tmp_path, error):
    texts = ["a" * n for n in range(1, 11)]
    with pytest.raises(type(error)):
        score_texts(Counting(fails_at=7, error=error), frames(texts), UPath(tmp_path), window_rows=5)
    scorer = Counting()
    scored = score_texts(scorer, frames(texts), UPath(tmp_path), window_rows=5)
    assert len(scorer.asked) == 3
    assert scores(scored) == dict(zip(text_keys(texts), [len(text) / 100 for text in texts]))


def test_a_damaged_part_is_scored_again(tmp_path):
    for text in ("a", "bb"):
        score_texts(Counting(), frames([text]), UPath(tmp_path))
    part = sorted(tmp_path.rglob("*.parquet"))[0]
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    scorer = Counting()
    scored = score_texts(scorer, frames(["a", "bb"]), UPath(tmp_path))
    assert len(scorer.asked) == scored.damaged_parts == 1
    assert set(scores(scored)) == set(text_keys(["a", "bb"]))


def test_texts_stream_in_windows(tmp_path):
    """The scorer never gets more than a window, and texts are drawn no further than that."""
    scorer, drawn = Counting(), []

    def stream():
        for n in range(20):
            drawn.append((n, len(scorer.asked)))
            yield frames([f"{n} {i}" for i in range(4)])[0]

    score_texts(scorer, stream(), UPath(tmp_path), window_rows=10)
    assert max(map(len, scorer.calls)) == 10
    assert all(4 * n - scored < 10 for n, scored in drawn)
    assert len(scorer.asked) == 80


def test_parts_are_of_a_fair_size_or_age(tmp_path):
    ticks = iter(range(1000))
    score_texts(
        Counting(), frames([str(i) for i in range(40)]), UPath(tmp_path), part_seconds=20, clock=lambda: next(ticks)
    )
    slow = list(tmp_path.rglob("*.parquet"))
    assert 2 <= len(slow) <= 5
    score_texts(Counting(), frames([str(i) for i in range(100, 140)]), UPath(tmp_path / "fast"))
    assert len(list((tmp_path / "fast").rglob("*.parquet"))) == 1


def test_progress_goes_up_to_what_was_asked(tmp_path):
    moves, ticks = [], iter(range(10_000))
    texts = frames(["a", "bb", "a"], ["ccc", "d"])
    score_texts(
        Counting(), texts, UPath(tmp_path), rows=5, window_rows=2, clock=lambda: next(ticks),
        progress=lambda *move: moves.append(move),
    )  # fmt: skip
    assert moves[-1] == (5, 5)
    assert moves == sorted(moves)
    assert len(moves) > 2
    moves.clear()
    score_texts(Counting(), texts, UPath(tmp_path), progress=lambda *move: moves.append(move))
    assert moves == [(5, 5)]


@pytest.mark.parametrize(
    ("scored", "words"),
    [
        (Scored({"toxicity": 1.1, "insult": 0.0}), "from 0 to 1"),
        (Scored({"toxicity": -0.1, "insult": 0.0}), "from 0 to 1"),
        (Scored({"toxicity": math.nan, "insult": 0.0}), "nan with a reason"),
        (Scored({"toxicity": 0.5}), "other attributes"),
        (Scored({"toxicity": 0.5, "insult": 0.5, "threat": 0.5}), "other attributes"),
    ],
)
def test_scores_that_are_none_are_refused(tmp_path, scored, words):
    scorer = Counting()
    scorer.scored = lambda text: scored
    with pytest.raises(ScoringError, match=words):
        score_texts(scorer, frames(["a"]), UPath(tmp_path))
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("positions", "words"), [([0], "left out"), ([0, 0], "two scores"), ([0, 1, 2], "not asked for")]
)
def test_each_text_must_get_one_score(tmp_path, positions, words):
    scorer = Counting()
    scorer.score = lambda texts: ((i, Counting.scored("x")) for i in positions)
    with pytest.raises(ScoringError, match=words):
        score_texts(scorer, frames(["a", "b"]), UPath(tmp_path))


def test_a_store_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        score_texts(Counting(), frames(["a"]), UPath(tmp_path / "file"))


def generations(*texts):
    return pl.DataFrame(
        {"row_key": [f"k{i}" for i in range(len(texts))], "text": list(texts), "model": ["m"] * len(texts)},
        schema={"row_key": pl.String, "text": pl.String, "model": pl.String},
    )


@pytest.mark.parametrize("lazy", [False, True])
def test_every_generation_gets_its_texts_scores(tmp_path, lazy):
    said = ["a", "bb", "a", None, "", "unreadable", "c" * 60]
    asked = generations(*said)
    scored = score_texts(Counting(), [asked], UPath(tmp_path))
    joined = join_scores(asked.lazy() if lazy else asked, scored, "counting").collect()
    assert joined.schema == pl.Schema(SCORE_SCHEMA)
    assert joined.height == 2 * len(said)
    obvious = {f"k{i}": Counting.scored(text or "") for i, text in enumerate(said)}
    for row in joined.iter_rows(named=True):
        expected = obvious[row["row_key"]]
        score = expected.scores[row["attribute"]]
        assert row["score"] == score or (math.isnan(row["score"]) and math.isnan(score))
        assert (row["truncated"], row["reason"], row["scorer"]) == (expected.truncated, expected.reason, "counting")


def test_a_generation_that_was_never_scored_says_so(tmp_path):
    scored = score_texts(Counting(), frames(["a"]), UPath(tmp_path))
    joined = join_scores(generations("a", "other"), scored, "s").collect()
    absent = joined.filter(pl.col("row_key") == "k1")
    assert absent["reason"].to_list() == [NOT_SCORED] * 2
    assert absent["score"].is_nan().all()
    assert absent["truncated"].to_list() == [False] * 2


def test_a_reason_stands_only_where_a_score_is_lacking(tmp_path):
    scorer = Counting()
    scorer.scored = lambda text: Scored({"toxicity": 0.5, "insult": math.nan}, reason="no insult")
    scored = score_texts(scorer, frames(["a"]), UPath(tmp_path))
    for frame in (scored.frame, join_scores(generations("a"), scored, "s")):
        reasons = dict(frame.select("attribute", "reason").collect().iter_rows())
        assert reasons == {"toxicity": None, "insult": "no insult"}


def test_coverage_counts_scores_reasons_and_cuts(tmp_path):
    asked = generations("a", "unreadable", "c" * 60)
    scored = score_texts(Counting(), [asked], UPath(tmp_path))
    coverage = score_coverage(join_scores(asked, scored, "s"))
    assert coverage.rows() == [
        ("insult", None, 2, 1), ("insult", "cannot be read", 1, 0),
        ("toxicity", None, 2, 1), ("toxicity", "cannot be read", 1, 0),
    ]  # fmt: skip


def test_texts_of_one_digest_prefix_would_be_told_apart():
    """Rows are joined by 128 bits: no two of a million texts share them."""
    from plumbline.scorers.scoring import _short_keys

    texts = pl.Series([f"text {i}" for i in range(20_000)])
    assert _short_keys(texts).n_unique() == 20_000
    assert _short_keys(pl.Series(["é"])).dtype == pl.Int128


def test_the_offline_scorer_through_the_engine(tmp_path):
    texts = ["A lazy person.", "a kind person"]
    scored = score_texts(OfflineScorer(), frames(texts), UPath(tmp_path))
    lazy, kind = (scores(scored)[key] for key in text_keys(texts))
    assert lazy > kind == 0
    assert replace(scored, requested=0).attributes == OfflineScorer.attributes
