"""What a page's script reads: the table of all numbers as columns, and the library that draws charts."""

import hashlib
import json
import zlib
from importlib.metadata import version

import polars as pl
import pytest

from documentation.chart_library import VERSION
from plumbline.catalog.schema import IDENTIFYING
from plumbline.report.page import NUMBERS, all_numbers, columns, fewer, library


def read_back(data):
    """Return the frame that columns were made of, by the description of their format."""
    length = int.from_bytes(data[:4], "little")
    header, at, frame = json.loads(data[4 : 4 + length]), 4 + length, {}
    for column in header["columns"]:
        codes = [0] * header["rows"]
        for plane in range(column["bytes"]):
            codes = [code + (byte << 8 * plane) for code, byte in zip(codes, data[at : at + header["rows"]])]
            at += header["rows"]
        frame[column["name"]] = [column["values"][code] for code in codes]
    assert at == len(data)
    return frame


def test_columns_are_read_back_as_they_were():
    many = [f"group {i}" for i in range(70_000)]
    values = [0.123456, None, float("nan"), -2.0, 1e-9, float("inf"), 12345.6] * 10_000
    read = read_back(columns(pl.DataFrame({"group": many, "value": values, "n": [None, 12_345_678] * 35_000})))
    assert read["group"] == many and read["n"] == [None, 12_345_678] * 35_000
    assert read["value"][:7] == [0.123, None, None, -2.0, 1e-9, None, 12300.0]


def test_the_page_holds_every_row_of_a_table_that_is_not_too_large(table):
    numbers = all_numbers(table, significance=0.05)
    read = read_back(numbers.data)
    assert (numbers.rows, numbers.whole, numbers.left_out) == (table.height, table.height, ())
    assert all(read[name] == table[name].to_list() for name in (*IDENTIFYING, "n", "reason"))
    rounded = table.select(pl.col(NUMBERS).round_sig_figs(3).fill_nan(None))
    assert all(read[name] == rounded[name].to_list() for name in NUMBERS)
    assert {"evidence", "no_evidence", "not_tested", "undefined"} >= set(read["evidence"]) >= {"evidence", "not_tested"}


def test_what_only_supports_other_numbers_is_left_out_first_and_whole_kinds_at_a_time(table):
    kept, left_out = fewer(table, table.height - 1)
    assert [each.kind for each in left_out] == ["other statistics than estimates and means"]
    assert set(kept["statistic"]) == {"estimate", "mean"}
    kept, left_out = fewer(table, 500)
    assert kept.height <= 500 and kept.height + sum(each.rows for each in left_out) == table.height
    assert "max_skew" in kept["metric"] and not {each.kind for each in left_out} & set(kept["metric"])


def test_the_library_is_that_of_the_pinned_version():
    assert version("vl-convert-python") == VERSION, "python -m documentation.chart_library writes it anew"


@pytest.mark.slow
def test_the_library_is_what_vl_convert_bundles():
    import vl_convert

    bundled = vl_convert.javascript_bundle().encode()
    assert hashlib.sha256(zlib.decompress(library())).digest() == hashlib.sha256(bundled).digest()
