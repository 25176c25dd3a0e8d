"""How numbers are written: the formats are fixed, so each is held to its exact text."""

import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.report.numbers import (
    agreeing_decimals,
    compact,
    confidence,
    count,
    interval,
    number,
    p_value,
    percent,
    percent_interval,
    points,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.947, "1.9"), (0.0346, "0.035"), (0.45, "0.45"), (9.96, "10"), (12.4, "12"), (12345.6, "12,346"),
        (0.0, "0"), (-0.25, "−0.25"), (-1.23e-7, "−1.2e−7"), (NAN, "undefined"), (None, "undefined"), (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)  # fmt: skip
def test_number_has_two_significant_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("share", "n", "text"),
    [
        (0.452, 300, "45% (n\u00a0=\u00a0300)"), (0.00568, None, "0.57%"), (0.995, None, "99.5%"),
        (0.9996, None, ">99.9%"), (1.0, 2100, "100% (n\u00a0=\u00a02,100)"), (0.0, 7, "0% (n\u00a0=\u00a07)"),
        (NAN, 0, "undefined (n\u00a0=\u00a00)"), (0.0995, None, "10%"), (1e-7, None, "<0.001%"),
    ],
)  # fmt: skip
def test_percent_never_claims_all_and_names_n(share, n, text):
    assert percent(share, n) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.52, 2.41, "1.5–2.4"), (-0.1, 0.32, "−0.10 to 0.32"), (0.0, 0.0, "0–0"), (0.5, math.inf, "0.50–∞"),
        (NAN, 1.0, "no interval"), (None, None, "no interval"), (8.7, 14.2, "9–14"),
        (0.71, 0.998, "0.7–0.998"), (0.7, 1.0, "0.7–1.0"), (0.9998, 1.2, "0.9998–1.2"), (0.0, 0.99, "0.00–0.99"),
    ],
)  # fmt: skip
def test_interval_has_the_precision_of_its_upper_end(low, high, text):
    assert interval(low, high) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0002, "p\u00a0<\u00a00.001"),
        (0.0123, "p\u00a0=\u00a00.012"),
        (0.341, "p\u00a0=\u00a00.34"),
        (NAN, "no p"),
        (0.04996, "p\u00a0=\u00a00.04996"),
        (0.0496, "p\u00a0=\u00a00.0496"),
        (0.0504, "p\u00a0=\u00a00.0504"),
        (0.05, "p\u00a0=\u00a00.050"),
    ],
)
def test_p_value(p, text):
    assert p_value(p) == text


@pytest.mark.parametrize(
    ("least", "most", "decimals", "text"),
    [
        (0.0901, 0.1652, 1, "9.0% 16.5% 7.5 points"),
        (0.01, 0.12, None, "1.0% 12% 11 points"),
        (0.0, 0.611, None, "0% 61% 61 points"),
        (0.0904, 0.1656, 2, "9.04% 16.56% 7.52 points"),
        (0.88, 0.876, 1, "88.0% 87.6% −0.4 points"),
        (0.0, 0.996, 1, "0.0% 99.6% 99.6 points"),
    ],
)
def test_two_shares_and_their_gap_add_up_as_written(least, most, decimals, text):
    found = agreeing_decimals(least, most, most - least, share=True)
    ends = f"{percent(least, decimals=found)} {percent(most, decimals=found)}"
    gap = points(most - least, decimals=found).lstrip("+")
    assert (found, f"{ends} {gap}") == (decimals, text)


@given(st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_what_is_written_of_a_difference_adds_up(one, other, share):
    least, most = sorted((round(one, 4), round(other, 4)))
    found = agreeing_decimals(least, most, most - least, share=share)
    size, shown = (100, percent) if share else (1, number)
    texts = [shown(least, decimals=found), shown(most, decimals=found)]
    gap = points(most - least, decimals=found) if share else number(most - least, decimals=found)
    if any(mark in "".join(texts) for mark in "<>e"):
        return  # not written as a plain number
    low, high, apart = (Decimal(re.sub(r"[^\d.]", "", text)) for text in (*texts, gap))
    assert high - low == apart and abs(float(high) - size * most) <= 0.5


def test_a_gap_that_is_no_difference_is_written_as_each_is_alone():
    assert agreeing_decimals(0.2, 0.5, 0.1, share=True) is None


def test_other_formats():
    assert percent_interval(0.398, 0.512) == "40–51%"
    assert points(0.0123) == "+1.2 points"
    assert points(-0.0004) == "0.0 points"
    assert points(0.0) == "0 points"
    assert compact(950_000) == "950 k"
    assert compact(2_400_000) == "2.4 M"
    assert compact(None) == "not counted"
    assert count(12_345) == "12,345"
    assert confidence(0.95) == "95%"
