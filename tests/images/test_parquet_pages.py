"""What a row group would take is held against the limit before it is decoded."""

from __future__ import annotations

import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from plumbline.errors import ImageRejected
from plumbline.images.parquet import WRITE_AGAIN, OpenColumns

MIB = 1 << 20


def written(path: Path, values: list[bytes | None], **options: object) -> Path:
    parquet.write_table(pa.table({"image": pa.array(values, pa.binary())}), path, **options)
    return path


def read(path: Path, *, max_bytes: int) -> pa.Table:
    with OpenColumns(path, ["image"]) as opened:
        return opened.read(0, max_bytes=max_bytes)


def refusal(path: Path, *, max_bytes: int = MIB) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        read(path, max_bytes=max_bytes)
    return caught.value


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_a_row_group_that_grows_beyond_the_limit_is_refused_before_it_is_decoded(
    codec: str, dictionary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, values = tmp_path / "a.parquet", [bytes(2 * MIB)]
    file = written(path, values, compression=codec, use_dictionary=dictionary)
    assert read(file, max_bytes=3 * MIB).num_rows == 1
    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", None)
    assert refusal(file, max_bytes=MIB * 3 // 2).code == "file_too_large"


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_every_kind_are_counted_and_read(version: str, tmp_path: Path) -> None:
    values = [None if i % 7 == 0 else b"%d" % (i % 50 if i < 500 else i) * 100 for i in range(1000)]
    options = {"data_page_size": 4096, "dictionary_pagesize_limit": 2048, "data_page_version": version}
    file = written(tmp_path / "a.parquet", values, **options)
    encodings = parquet.read_metadata(file).row_group(0).column(0).encodings
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(encodings)
    column = read(file, max_bytes=MIB).column("image")
    assert pa.types.is_dictionary(column.type)
    assert column.to_pylist() == values


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_an_encoding_that_leaves_the_size_open_is_refused(encoding: str, tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", [bytes(1000)] * 9, use_dictionary=False, column_encoding={"image": encoding})
    error = refusal(file)
    assert (error.code, error.found) == ("unsupported_format", encoding)
    assert error.hint == WRITE_AGAIN


@pytest.mark.parametrize(
    "options",
    [
        {"row_group_size": 2500},
        {"row_group_size": 100, "use_dictionary": False, "column_encoding": "DELTA_LENGTH_BYTE_ARRAY"},
        {"row_group_size": 100, "use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    ],
    ids=str,
)
def test_what_a_refusal_says_to_do_makes_the_file_readable(
    options: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"%d" % i * 120 for i in range(2500)]
    assert refusal(written(tmp_path / "OLD.parquet", values, **options)).hint == WRITE_AGAIN
    monkeypatch.chdir(tmp_path)
    python, option, line = shlex.split(WRITE_AGAIN.partition(": ")[2])
    assert (python, option) == ("python", "-c")
    exec(compile(line, "the line", "exec"), {})
    with OpenColumns("NEW.parquet", ["image"]) as opened:
        assert opened.group_rows() == [1000, 1000, 500]
        read = [value for group in range(3) for value in opened.read(group, max_bytes=MIB)["image"]]
    assert [value.as_py() for value in read] == values


def test_damage_is_told_from_what_is_only_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", [b"a"])

    def fail(*_: object, **__: object) -> None:
        raise pa.ArrowNotImplementedError("no kernel for this type")

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", fail)
    error = refusal(file)
    assert (error.code, error.found) == ("unsupported_format", "no kernel for this type")
    assert error.hint == "write that column again as text"
    file.write_bytes(file.read_bytes()[:-9])
    assert "whole" in str(refusal(file).hint)


def test_rows_of_nothing_count_too(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", [None] * 200_000)
    assert file.stat().st_size < 10_000
    assert refusal(file).code == "file_too_large"
    assert read(file, max_bytes=8 * MIB).num_rows == 200_000


def test_every_column_that_arrow_takes_along_counts(tmp_path: Path) -> None:
    table = pa.table({"image": [b"a"], "image.more": [bytes(2 * MIB)]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert refusal(tmp_path / "a.parquet").code == "file_too_large"


def test_every_cut_and_every_changed_byte_of_a_page_header_reads_or_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", [b"a", b"b", None], compression="none")
    sound = file.read_bytes()
    outcomes = set()
    for position in range(4, 60):
        for value in (0x00, 0x0C, 0x15, 0x7F, 0x80, 0xFF):
            file.write_bytes(sound[:position] + bytes([value]) + sound[position + 1 :])
            try:
                read(file, max_bytes=MIB)
                outcomes.add("read")
            except ImageRejected as error:
                outcomes.add(error.code)
    assert outcomes == {"read", "corrupt"}
