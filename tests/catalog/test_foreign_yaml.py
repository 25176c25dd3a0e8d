"""YAML of other people: numbers are what they look like, and none takes longer than it is long."""

import time

import pytest

from plumbline.catalog.files import foreign_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("-07", -7), ("0x1f", 31), ("1_000", 1000), ("2.5", 2.5), ("1.5e+3", 1500.0), (".inf", float("inf")),
     ("59:59", "59:59"), ("1:30.5", "1:30.5"), ("1.2.3", "1.2.3"), ("yes", True)],
)  # fmt: skip
def test_a_number_is_read_as_one_and_a_time_as_text(text, value):
    assert foreign_yaml(f"a: {text}")[0] == {"a": value}


def test_a_number_to_base_60_takes_no_quadratic_time():
    start = time.perf_counter()
    assert foreign_yaml("a: " + ":".join(["59"] * 200_000))[0]["a"].startswith("59:59")
    assert time.perf_counter() - start < 5
