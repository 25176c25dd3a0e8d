"""Archives that are cut, changed or hostile: the very files come out, or an error that names the archive."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from plumbline.datasets import unpacking
from plumbline.datasets.unpacking import extract_archive
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images.tars import read_member, tar_index
from plumbline.storage import files as atomic

LONG = "x/" * 60 + "long.jpg"
FILES = {"a.jpg": b"\xff\xd8a", "val/b.jpg": b"b" * 700, LONG: b"c" * 512}
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
BLOCK, ZEROS = 512, bytes(512)


@pytest.fixture(autouse=True)
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of extractions: what they flush to the disk is tested elsewhere."""
    monkeypatch.setattr(atomic, "_syncfs", lambda _: 0)


def tar(files: dict[str, bytes] = FILES, form: str = "pax") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=FORMATS[form]) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def plain_zip(files: dict[str, bytes] = FILES) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def zip64(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return a zip with the end records of a large one."""
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    data = plain_zip()
    assert b"PK\x06\x06" in data
    return data


def outcome(data: bytes, tmp_path: Path) -> dict[str, bytes] | str:
    """Return the files that come out, or the error's text; assert that no other error comes and nothing is left."""
    archive, folder = tmp_path / "a", tmp_path / "data"
    archive.write_bytes(data)
    found = None
    try:
        extract_archive(archive, folder)
        found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
    except DatasetError as error:
        assert str(archive) in str(error) and error.expected
        found = str(error)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    return found


def refused(data: bytes, tmp_path: Path, said: str = "") -> None:
    """Assert that an archive is refused, with these words."""
    found = outcome(data, tmp_path)
    assert isinstance(found, str) and said in found, found


def changes(data: bytes, positions: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Yield an archive with one byte changed, in another way at each position."""
    for position in positions:
        change = (0x01, 0x20, 0x40, 0xFF)[position % 4]
        yield position, data[:position] + bytes([data[position] ^ change]) + data[position + 1 :]


def refused_or_the_same(data: bytes, positions: Iterable[int], tmp_path: Path) -> None:
    for position, changed in changes(data, positions):
        found = outcome(changed, tmp_path)
        assert found == FILES or isinstance(found, str), position


def end_of(data: bytes) -> int:
    """Return where the first zero block ends, as the slow way finds it."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        last = archive.getmembers()[-1]
    return last.offset_data + -(-last.size // BLOCK) * BLOCK + BLOCK


@pytest.mark.parametrize("form", FORMATS)
def test_a_tar_that_is_cut_anywhere_is_refused(form: str, tmp_path: Path) -> None:
    data = tar(form=form)
    end = end_of(data)
    for cut in (*range(0, end, 499), *range(0, end, BLOCK), end - 1):
        refused(data[:cut], tmp_path)
    assert outcome(data[:end], tmp_path) == FILES


@pytest.mark.parametrize("form", FORMATS)
def test_a_tar_with_any_byte_of_a_header_changed_is_refused_or_means_the_same(form: str, tmp_path: Path) -> None:
    data = tar(form=form)
    headers = [at for at in range(0, len(data), BLOCK) if data[at + 257 : at + 262] == b"ustar"]
    assert len(headers) == (3 if form == "ustar" else 4)
    for at in headers:
        refused_or_the_same(data, range(at, at + BLOCK, 13), tmp_path)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_compressed_tar_that_is_cut_or_changed_is_refused_or_means_the_same(compression: str, tmp_path: Path) -> None:
    data = COMPRESSIONS[compression](tar())
    for position in range(0, len(data), 11):
        refused(data[:position], tmp_path)
        changed = bytearray(data)
        changed[position] ^= 0xFF
        found = outcome(bytes(changed), tmp_path)
        assert found == FILES or isinstance(found, str), position


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_a_tar_ends_at_a_zero_block_with_nothing_but_zeros_behind(compression: str | None, tmp_path: Path) -> None:
    compress = COMPRESSIONS[compression] if compression else bytes
    data = tar()
    body = data[: end_of(data) - BLOCK]
    for zeros in (ZEROS, ZEROS + b"\0", 2 * ZEROS, 99 * ZEROS):
        assert outcome(compress(body + zeros), tmp_path) == FILES
    refused(compress(body + ZEROS[1:]), tmp_path, "cannot be extracted")
    refused(compress(body + ZEROS + body + 2 * ZEROS), tmp_path, "neither a header nor zeros")
    refused(compress(body + 2 * ZEROS + body + 2 * ZEROS), tmp_path, "neither a header nor zeros")
    refused(compress(data + b"x"), tmp_path, "neither a header nor zeros")


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_a_tar_without_a_zero_block_is_whole_only_where_a_checksum_says_so(
    compression: str | None, tmp_path: Path
) -> None:
    data = tar()
    body = data[: end_of(data) - BLOCK]
    if compression is None:
        refused(body, tmp_path, "cannot be extracted")
        return
    compress = COMPRESSIONS[compression]
    assert outcome(compress(body), tmp_path) == FILES
    refused(compress(body)[:-1], tmp_path, "cannot be extracted")
    refused(compress(body[:-1]), tmp_path, "cannot be extracted")
    refused(compress(body + extended(b"x", b"12 path=abc\n")), tmp_path, "cannot be extracted")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_compressed_tar_in_two_pieces_needs_both(compression: str, tmp_path: Path) -> None:
    """As parallel compressors write them: a cut between two pieces is no damage that the compression sees."""
    data, compress = tar(), COMPRESSIONS[compression]
    pieces = compress(data[: 4 * BLOCK]), compress(data[4 * BLOCK :])
    assert outcome(b"".join(pieces), tmp_path) == FILES
    refused(pieces[0], tmp_path, "cannot be extracted")


@pytest.mark.parametrize("large", [False, True])
def test_a_zip_that_is_cut_or_changed_anywhere_is_refused_or_means_the_same(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = zip64(monkeypatch) if large else plain_zip()
    listed = data.index(b"PK\x01\x02")
    for cut in (*range(0, listed, 100), *range(listed, len(data), 40)):
        refused(data[:cut], tmp_path)
    refused_or_the_same(data, (*range(0, listed, 23), *range(listed, len(data), 7)), tmp_path)


@pytest.mark.parametrize("large", [False, True])
def test_a_zip_whose_list_lost_a_member_is_refused(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = zip64(monkeypatch) if large else plain_zip()
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 1)
    refused(data[:first] + data[second:], tmp_path)


def test_a_list_of_members_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "_LARGEST_DIRECTORY", 200)
    refused(plain_zip({f"{number}.jpg": b"" for number in range(9)}), tmp_path, "list of members is too large")


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("extended")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


def extended(kind: bytes, content: bytes) -> bytes:
    return header(kind, len(content)) + content + bytes(-len(content) % BLOCK)


@pytest.mark.parametrize(("kind", "content"), [(b"x", b"12 path=abc\n"), (b"L", b"abc\0"), (b"K", b"abc\0")])
def test_a_chain_of_extended_headers_is_followed_or_refused(kind: bytes, content: bytes, tmp_path: Path) -> None:
    found = outcome(extended(kind, content) * 3000 + tar({"a.jpg": b"a", "b.jpg": b"b"}), tmp_path)
    assert isinstance(found, str) or found == {"a.jpg" if kind == b"K" else "abc": b"a", "b.jpg": b"b"}
    refused(extended(kind, content) + 2 * ZEROS, tmp_path)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_an_extended_header_that_would_fill_the_memory_is_refused(kind: bytes, tmp_path: Path) -> None:
    archive, size = tmp_path / "a", 4 << 30
    with archive.open("wb") as file:
        file.write(header(kind, size))
        file.truncate(BLOCK + size + 2 * BLOCK)
    with pytest.raises(DatasetError, match=r"extended header that is too large[\s\S]*4294967296 bytes"):
        extract_archive(archive, tmp_path / "data")


@pytest.mark.parametrize(
    "content",
    [
        b"13 size=abcd\n",
        b"12 size=-50\n",
        b"0 path=a\n",
        b"5 path=abc\n",
        b"14 path=\xff\xfeabc\n",
        b"22 GNU.sparse.major=1\n",
        b"24 GNU.sparse.map=1,x,3\n",
    ],
)
def test_an_extended_header_of_odd_content_is_refused(content: bytes, tmp_path: Path) -> None:
    refused(extended(b"x", content) + tar(), tmp_path)


def test_settings_for_all_members_hold_until_a_member_has_its_own(tmp_path: Path) -> None:
    comment, size = b"19 comment=made by\n", b"10 size=3\n"
    data = tar({"a.jpg": b"abc", "b.jpg": b"d" * 3})
    assert outcome(extended(b"g", comment + size) + data, tmp_path) == {"a.jpg": b"abc", "b.jpg": b"ddd"}


def test_a_zip_with_a_member_without_a_name_is_refused(tmp_path: Path) -> None:
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, *[0] * 9)
    entry = struct.pack("<4s24x3H12x", b"PK\x01\x02", 0, 0, 0)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(entry), len(local), 0)
    refused(local + entry + end, tmp_path)


def test_a_zip_with_a_comment_comes_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(plain_zip())
    with zipfile.ZipFile(tmp_path / "a", "a") as archive:
        archive.comment = b"faces" * 999
    assert outcome((tmp_path / "a").read_bytes(), tmp_path) == FILES
    refused((tmp_path / "a").read_bytes() + b"x", tmp_path, "by its end record")


@pytest.mark.parametrize(
    "error", [RecursionError("deep"), MemoryError(), IndexError("far"), struct.error("short"), RuntimeError("odd")]
)
def test_whatever_a_decoder_raises_names_the_archive(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(zipfile.ZipExtFile, "read", broken)
    refused(plain_zip(), tmp_path, type(error).__name__)


# What a small archive may cost.


def record(keyword: bytes, value: bytes) -> bytes:
    content = b" " + keyword + b"=" + value + b"\n"
    size = len(content) + 1
    while len(str(size)) + len(content) != size:
        size += 1
    return str(size).encode() + content


@pytest.mark.parametrize("name", ["_proc_pax", "_proc_sparse", "_proc_builtin"])
def test_tarfile_has_the_private_methods_that_are_overridden_and_called(name: str) -> None:
    assert callable(getattr(tarfile.TarInfo, name))


@pytest.mark.parametrize(
    "content", [b"1" * 300, record(b"comment", b"1" * 300), b"2 " * 300 + b"a=b\n", b"6 a=bc\n", b"9 path abc\n"]
)
def test_an_extended_header_never_reaches_tarfile_unless_it_is_read_in_linear_time(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2024-6232, and records that overlap; `tarfile` of today refuses some of these, that of 3.11.7 none."""
    read: list[bytes] = []

    class Stream(unpacking._TarStream):
        def read(self, size: int) -> bytes:
            read.append(super().read(size))
            return read[-1]

    monkeypatch.setattr(unpacking, "_TarStream", Stream)
    refused(extended(b"x", content) + tar({"a.jpg": b"a"}), tmp_path, "an extended header")
    assert not any(content in block for block in read)


def test_settings_for_all_members_cost_no_member_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tarfile` goes through all of them for every member."""
    applied: list[int] = []
    apply = tarfile.TarInfo._apply_pax_info
    monkeypatch.setattr(
        tarfile.TarInfo,
        "_apply_pax_info",
        lambda self, settings, *more: (applied.append(len(settings)), apply(self, settings, *more))[1],
    )
    settings = b"".join(record(b"keyword%d" % number, b"v") for number in range(500))
    files = {f"{number}.jpg": b"abc" for number in range(5)}
    assert outcome(extended(b"g", settings) * 3 + tar(files), tmp_path) == files
    assert sum(applied) <= 3 * 500


def test_the_map_of_a_sparse_file_is_never_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_proc_sparse", "_proc_gnusparse_00", "_proc_gnusparse_01", "_proc_gnusparse_10"):
        monkeypatch.setattr(tarfile.TarInfo, name, lambda *_: pytest.fail("the map is built"))
    version = record(b"GNU.sparse.major", b"1") + record(b"GNU.sparse.minor", b"0")
    for start in (extended(b"x", version), extended(b"g", version), header(b"S", 0)):
        refused(start + tar({"a.jpg": b"1\n0\n0\n"}), tmp_path, "a sparse file")


def test_nor_is_it_by_the_reader_of_images_in_tars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_proc_sparse", "_proc_gnusparse_00", "_proc_gnusparse_01", "_proc_gnusparse_10"):
        monkeypatch.setattr(tarfile.TarInfo, name, lambda *_: pytest.fail("the map is built"))
    version = record(b"GNU.sparse.major", b"1") + record(b"GNU.sparse.minor", b"0")
    maps = (version, record(b"GNU.sparse.map", b"0,1"), record(b"GNU.sparse.size", b"3"))
    for number, start in enumerate([*(extended(b"x", form) for form in maps), header(b"S", 0)]):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(start + tar({"a.jpg": b"1\n0\n0\n", "b.jpg": b"abc"}))
        with pytest.raises(ImageRejected, match="not a plain file") as refused_as:
            read_member(str(path), tar_index(path).members[0].name, max_bytes=100)
        assert refused_as.value.code == "not_a_file"
        assert read_member(str(path), "b.jpg", max_bytes=100) == b"abc"


def test_members_are_found_by_the_paths_that_a_table_has(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(tar({"./a.jpg": b"one", "b//c.jpg": b"two", "/d.jpg": b"three"}))
    names = [member.name for member in tar_index(tmp_path / "x.tar").members]
    assert names == ["a.jpg", "b/c.jpg", "/d.jpg"]
    assert read_member(str(tmp_path / "x.tar"), "b/c.jpg", max_bytes=9) == b"two"


def test_a_gzip_whose_header_has_the_checksum_of_a_tar_by_chance_comes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "_starts_tar", lambda block: True)
    assert outcome(gzip.compress(tar()), tmp_path) == FILES


def test_members_of_a_zip_are_counted_before_there_is_an_object_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = plain_zip({f"{number}.jpg": b"" for number in range(9)})
    monkeypatch.setattr(zipfile, "ZipInfo", lambda *_: pytest.fail("an object is made"))
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DatasetError, match="too many members"):
        extract_archive(tmp_path / "a", tmp_path / "data", limits=unpacking.Limits(members=8))


def test_an_archive_whose_name_goes_while_it_is_open_comes_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tar())
    extract_archive(tmp_path / "a", tmp_path / "data", progress=lambda _: (tmp_path / "a").unlink(missing_ok=True))
    assert len([p for p in (tmp_path / "data").rglob("*") if p.is_file()]) == len(FILES)
