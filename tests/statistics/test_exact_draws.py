"""Binomial and hypergeometric numbers have their exact distribution, whichever way they are drawn."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import binom, chisquare, hypergeom

from plumbline.errors import MetricError
from plumbline.statistics import sampling
from plumbline.statistics.sampling import binomial, hypergeometric

DRAWS = 100_000


def fits(drawn, probability):
    """Return p of the goodness of fit of whole numbers, values of few expected draws taken together."""
    values = np.arange(drawn.max() + 1)
    observed, expected = np.bincount(drawn), len(drawn) * probability(values)
    often = expected >= 10
    observed = np.append(observed[often], len(drawn) - observed[often].sum())
    expected = np.append(expected[often], len(drawn) - expected[often].sum())
    if expected[-1] < 5:
        observed, expected = (
            np.append(observed[:-2], observed[-2:].sum()),
            np.append(expected[:-2], expected[-2:].sum()),
        )
    return chisquare(observed, expected).pvalue


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize(
    ("good", "total", "sample"), [(1600, 6000, 780), (3, 20, 7), (50, 60, 55), (1, 1000, 10), (900, 1000, 980)]
)
def test_hypergeometric_numbers(good, total, sample, varying):
    parameters = [np.full(DRAWS, each) if varying else each for each in (good, total, sample)]
    drawn = hypergeometric(*parameters, draws=DRAWS, rng=np.random.default_rng(1))
    assert fits(drawn, lambda k: hypergeom.pmf(k, total, good, sample)) > 1e-3


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize(("trials", "share"), [(780, 0.27), (5, 0.01), (30, 0.95), (1, 0.5), (5000, 0.001)])
def test_binomial_numbers(trials, share, varying):
    drawn = binomial(np.full(DRAWS, trials) if varying else trials, share, draws=DRAWS, rng=np.random.default_rng(2))
    assert fits(drawn, lambda k: binom.pmf(k, trials, share)) > 1e-3


def test_each_draw_has_parameters_of_its_own():
    good = np.resize([0, 40, 400, 800], DRAWS)
    drawn = hypergeometric(good, 800, 300, draws=DRAWS, rng=np.random.default_rng(3))
    assert (drawn[good == 0] == 0).all()
    assert (drawn[good == 800] == 300).all()
    for each in (40, 400):
        assert fits(drawn[good == each], partial(hypergeom.pmf, M=800, n=each, N=300)) > 1e-3


def test_nothing_to_draw_from():
    rng = np.random.default_rng(4)
    assert binomial(0, 0.3, draws=3, rng=rng).tolist() == [0, 0, 0]
    assert binomial(np.array([0, 5, 0]), 1.0, draws=3, rng=rng).tolist() == [0, 5, 0]
    assert hypergeometric(0, 0, 0, draws=3, rng=rng).tolist() == [0, 0, 0]
    assert hypergeometric(np.zeros(3, dtype=np.int64), 1, 1, draws=3, rng=rng).tolist() == [0, 0, 0]


def test_more_images_than_are_tabulated_are_drawn_too(monkeypatch):
    monkeypatch.setattr(sampling, "_TABULATED", 100)
    rng = np.random.default_rng(5)
    assert fits(binomial(780, 0.27, draws=DRAWS, rng=rng), lambda k: binom.pmf(k, 780, 0.27)) > 1e-3
    drawn = hypergeometric(np.full(DRAWS, 40), 800, 300, draws=DRAWS, rng=rng)
    assert fits(drawn, partial(hypergeom.pmf, M=800, n=40, N=300)) > 1e-3


def test_the_box_of_proposals_holds_every_value():
    # Each value k is proposed at distances up to |k - centre| and |k + 1 - centre|, times sqrt(mass / largest mass).
    rng = np.random.default_rng(6)
    for total in [*range(1, 12), 60, 500, 4000]:
        for good, sample in rng.integers(0, total + 1, (12, 2)).tolist():
            k = np.arange(max(0, good + sample - total), min(good, sample) + 1)
            mass = hypergeom.pmf(k, total, good, sample)
            mean = good * sample / total
            variance = mean * (1 - good / total) * (total - sample) / max(total - 1, 1)
            distance = np.maximum(np.abs(k - mean - 0.5), np.abs(k + 0.5 - mean)) * np.sqrt(mass / mass.max())
            width = sampling._WIDTH[0] * np.sqrt(variance + 0.5) + sampling._WIDTH[1]
            assert distance.max() <= width / 2


@pytest.mark.parametrize("share", [-0.1, 1.3, np.nan])
def test_a_share_outside_0_and_1_is_refused(share):
    with pytest.raises(MetricError, match=r"\[0, 1\]"):
        binomial(5, share, draws=3, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("trials", "share"), [(1000, 0.001), (5000, 1e-6), (3, 0.3), (2000, 1 - 1e-3)])
def test_rare_and_nearly_sure_successes_have_their_law(trials, share):
    """Where the mean is near 0 or n the box around the mass is tightest."""
    rng, each = np.random.default_rng(6), np.full(DRAWS, trials)
    assert fits(binomial(each, share, draws=DRAWS, rng=rng), partial(binom.pmf, n=trials, p=share)) > 1e-4
