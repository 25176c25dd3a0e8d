"""Printed numbers: value in our unit, digits, and how far the unrounded number may be."""

import pytest

from plumbline.catalog.published import read_number


@pytest.mark.parametrize(
    ("text", "unit", "value", "decimals", "rounding"),
    [
        ("0.23", None, 0.23, 2, 0.005),
        ("+0.96", None, 0.96, 2, 0.005),
        ("-0.00", None, 0.0, 2, 0.005),
        ("13", "percent", 0.13, 0, 0.005),
        ("4.0%", "percent", 0.04, 1, 0.0005),
        ("28.18", "percent", 0.2818, 2, 0.00005),
        ("73.2", "hundredths", 0.732, 1, 0.0005),
        ("-1.6e-02", None, -0.016, 3, 0.0005),
        ("44105.05", None, 44105.05, 2, 0.005),
        ("0.2-0.3", "bin", 0.2, 1, 0),
    ],
)
def test_value_digits_and_rounding(text, unit, value, decimals, rounding):
    found = read_number(text, unit)
    assert float(found.value) == value
    assert found.decimals == decimals
    assert float(found.rounding) == rounding


@pytest.mark.parametrize(("text", "unit"), [("", None), ("4.0%", None), ("1", "miles")])
def test_what_is_no_number_in_its_unit_is_said_to_be_none(text, unit):
    with pytest.raises(ValueError, match="no "):
        read_number(text, unit)
