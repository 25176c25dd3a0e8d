"""YAML of other people: numbers are what they look like, and none takes longer than it is long."""

import os
import time

import pytest
import yaml

from plumbline.catalog.files import foreign_yaml, text_within


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("-07", -7), ("0x1f", 31), ("1_000", 1000), ("2.5", 2.5), ("1.5e+3", 1500.0), (".inf", float("inf")),
     ("59:59", "59:59"), ("1:30.5", "1:30.5"), ("1.2.3", "1.2.3"), ("yes", True)],
)  # fmt: skip
def test_a_number_is_read_as_one_and_a_time_as_text(text, value):
    assert foreign_yaml(f"a: {text}")[0] == {"a": value}


@pytest.mark.parametrize("number", ["0x" + "F" * 6_000, "-" + "9" * 6_000, "0" + "7" * 6_000, "!!int 0x" + "F" * 6_000])
def test_a_number_of_thousands_of_digits_is_refused_with_its_line(number):
    with pytest.raises(yaml.YAMLError, match=r"more than 1,000 digits at line 2"):
        foreign_yaml(f"a: 1\nb: {number}")
    text = number.removeprefix("!!int ")
    assert foreign_yaml(f"b: '{text}'")[0] == {"b": text}, "a text"


def test_of_a_file_no_more_than_the_limit_is_read_and_nothing_of_a_device_or_pipe(tmp_path):
    (tmp_path / "plain").write_text("words")
    assert text_within(tmp_path / "plain", 5) == "words"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        text_within(tmp_path / "plain", 4)
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name in ("zero", "pipe"):
        with pytest.raises(OSError, match="no plain file"):
            text_within(tmp_path / name, 4)


def test_a_number_to_base_60_takes_no_quadratic_time():
    start = time.perf_counter()
    assert foreign_yaml("a: " + ":".join(["59"] * 200_000))[0]["a"].startswith("59:59")
    assert time.perf_counter() - start < 5
