"""Errors of word associations: by hand, and coverage where words come in clumps."""

from math import log, sqrt

import numpy as np
import polars as pl
import pytest
from scipy.special import stdtrit

from plumbline.language.words import association_errors, word_associations


def errors(times, words, **settings):
    return association_errors(np.array(times), np.array(words), **settings)


def test_by_hand():
    """Shares of blocks: word 1/6 1/3 1/2 against all words 1/3 each; others 1/3 each against 1/6 1/3 1/2.

    So z is -1/3, 0, 1/3, for the other group with opposite sign, and the variance 3/2 x 2/9 = 1/3.
    """
    times, words = 10 * np.array([[[1], [2], [3]], [[2], [2], [2]]]), [[100, 100, 100], [100, 200, 300]]
    for base in (2, 10):
        found = errors(times, words, log_base=base)
        np.testing.assert_allclose(found.error, [[sqrt(1 / 3) / log(base)]] * 2, atol=1e-12)
        assert found.degrees.tolist() == [2]


def test_never_surer_than_independent_counts():
    """The same shares in every block: z is 0, and the variance 1/6 + 1/12."""
    times, words = [[[2], [2], [2]], [[4], [4], [4]]], [[10, 10, 10], [50, 50, 50]]
    found = errors(times, words, log_base=np.e).error
    np.testing.assert_allclose(found, [[sqrt(1 / 6 + 1 / 12)]] * 2, atol=1e-12)


def test_a_word_that_others_never_say_has_the_variance_of_half_a_count():
    """z of the group is -1/6, 0, 1/6: 3/2 x 1/18 = 1/12 < 1/6, and 2 for the half. The others do not say it."""
    found = errors([[[1], [2], [3]], [[0], [0], [0]]], [[10, 10, 10], [10, 20, 30]], log_base=np.e)
    assert found.error[0, 0] == pytest.approx(sqrt(1 / 6 + 2), abs=1e-12)
    assert np.isnan(found.error[1, 0])


def test_a_word_said_of_one_group_alone_is_no_weaker_evidence_than_one_that_is_said_once_of_the_others():
    blocks = 40
    own = np.zeros((2, blocks, 1), dtype=np.int64)
    own[0, :15] = 1
    words = np.full((2, blocks), 100)
    never = association_errors(own, words, log_base=2)
    own[1, 20] = 1
    once = association_errors(own, words, log_base=2)
    # log2(15 / 1) in both: said once, and never but taken as once.
    assert never.once[0, 0] == pytest.approx(once.error[0, 0], rel=0.02) and once.once[0, 0] == once.error[0, 0]
    assert never.error[0, 0] > 1.3 * once.error[0, 0]


def test_one_block_or_no_others_say_nothing():
    assert np.isnan(errors([[[3]], [[2]]], [[9], [9]]).error).all()
    assert np.isnan(errors([[[3], [4]]], [[9, 9]]).error).all()
    assert np.isnan(errors([[[3], [4]], [[0], [0]]], [[9, 9], [0, 0]]).error).all()
    one_block = errors([[[3], [0]], [[2], [0]]], [[9, 9], [9, 9]])
    assert np.isnan(one_block.error).all() and one_block.degrees.tolist() == [0]


def test_intervals_hold_where_words_come_in_clumps_and_poisson_ones_do_not():
    """Each of 600 words is called for by one scene in five, there for all three groups, and twice as often of one."""
    rng = np.random.default_rng(5)
    sets, blocks, words = 400, 40, 600
    scene = rng.random((sets, words)) < 0.2
    rate = np.array([4.0, 2.0, 2.0])[:, None, None] * scene * rng.gamma(0.5, 2.0, (3, sets, words))
    times = rng.poisson(rate).reshape(3, blocks, sets // blocks, words).sum(axis=2)
    totals = np.full((3, blocks), 100_000)
    totals[0] += 7
    counts = np.concatenate([times.sum(axis=1), (totals.sum(axis=1) - times.sum(axis=(1, 2)))[:, None]], axis=1)
    group, word = np.nonzero(counts)
    names = pl.DataFrame({"group": group, "word": word}).select(pl.format("{}", "group"), pl.format("{}", "word"))
    found = word_associations(
        names.with_columns(count=pl.Series(counts[group, word])), min_count=1, threshold=-np.inf
    ).filter(group="0")
    association = found.cast({"word": pl.Int64}).filter(pl.col("word") < words).sort("word")["association"].to_numpy()
    error = errors(times, totals).error[0]
    half = stdtrit(blocks - 1, 0.975)
    covered = np.abs(association - 1) < half * error
    assert 0.92 < covered.mean() < 0.975
    f, others = times[0].sum(axis=0), times[1:].sum(axis=(0, 1))
    poisson = np.sqrt(1 / f + 1 / others) / log(2)
    assert (np.abs(association - 1) < 1.96 * poisson).mean() < 0.75
