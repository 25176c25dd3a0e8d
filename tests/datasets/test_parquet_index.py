"""A Parquet table as an index: a bad row is refused by itself, a damaged or endless file as a whole."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from plumbline.datasets import indexes
from plumbline.datasets.indexes import MAX_VALUE_BYTES, Row, read_table_rows
from plumbline.datasets.records import Refusal
from plumbline.errors import DatasetError
from plumbline.images import parquet as parquet_columns
from plumbline.images.parquet import WRITE_AGAIN


def rows(path: Path, *columns: str) -> list[Row | Refusal]:
    return list(read_table_rows(path, name=path.name, columns=columns or ("a",)))


def written(path: Path, values: Any, **options: Any) -> Path:
    parquet.write_table(pa.table({"a": values}), path, **options)
    return path


def texts(path: Path) -> list[str]:
    return [row.values["a"] for row in rows(path) if isinstance(row, Row)]


def latin1(*values: bytes) -> pa.Array:
    """Return texts whose bytes nobody has checked."""
    return pa.array(values, pa.binary()).cast(pa.string(), safe=False)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("group", [1, 2, 100])
def test_a_text_that_is_not_utf_8_spoils_its_row_alone(dictionary: bool, group: int, tmp_path: Path) -> None:
    values = latin1(b"Caf\xc3\xa9", b"caf\xe9 owner", b"chef")
    file = written(tmp_path / "t.parquet", values, use_dictionary=dictionary, row_group_size=group)
    good, bad, last = rows(file)
    assert good == Row(1, {"a": "Café"}) and last == Row(3, {"a": "chef"})
    assert isinstance(bad, Refusal)
    assert (bad.code, bad.line, bad.stage, bad.path) == ("wrong_encoding", 2, "index", "t.parquet")
    assert bad.found == "'caf\\xe9 owner'"
    assert "column `a`" in bad.message


def test_a_text_that_is_too_long_spoils_its_row_alone(tmp_path: Path) -> None:
    values = ["x" * MAX_VALUE_BYTES, "y" * (MAX_VALUE_BYTES + 1), "z" * (4 << 20), "chef"]
    listed = rows(written(tmp_path / "t.parquet", values))
    assert [item.code if isinstance(item, Refusal) else item.values["a"][0] for item in listed] == [
        "x", "value_too_long", "value_too_long", "c",
    ]  # fmt: skip
    assert isinstance(listed[2], Refusal) and listed[2].found == f"{4 << 20} bytes"


def test_one_long_text_in_every_row_is_not_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "MAX_TABLE_BYTES", 4 << 20)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), ["x" * MAX_VALUE_BYTES])
    file = written(tmp_path / "t.parquet", repeated.cast(pa.string()))
    assert file.stat().st_size < 20_000
    with pytest.raises(DatasetError, match="cannot be read") as caught:
        rows(file)
    assert "bytes of text" in str(caught.value.found)


def test_a_table_whose_pages_or_rows_pass_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "t.parquet", ["x" * 5000] * 3 + ["y"], use_dictionary=False)
    monkeypatch.setattr(indexes, "MAX_TABLE_BYTES", 10_000)
    with pytest.raises(DatasetError) as caught:
        rows(file)
    assert (caught.value.expected, caught.value.hint) == ("at most 10000 bytes", WRITE_AGAIN)
    monkeypatch.setattr(indexes, "MAX_ROWS", 3)
    with pytest.raises(DatasetError) as caught:
        rows(file)
    assert (caught.value.where, caught.value.expected) == ("t.parquet", "at most 3 rows")
    assert "split the table" in str(caught.value.hint)


def test_a_footer_is_parsed_once_however_many_row_groups_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "t.parquet", [str(i) for i in range(40)], row_group_size=1)
    opened: list[object] = []
    honest = parquet.ParquetFile
    monkeypatch.setattr(
        parquet, "ParquetFile", lambda path, **options: (opened.append(path), honest(path, **options))[1]
    )
    assert texts(file) == [str(i) for i in range(40)]
    assert opened == [file]


def test_a_table_of_too_many_row_groups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "t.parquet", ["x"] * 8, row_group_size=1)
    monkeypatch.setattr(parquet_columns, "MAX_GROUPS", 7)
    with pytest.raises(DatasetError) as caught:
        rows(file)
    assert (caught.value.found, caught.value.expected) == ("8 row groups", "at most 7 row groups")
    assert caught.value.hint == WRITE_AGAIN


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_row_group_without_rows_is_no_damage(dictionary: bool, tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y"]})
    with parquet.ParquetWriter(tmp_path / "t.parquet", table.schema, use_dictionary=dictionary) as writer:
        for part in (table, table.slice(0, 0), table.slice(1)):
            writer.write_table(part)
    assert rows(tmp_path / "t.parquet") == [Row(1, {"a": "x"}), Row(2, {"a": "y"}), Row(3, {"a": "y"})]
    assert rows(written(tmp_path / "empty.parquet", pa.array([], pa.string()))) == []


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_an_encoding_that_is_not_accepted_is_not_called_damage(encoding: str, tmp_path: Path) -> None:
    file = written(tmp_path / "t.parquet", ["x"], use_dictionary=False, column_encoding=encoding)
    with pytest.raises(DatasetError) as caught:
        rows(file)
    assert (caught.value.found, caught.value.hint) == (encoding, WRITE_AGAIN)


def test_damage_is_called_so(tmp_path: Path) -> None:
    file = written(tmp_path / "t.parquet", ["x"])
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DatasetError) as caught:
        rows(file)
    assert caught.value.hint == "check that the file is whole, or fetch it again"


def test_bytes_of_one_length_that_are_no_text_spoil_their_row_alone(tmp_path: Path) -> None:
    for values in (pa.array([b"abc", b"\xff\xfe\xfd"], pa.binary(3)), pa.array([b"a" * 16, b"\xff" * 16], pa.uuid())):
        good, bad = rows(written(tmp_path / "t.parquet", values))
        assert isinstance(good, Row) and isinstance(bad, Refusal)
        assert bad.code == "wrong_encoding"


@pytest.mark.parametrize(
    ("values", "read"),
    [
        (pa.array([25.0, None, 31.0, -1.0, -0.0]), ["25", "", "31", "-1", "0"]),
        (pa.array([25.5, 25.0, float("nan"), 0.1]), ["25.5", "25", "", "0.1"]),
        (pa.array([0.1, 2.0], pa.float32()), ["0.1", "2"]),
        (pa.array([1.5, 25.0, None, float("nan")], pa.float16()), ["1.5", "25", "", ""]),
        (pa.array(["a", None], pa.string_view()), ["a", ""]),
        (pa.array([b"a", None], pa.binary_view()), ["a", ""]),
        (pa.array([b"a", None]).dictionary_encode(), ["a", ""]),
        (pa.array([1234567890123456.0, 1e300]), ["1234567890123456", "1e+300"]),
        (pa.array([7, None]), ["7", ""]),
        (pa.array([True, False, None]), ["true", "false", ""]),
        (pa.array([None, None]), ["", ""]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", "", "a"]),
        (pa.array([b"a", None], pa.large_binary()), ["a", ""]),
        (pa.array([b"abc"], pa.binary(3)), ["abc"]),
    ],
    ids=str,
)
def test_every_plain_type_is_read_as_text(values: pa.Array, read: list[str], tmp_path: Path) -> None:
    assert texts(written(tmp_path / "t.parquet", values)) == read


def test_rows_count_over_row_groups_and_columns_keep_their_order(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y", "z"], "b": [1, 2, 3], "c": [[1], [2], [3]]})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    assert rows(tmp_path / "t.parquet", "b", "a") == [
        Row(1, {"b": "1", "a": "x"}),
        Row(2, {"b": "2", "a": "y"}),
        Row(3, {"b": "3", "a": "z"}),
    ]


@pytest.mark.parametrize("kind", [KeyError, ValueError, IndexError, OverflowError, pa.ArrowInvalid])
def test_whatever_arrow_raises_of_a_damaged_table_names_the_table(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "t.parquet", ["x"])

    def fail(*_: object, **__: object) -> None:
        raise kind("nonsense")

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", fail)
    with pytest.raises(DatasetError, match="cannot be read") as caught:
        rows(file)
    assert (caught.value.where, str(caught.value.found).strip("'")) == ("t.parquet", "nonsense")


def test_an_error_of_the_system_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "t.parquet", ["x"])

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(parquet, "ParquetFile", fail)
    with pytest.raises(DatasetError) as caught:
        rows(file)
    assert caught.value.found == "Input/output error"


def test_a_place_outside_the_dictionary_names_the_table(tmp_path: Path) -> None:
    file = written(tmp_path / "t.parquet", ["a", "b", "c"], compression="none")
    data = file.read_bytes()
    # Two bits a place, three places: 0, 1 and 2 become 3 each.
    assert data.count(b"\x02\x03\x24\x00") == 1
    file.write_bytes(data.replace(b"\x02\x03\x24\x00", b"\x02\x03\x3f\x00"))
    with pytest.raises(DatasetError, match="cannot be read"):
        rows(file)
