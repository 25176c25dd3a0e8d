"""A Parquet file is a folder of images, addressed by row."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from plumbline.datasets.indexes import dataset_root, inside
from plumbline.errors import ImageRejected
from plumbline.images import parquet as parquet_columns
from plumbline.images import parquet as parquet_images
from plumbline.images.decoding import check, decode, read_image_file
from plumbline.images.parquet import WRITE_AGAIN, OpenColumns

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def written(path: Path, pictures: list[bytes | None], *, group: int = 3) -> Path:
    """Write pictures as Hugging Face does, in row groups of `group`; None is a row without a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [None if data is None else {"bytes": data, "path": f"{i}.jpg"} for i, data in enumerate(pictures)]
    table = pa.table({"image": pa.array(values, STRUCT), "caption": ["words"] * len(pictures)})
    parquet.write_table(table, path, row_group_size=group)
    return path


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return the row groups that are decoded from now on, with nothing kept from before."""
    met: list[tuple[str, int]] = []
    honest = parquet_images._pictures

    def counting(file: object, layout: object, group: int) -> object:
        met.append((Path(file.path).name, group))  # type: ignore[attr-defined]
        return honest(file, layout, group)  # type: ignore[arg-type]

    monkeypatch.setattr(parquet_images, "_pictures", counting)
    monkeypatch.setattr(parquet_images, "_RECENT", parquet_images._RecentGroups(parquet_images.KEPT_BYTES))
    return met


@pytest.fixture
def footers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files whose footer is parsed from now on."""
    met: list[str] = []
    honest = parquet.ParquetFile

    def counting(path: object, **options: object) -> parquet.ParquetFile:
        if options.get("metadata") is None:
            met.append(Path(str(path)).name)
        return honest(path, **options)

    monkeypatch.setattr(parquet, "ParquetFile", counting)
    return met


def refusal(path: Path) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        read_image_file(path)
    return caught.value


def test_each_row_gives_its_own_bytes_whatever_row_group_it_lies_in(tmp_path: Path) -> None:
    pictures = [f"picture {i}".encode() for i in range(8)]
    file = written(tmp_path / "a.parquet", [*pictures])
    assert parquet.ParquetFile(file).num_row_groups == 3
    assert [read_image_file(file / str(i)) for i in range(8)] == pictures
    assert [read_image_file(file / str(i)) for i in reversed(range(8))] == pictures[::-1]


def test_a_plain_column_of_bytes_is_read_as_well(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"image": pa.array([b"one", b"two"], pa.large_binary())}), tmp_path / "a.parquet")
    assert read_image_file(tmp_path / "a.parquet/1") == b"two"


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"one", b"two"], pa.binary_view()),
        pa.array([b"one", b"two"]).dictionary_encode(),
        pa.array([b"one", b"two"], pa.large_binary()),
    ],
    ids=lambda values: str(values.type),
)
@pytest.mark.parametrize("struct", [True, False])
def test_bytes_are_read_in_every_form_that_arrow_has_for_them(values: pa.Array, struct: bool, tmp_path: Path) -> None:
    column = pa.StructArray.from_arrays([values], ["bytes"]) if struct else values
    parquet.write_table(pa.table({"image": column}), tmp_path / "a.parquet")
    assert [read_image_file(tmp_path / f"a.parquet/{row}") for row in (0, 1)] == [b"one", b"two"]


def test_a_footer_is_parsed_once_however_many_row_groups_there_are(tmp_path: Path, footers: list) -> None:
    file = written(tmp_path / "a.parquet", [b"%d" % i for i in range(40)], group=1)
    assert [read_image_file(file / str(i)) for i in range(40)] == [b"%d" % i for i in range(40)]
    assert footers == ["a.parquet"]


def test_a_file_of_too_many_row_groups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_columns, "MAX_GROUPS", 7)
    assert read_image_file(written(tmp_path / "a.parquet", [b"a"] * 7, group=1) / "6") == b"a"
    error = refusal(written(tmp_path / "b.parquet", [b"a"] * 8, group=1) / "0")
    assert (error.code, error.found) == ("file_too_large", "8 row groups")
    assert error.expected == f"at most 7 row groups; {WRITE_AGAIN}"


def test_row_groups_without_rows_are_passed_over(tmp_path: Path) -> None:
    table = pa.table({"image": [b"one", b"two"]})
    with parquet.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for part in (table.slice(0, 0), table.slice(0, 1), table.slice(0, 0), table.slice(1)):
            writer.write_table(part)
    assert [read_image_file(tmp_path / f"a.parquet/{row}") for row in (0, 1)] == [b"one", b"two"]


def test_a_row_is_checked_and_decoded_without_an_extension(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    file = written(tmp_path / "a.parquet", [jpeg(1), jpeg(2)[:200]])
    check(file / "0")
    assert decode(file / "0").tobytes() == decode(jpeg(1)).tobytes()
    with pytest.raises(ImageRejected) as caught:
        check(file / "1")
    assert caught.value.code == "truncated"


@pytest.mark.parametrize("row", ["3", "17", "-1", "01", "1.0", "1.jpg", "x", "9" * 5000])
def test_a_row_that_is_not_there_is_a_missing_file(row: str, tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", [b"a", b"b", b"c"])
    error = refusal(file / row)
    assert error.code == "missing_file"
    assert error.expected == "a row from 0 to 2"


def test_a_row_without_a_picture_is_a_missing_file(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", [b"a", None])
    assert refusal(file / "1").code == "missing_file"
    only_path = pa.array([{"bytes": None, "path": "/elsewhere/1.jpg"}], STRUCT)
    parquet.write_table(pa.table({"image": only_path}), tmp_path / "b.parquet")
    assert refusal(tmp_path / "b.parquet/0").code == "missing_file"


def test_an_absent_parquet_file_is_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "a.parquet/0").code == "missing_file"


def test_a_file_without_rows_has_no_row_0(tmp_path: Path) -> None:
    assert refusal(written(tmp_path / "a.parquet", []) / "0").code == "missing_file"


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: b"text", lambda data: data[: len(data) // 2]])
def test_a_file_that_is_no_parquet_is_corrupt(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", [b"a"])
    file.write_bytes(damage(file.read_bytes()))
    assert refusal(file / "0").code == "corrupt"


def damaged(path: Path, pictures: list[bytes | None]) -> Path:
    """Write one row group whose pages begin with nonsense."""
    written(path, pictures, group=len(pictures))
    data = bytearray(path.read_bytes())
    data[4:400] = b"\xff" * 396
    path.write_bytes(data)
    return path


def test_damage_inside_a_row_group_is_corrupt(tmp_path: Path) -> None:
    assert refusal(damaged(tmp_path / "a.parquet", [os.urandom(500)]) / "0").code == "corrupt"


@pytest.mark.parametrize("kind", [KeyError, ValueError, IndexError, OverflowError, pa.ArrowInvalid])
def test_whatever_arrow_raises_of_a_damaged_file_is_corrupt(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "a.parquet", [b"a"])

    def fail(*_: object, **__: object) -> None:
        raise kind("nonsense")

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", fail)
    error = refusal(file / "0")
    assert (error.code, str(error.found).strip("'")) == ("corrupt", "nonsense")


def test_two_columns_of_the_name_are_no_column_of_pictures(tmp_path: Path) -> None:
    table = pa.table([pa.array([b"a"]), pa.array([b"b"])], ["image", "image"])
    parquet.write_table(table, tmp_path / "a.parquet")
    assert refusal(tmp_path / "a.parquet/0").code == "not_an_image"


def test_a_place_outside_the_dictionary_is_corrupt(tmp_path: Path) -> None:
    table = pa.table({"image": pa.array([b"a", b"b", b"c"])})
    parquet.write_table(table, tmp_path / "a.parquet", compression="none")
    data = (tmp_path / "a.parquet").read_bytes()
    # Two bits a place, three places: 0, 1 and 2 become 3 each.
    assert data.count(b"\x02\x03\x24\x00") == 1
    (tmp_path / "a.parquet").write_bytes(data.replace(b"\x02\x03\x24\x00", b"\x02\x03\x3f\x00"))
    assert refusal(tmp_path / "a.parquet/1").code == "corrupt"


@pytest.mark.parametrize(
    "column", [{"picture": [b"a"]}, {"image": ["text"]}, {"image": [{"path": "a.jpg"}]}, {"image": [{"bytes": 7}]}]
)
def test_a_file_without_a_column_of_pictures_says_what_it_has(column: dict, tmp_path: Path) -> None:
    parquet.write_table(pa.table(column), tmp_path / "a.parquet")
    error = refusal(tmp_path / "a.parquet/0")
    assert error.code == "not_an_image"
    assert str(error.found).startswith(next(iter(column)))


def test_what_cannot_be_opened_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", [b"a"])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(parquet, "ParquetFile", refuse)
    error = refusal(file / "0")
    assert (error.code, error.found) == ("unreadable", "Permission denied")


def test_too_large_a_picture_and_too_large_a_row_group_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "a.parquet", [b"x" * 100, b"y" * 101])
    assert parquet_images.read_row_image(file / "0", max_bytes=100) == b"x" * 100
    with pytest.raises(ImageRejected) as caught:
        parquet_images.read_row_image(file / "1", max_bytes=100)
    assert (caught.value.code, caught.value.found) == ("file_too_large", "101 bytes")
    monkeypatch.setattr(parquet_images, "MAX_GROUP_BYTES", 10)
    monkeypatch.setattr(parquet_images, "_RECENT", parquet_images._RecentGroups(1))
    error = refusal(file / "0")
    assert (error.code, error.expected) == ("file_too_large", f"at most 10 bytes; {WRITE_AGAIN}")


def test_a_picture_that_many_rows_share_is_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recent = parquet_images._RecentGroups(parquet_images.KEPT_BYTES)
    monkeypatch.setattr(parquet_images, "_RECENT", recent)
    monkeypatch.setattr(parquet_images, "MAX_GROUP_BYTES", 2 << 20)
    file = written(tmp_path / "a.parquet", [bytes(1 << 20)] * 300, group=300)
    assert file.stat().st_size < 100_000
    assert read_image_file(file / "299") == bytes(1 << 20)
    assert 1 << 20 <= recent._held_bytes < 2 << 20


def test_rows_in_order_decode_each_row_group_once(tmp_path: Path, decoded: list) -> None:
    file = written(tmp_path / "a.parquet", [b"%d" % i for i in range(9)])
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(read_image_file, [file / str(i) for i in range(9)]))
    assert rows == [b"%d" % i for i in range(9)]
    assert sorted(decoded) == [("a.parquet", 0), ("a.parquet", 1), ("a.parquet", 2)]


def test_only_the_last_row_groups_are_kept(tmp_path: Path, decoded: list, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", [bytes([i]) * 1000 for i in range(9)])
    recent = parquet_images._RecentGroups(1)
    monkeypatch.setattr(parquet_images, "_RECENT", recent)
    for row in range(9):
        read_image_file(file / str(row))
    assert [key[1] for key in recent._groups] == [1, 2]
    read_image_file(file / "8")
    assert len(decoded) == 3
    read_image_file(file / "0")
    assert len(decoded) == 4


def test_keeping_a_row_group_looks_at_no_other(tmp_path: Path, decoded: list, monkeypatch: pytest.MonkeyPatch) -> None:
    sized: list[int] = []
    honest = parquet_images._size
    monkeypatch.setattr(parquet_images, "_size", lambda outcome: (sized.append(1), honest(outcome))[1])
    file = written(tmp_path / "a.parquet", [b"%d" % i for i in range(40)], group=1)
    for row in range(40):
        read_image_file(file / str(row))
    assert len(decoded) == len(sized) == len(parquet_images._RECENT._groups) == 40


def test_sixteen_threads_in_order_decode_each_row_group_once(tmp_path: Path, decoded: list) -> None:
    file = written(tmp_path / "a.parquet", [b"%d" % i for i in range(1200)], group=100)
    chunks = [range(start, start + 32) for start in range(0, 1200, 32)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda rows: [read_image_file(file / str(i)) for i in rows if i < 1200], chunks))
    assert sorted(group for _, group in decoded) == list(range(12))


def test_different_row_groups_are_decoded_at_once_and_each_once(
    tmp_path: Path, decoded: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_images, "_DECODED_AT_ONCE", 3)
    monkeypatch.setattr(parquet_images, "_RECENT", parquet_images._RecentGroups(parquet_images.KEPT_BYTES))
    together, honest = threading.Barrier(3, timeout=30), OpenColumns.read

    def waiting(*args: object, **kwargs: object) -> object:
        together.wait()
        return honest(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(OpenColumns, "read", waiting)
    file = written(tmp_path / "a.parquet", [b"%d" % i for i in range(9)])
    with ThreadPoolExecutor(9) as pool:
        assert list(pool.map(read_image_file, [file / str(i) for i in range(9)])) == [b"%d" % i for i in range(9)]
    assert sorted(group for _, group in decoded) == [0, 1, 2]


def test_a_damaged_row_group_is_decoded_once_and_refused_for_every_row(tmp_path: Path, decoded: list) -> None:
    file = damaged(tmp_path / "a.parquet", [os.urandom(500) for _ in range(8)])
    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(lambda i: refusal(file / str(i)), range(8)))
    assert [error.code for error in errors] == ["corrupt"] * 8
    assert len({id(error) for error in errors}) == 8
    assert decoded == [("a.parquet", 0)]


def test_a_damaged_footer_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", [b"a"] * 8)
    file.write_bytes(file.read_bytes()[:-20])
    calls: list[object] = []
    honest = parquet_images._read_layout
    monkeypatch.setattr(parquet_images, "_read_layout", lambda about: (calls.append(about), honest(about))[1])
    assert [refusal(file / str(i)).code for i in range(8)] == ["corrupt"] * 8
    assert len(calls) == 1


def test_an_error_of_the_system_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", [b"a"] * 8, group=8)
    honest = OpenColumns.read
    failures = iter([OSError(5, "Input/output error")])

    def failing_once(*args: object, **kwargs: object) -> object:
        for error in failures:
            raise error
        return honest(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(OpenColumns, "read", failing_once)
    error = refusal(file / "0")
    assert (error.code, error.found) == ("unreadable", "Input/output error")
    assert [read_image_file(file / str(i)) for i in range(8)] == [b"a"] * 8


def test_refusals_that_are_remembered_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_images, "_KEPT_OUTCOMES", 4)
    recent = parquet_images._RecentGroups(parquet_images.KEPT_BYTES)
    monkeypatch.setattr(parquet_images, "_RECENT", recent)
    monkeypatch.setattr(parquet_images, "MAX_GROUP_BYTES", 1)
    file = written(tmp_path / "a.parquet", [b"a"] * 30)
    assert {refusal(file / str(i)).code for i in range(30)} == {"file_too_large"}
    assert len(recent._groups) == 4


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", [b"old"])
    assert read_image_file(file / "0") == b"old"
    written(file, [b"newer", b"second"])
    assert [read_image_file(file / str(i)) for i in range(2)] == [b"newer", b"second"]


def test_a_folder_of_that_name_holds_plain_files(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    folder = tmp_path / "a.parquet"
    folder.mkdir()
    (folder / "1.jpg").write_bytes(jpeg(1))
    assert read_image_file(folder / "1.jpg") == jpeg(1)
    assert refusal(folder / "2").code == "missing_file"


def test_a_parquet_file_linked_from_outside_is_not_read(tmp_path: Path) -> None:
    written(tmp_path / "outside.parquet", [b"secret"])
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.parquet").symlink_to(tmp_path / "outside.parquet")
    with pytest.raises(ImageRejected) as caught:
        inside(dataset_root(root), "a.parquet/0")
    assert caught.value.code == "path_outside_root"
    written(root / "data/b.parquet", [b"own"])
    (root / "c.parquet").symlink_to(root / "data/b.parquet")
    assert read_image_file(inside(dataset_root(root), "c.parquet/0")) == b"own"


@pytest.mark.parametrize(
    ("column", "value"),
    [("answer", str), ("bytes", str.encode), ("list", lambda text: [text]), ("struct", lambda text: {"a": [text]})],
)
def test_a_table_of_more_than_the_machine_has_is_refused_before_it_is_written_out(column, value, tmp_path, monkeypatch):
    path, text = tmp_path / "answers.parquet", "x" * 1_000
    table = pa.table({"n": pa.array(range(20_000)), column: pa.array([value(text)] * 20_000), "no": pa.nulls(20_000)})
    parquet.write_table(table, path, row_group_size=5_000)
    assert path.stat().st_size < 200_000
    assert parquet_columns.read_columns(path).equals(table)
    assert parquet_columns.read_columns(path, ["n"]).equals(table.select(["n"]))
    monkeypatch.setattr(parquet_columns, "most_bytes", lambda: 10_000_000)
    with pytest.raises(ImageRejected, match="too large to be read whole"):
        parquet_columns.read_columns(path)
    assert parquet_columns.read_columns(path, ["n"]).num_rows == 20_000


def test_a_table_without_rows_keeps_its_columns(tmp_path):
    table = pa.table({"answer": pa.array([], pa.string()), "of": pa.array([], pa.list_(pa.float32()))})
    parquet.write_table(table, tmp_path / "none.parquet")
    assert parquet_columns.read_columns(tmp_path / "none.parquet").equals(table)
