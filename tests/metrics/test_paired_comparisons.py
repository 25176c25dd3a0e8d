"""Paired comparisons of scores: whole numbers, in the draws, the jackknife and the test of the groups."""

import numpy as np
import pytest
from scipy import stats

from plumbline.metrics import MetricSettings
from plumbline.metrics.disparities import Statistic
from plumbline.metrics.paired import effects
from plumbline.metrics.paired.effects import (
    CHECKPOINTS,
    MITIGATION,
    Comparison,
    PairedAnswers,
    everyone,
    homogeneity_p_value,
    paired_rows,
)
from plumbline.statistics.groups import Groups
from plumbline.statistics.paired import draw_answers, leave_one_out

QUICK = MetricSettings(seed=5, resamples=400, permutations=400, min_group=10)
MEAN = Statistic("mean", "of_scores", lambda x, n: x.sum(axis=(-2, -1)) / n.sum(axis=(-2, -1)), over=None)
RANGE = Statistic("range", "of_means", lambda x, n: np.ptp(x / n, axis=-1)[..., 0])


@pytest.fixture(scope="module")
def scored():
    """Return (2, n) scores of 0 to 3, groups of which some images are in none, and sets of three."""
    rng = np.random.default_rng(7)
    groups = rng.choice([-1, 0, 1], size=90, p=[0.1, 0.5, 0.4])
    first = rng.integers(0, 4, 90)
    return np.stack([first, np.where(rng.random(90) < 0.5, first, 1)]), groups, np.arange(90) // 3


def drawn(scored, clusters=None):
    return draw_answers(
        scored[0], scored[1], n_groups=2, resamples=3000, permutations=3000,
        rng=np.random.default_rng(1), clusters=clusters,
    )  # fmt: skip


def test_scores_are_summed_as_a_loop_over_images_sums_them(scored):
    scores, groups, sets = scored
    rng = np.random.default_rng(3)
    slow = np.empty((2, 2, 3000))
    for group in (0, 1):
        own = scores[:, groups == group]
        for r in range(3000):
            slow[:, group, r] = own[:, rng.integers(0, own.shape[1], own.shape[1])].sum(axis=1)
    draws = drawn(scored)
    for group in (0, 1):
        assert draws.counts[:, group].tolist() == scores[:, groups == group].sum(axis=1).tolist()
        np.testing.assert_allclose(np.cov(draws.resampled[:, group]), np.cov(slow[:, group]), rtol=0.15, atol=1)
        np.testing.assert_allclose(draws.halves[:, group].mean(axis=1), draws.counts[:, group] / 2, rtol=0.02)
    np.testing.assert_array_equal(drawn(scored, sets).counts, draws.counts)


def test_sets_of_scores_are_drawn_whole(scored):
    """One set is half of what there is: a draw holds all of its scores or none."""
    draws = draw_answers(
        np.array([[3, 3, 1, 1]]), np.zeros(4, dtype=np.int64), n_groups=1, resamples=500, permutations=500,
        rng=np.random.default_rng(0), clusters=np.array([0, 0, 1, 1]),
    )  # fmt: skip
    assert set(draws.resampled[0, 0]) == {4.0, 8.0, 12.0} and set(draws.halves[0, 0]) == {0.0, 2.0, 6.0, 8.0}


def test_leaving_one_image_out_is_leaving_that_image_out(scored):
    scores, groups, sets = scored
    left = leave_one_out(scores[:1], scores[1:], groups, n_groups=2)
    expected = {}
    for image in np.flatnonzero(groups >= 0):
        others = (np.arange(90) != image) & (groups >= 0)
        sums = tuple(int(s) for row in scores for s in np.bincount(groups[others], row[others]))
        expected[sums] = expected.get(sums, 0) + 1
    found = {}
    for first, second, kind in zip(left.first[:, 0], left.second[:, 0], left.kinds[np.nonzero(left.kinds)]):
        sums = (*first.tolist(), *second.tolist())
        found[sums] = found.get(sums, 0) + int(kind)
    assert found == expected
    whole = leave_one_out(scores[:1], scores[1:], groups, n_groups=2, clusters=sets)
    kept = (groups >= 0) & (sets != 5)
    # Position 5 among the sets that have an image that counts.
    place = len(np.unique(sets[(groups >= 0) & (sets < 5)]))
    assert whole.first[place, 0].tolist() == np.bincount(groups[kept], scores[0, kept], minlength=2).tolist()


def test_scores_of_one_test_are_tested_as_answers_are():
    rng = np.random.default_rng(0)
    hit, codes = rng.random(300) < 0.3, np.arange(300) % 3
    counts, totals = np.bincount(codes, hit)[None].astype(int), np.bincount(codes)
    assert homogeneity_p_value(counts, totals, variances=hit[None].var(axis=1)) == pytest.approx(
        homogeneity_p_value(counts, totals), rel=1e-12
    )
    scores = rng.integers(0, 3, 300) + (codes == 0) * rng.integers(0, 2, 300)
    scores = np.where(rng.random(300) < 0.5, scores, rng.permutation(scores))
    sums = np.bincount(codes, scores)[None].astype(int)
    found = homogeneity_p_value(sums, totals, variances=scores[None].var(axis=1))
    # The sum of squares between groups over the total variance: close to F for three groups of a hundred.
    assert found == pytest.approx(stats.f_oneway(*(scores[codes == g] for g in range(3))).pvalue, rel=0.1)
    assert 0.001 < found < 0.9
    assert homogeneity_p_value(sums, totals, variances=np.zeros(1)) == 1.0


def test_rows_say_what_the_sides_are_called():
    """Mean scores 2 and 1 among forty and forty images, 1 and 1 on the other side."""
    codes = np.repeat([0, 1], 40)
    rng = np.random.default_rng(2)
    after = np.where(codes == 0, 2, 1) + rng.integers(-1, 2, 80)
    before = 1 + np.concatenate([rng.permutation(np.tile([-1, 0, 1, 0], 10)) for _ in range(2)])
    answers = PairedAnswers({"after": {("x",): after}, "before": {("x",): before}})
    compared = [
        Comparison((("x",),), everyone(codes >= 0), (MEAN,), {"event": "x"}),
        Comparison((("x",),), Groups("letter", ("a", "b"), codes), (RANGE,), {"event": "x"}),
    ]
    rows = paired_rows(answers, compared, [("after", "before")], named=("test",), settings=QUICK, names=MITIGATION)
    (_, mean), (_, spread) = rows
    assert mean["value"] == pytest.approx(after.mean() - before.mean()) and mean["reason"] is None
    assert mean["ci_low"] < mean["value"] < mean["ci_high"] and mean["p"] < 0.01 and mean["n"] == 80
    gap = after[:40].mean() - after[40:].mean()
    assert spread["value_first"] == pytest.approx(abs(gap)) and spread["event"] == "x"
    assert spread["reason"] == (
        "interval reaches to parity of the state before the mitigation: its groups may be alike"
    )
    assert spread["ci_low"] < spread["value"] < spread["ci_high"]


def test_equal_answers_are_known_to_differ_by_nothing_without_a_draw(monkeypatch):
    codes, rng = np.repeat([0, 1], 40), np.random.default_rng(2)
    same = {("x",): rng.integers(0, 4, 80)}
    answers = PairedAnswers({"one": same, "copy": dict(same), "other": {("x",): rng.integers(0, 4, 80)}})
    compared = [
        Comparison((("x",),), everyone(codes >= 0), (MEAN,), {}),
        Comparison((("x",),), Groups("letter", ("a", "b"), codes), (RANGE,), {}),
    ]

    def rows(*pairs):
        return paired_rows(answers, compared, pairs, named=("test",), settings=QUICK)

    beside = [row for pair, row in rows(("one", "copy"), ("one", "other")) if pair == 0]
    monkeypatch.setattr(effects, "draw_answers", None)
    alone = [row for _, row in rows(("one", "copy"))]
    assert str(alone) == str(beside) and len(alone) == 2
    for row in alone:
        assert row["value"] == 0 and np.isnan(row["ci_low"]) and row["p"] == 1
        assert row["reason"] == "no interval: the resamples do not vary"


def test_without_images_or_groups_there_is_nothing_to_compare():
    answers = PairedAnswers({side: {("x",): np.ones(9, dtype=bool)} for side in ("one", "other")})
    one_group = Groups("letter", ("a", "b"), np.zeros(9, dtype=np.int64))
    none = everyone(np.zeros(9, dtype=bool))

    def rows(*compared, pairs=(("one", "other"),)):
        return paired_rows(answers, compared, pairs, named=("test",), settings=QUICK)

    assert rows(Comparison((("x",),), none, (MEAN,), {})) == []
    assert rows(Comparison((("x",),), one_group, (RANGE,), {})) == []
    assert len(rows(Comparison((("x",),), one_group, (RANGE, MEAN), {}))) == 1
    assert rows(Comparison((("y",), ("x",)), everyone(np.ones(9, dtype=bool)), (MEAN,), {})) == []


def test_names_of_sides():
    assert str(CHECKPOINTS.undefined(np.nan, np.nan)) == "undefined for the first and the second checkpoint"
    assert str(MITIGATION.undefined(1.0, np.nan)) == "undefined for the state before the mitigation"
    assert MITIGATION.describe((True, True)) == "the state after and before the mitigation"
