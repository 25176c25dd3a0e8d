"""How numbers are written: the formats are fixed, so each is held to its exact text."""

import math

import pytest

from plumbline.report.numbers import (
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
    ],
)
def test_p_value(p, text):
    assert p_value(p) == text


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
