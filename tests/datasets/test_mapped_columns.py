"""A column map that names what the table does not have: said by column, table and key of the audit file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError

TABLE = "file,gender,origin,age\r\n1.jpg,man,here,30\r\n"


def refusal(root: Path, **keys: object) -> DatasetError:
    """Return the error of reading the table `people.csv`, or another `index`, by a map."""
    reader = reader_for("folder", ColumnMap.model_validate({"index": "people.csv", "path": "file", **keys}))
    with pytest.raises(DatasetError) as caught:
        reader.entries(root)
    return caught.value


def test_the_column_of_the_paths_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(TABLE.encode())
    assert str(refusal(tmp_path, path="photo")).splitlines() == [
        "the table lacks a mapped column: `photo`",
        "  where:    people.csv, line 1",
        "  found:    file, gender, origin, age",
        "  expected: one column `photo`, for `map.path` of the audit file",
        "  do:       correct in the audit file, or rename in the table: `map.path`",
    ]


@pytest.mark.parametrize("index", ["people.csv", "people.parquet"])
def test_every_column_that_is_not_there_is_told_with_its_key_and_what_was_meant(index: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(TABLE.encode())
    pl.read_csv(tmp_path / "people.csv").write_parquet(tmp_path / "people.parquet")
    columns = {"gender": "gendr", "race": "origin", "age": "years"}
    error = refusal(tmp_path, index=index, path="File", columns=columns)
    assert error.what == "the table lacks a mapped column: `File`; `gendr`; `years`"
    assert str(error.where).startswith(index) and "origin" in str(error.found)
    assert error.hint == (
        "correct in the audit file, or rename in the table: `map.path` (did you mean `file`?); "
        "`map.columns.gender` (did you mean `gender`?); `map.columns.age`"
    )


@pytest.mark.parametrize(
    ("content", "found", "said"),
    [
        (b"\xef\xbb\xbffile;gender;origin\n1.jpg;man;here\n", "file;gender;origin", "commas between its columns"),
        (b"file\tgender\n1.jpg\tman\n", r"file\u0009gender", "commas between its columns"),
        ("file,gender\n1.jpg,man\n".encode("utf-16"), "file", "save the table as CSV in UTF-8"),
        (b'fi"le,"gen\n1.jpg,man\n', 'fi"le,"gen', "`map.path`"),
        (b"", "nothing", "`map.path`"),
    ],
)
def test_a_table_of_another_form_is_told_how_to_save_it(content: bytes, found: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(content)
    error = refusal(tmp_path, path="photo")
    assert error.hint is not None and said in error.hint
    if found != "file":
        assert error.found == found
    assert "b'" not in str(error) and "published" not in str(error)


@pytest.mark.parametrize("index", ["people.csv", "people.parquet"])
def test_a_column_that_is_there_twice_is_no_column_to_read(index: str, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "people.csv").write_text("file,sex,sex\n1.jpg,man,woman\n")
    texts = [pa.array(["1.jpg"]), pa.array(["man"]), pa.array(["woman"])]
    parquet.write_table(pa.Table.from_arrays(texts, names=["file", "sex", "sex"]), tmp_path / "people.parquet")
    error = refusal(tmp_path, index=index, columns={"gender": "sex"})
    assert error.what == "the table has a mapped column more than once: `sex`"
    assert "`map.columns.gender`" in str(error.expected)
