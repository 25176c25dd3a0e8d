"""Estimates: the columns of a metric row, and the entries of an array."""

from __future__ import annotations

import numpy as np

from plumbline.reasons import in_words, reason
from plumbline.statistics.estimates import Estimate, EstimateArray

EMPTY, SMALL = reason("empty_group"), reason("small_group", n=3, min_group=30)


def test_the_given_reasons_come_before_its_own() -> None:
    columns = Estimate(0.5, 0.4, 0.6, n=3, reason=(SMALL,)).columns(EMPTY, None)
    assert columns == {"value": 0.5, "ci_low": 0.4, "ci_high": 0.6, "p": None, "n": 3, "reason": (EMPTY, SMALL)}
    assert in_words(columns["reason"]) == "empty group; small group: 3 images, fewer than 30"


def test_an_array_gives_the_estimate_of_every_entry() -> None:
    low, value, high = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    array = EstimateArray(value, low, high, n=np.array([7, 8]), reason=[(), (EMPTY,)])
    assert len(array) == 2
    assert list(array) == [Estimate(2.0, 0.0, 4.0, n=7), Estimate(3.0, 1.0, 5.0, n=8, reason=(EMPTY,))]
    grid = EstimateArray(*(np.tile(each, (3, 1)) for each in (value, low, high)), p=np.full((3, 2), 0.5))
    assert grid[2, 1] == Estimate(3.0, 1.0, 5.0, p=0.5)
