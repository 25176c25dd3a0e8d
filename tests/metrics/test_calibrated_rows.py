"""What the families report keeps its word on the numeric planted encoder: coverage, level, and power that rises."""

from functools import cache

import numpy as np
import pytest
from scipy import stats

from benchmarks.calibration.rows import READINGS, drawn

ALL = pytest.mark.parametrize("index", range(len(READINGS)), ids=[reading.title for reading in READINGS])
TESTED = [i for i, reading in enumerate(READINGS) if reading.tested]
STRENGTHS = (0.0, 0.2, 0.4)
WORLDS = [20, pytest.param(1000, marks=pytest.mark.slow)]


@cache
def _worlds(worlds, beta):
    return [drawn(seed, beta=beta) for seed in range(worlds)]


def of_reading(index, worlds, beta):
    """Return what a reading gives in each world."""
    return [world[READINGS[index].title] for world in _worlds(worlds, beta)]


def rejected(index, worlds, beta):
    return np.mean([row.p <= 0.05 for row in of_reading(index, worlds, beta)])


@ALL
@pytest.mark.parametrize("worlds", WORLDS)
def test_intervals_hold_the_truth(index, worlds):
    for beta in STRENGTHS:
        rows = of_reading(index, worlds, beta)
        truth = np.mean([row.value for row in rows]) if np.isnan(rows[0].truth) else rows[0].truth
        held = np.mean([row.ci_low - 1e-9 <= truth <= row.ci_high + 1e-9 for row in rows])
        # The bar of docs/calibration.md, less three standard errors. Near parity a disparity is estimated too high, and
        # its interval sits a little high too.
        least = stats.binom.ppf(stats.norm.cdf(-3), worlds, 0.94 if beta != 0.4 else 0.92) / worlds
        assert held >= least, (beta, held)


@pytest.mark.parametrize("index", TESTED, ids=[READINGS[i].title for i in TESTED])
@pytest.mark.parametrize("worlds", WORLDS)
def test_p_is_uniform_under_no_difference_and_power_rises(index, worlds):
    p = np.array([row.p for row in of_reading(index, worlds, 0.0)])
    for level in (0.05, 0.1, 0.25, 0.5):
        assert np.count_nonzero(p <= level) <= stats.binom.ppf(1 - 1e-4, worlds, level)
        # Not a test that never rejects: at twice the level it does so often enough.
        assert np.count_nonzero(p <= min(1.0, 2 * level + 0.05)) >= stats.binom.ppf(1e-4, worlds, level)
    power = [rejected(index, worlds, beta) for beta in STRENGTHS]
    if READINGS[index].title.startswith("WEAT"):
        assert power[0] < power[1] < power[2]
    else:
        assert power[0] < 0.15 < power[1] <= power[2] and power[2] > 0.9
