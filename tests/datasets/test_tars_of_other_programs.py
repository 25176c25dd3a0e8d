"""Tars as other programs write them: the oldest form, a label in front, keywords of their own."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from plumbline.datasets.unpacking import extract_archive
from plumbline.errors import DatasetError

BLOCK = tarfile.BLOCKSIZE
KEYWORDS = [
    "x",
    "__key__",
    "user.mime_type",
    "APK-TOOLS.checksum.SHA1",
    "NODETAR.depth",
    "dev",
    "LIBARCHIVE.creationtime",
    "GNU.volume.label",
]


def header(name: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.USTAR_FORMAT)


def oldest(block: bytes) -> bytes:
    """Return a header as it was before POSIX: no signature, and nothing behind the link's name."""
    fields = bytearray(block[:257] + bytes(BLOCK - 257))
    fields[156] = 0
    fields[148:156] = b" " * 8
    fields[148:156] = b"%06o\0 " % sum(fields)
    return bytes(fields)


def content_of(data: bytes, tmp_path: Path) -> dict[str, bytes]:
    (tmp_path / "a").write_bytes(data)
    folder = tmp_path / "data"
    extract_archive(tmp_path / "a", folder)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["ds/a.jpg", "BZh/a.jpg"])
def test_the_oldest_form_comes_out(name: str, tmp_path: Path) -> None:
    """Told by the checksum of its first header, whatever that begins with."""
    folder = name.split("/", maxsplit=1)[0] + "/"
    blocks = (oldest(header(folder)), oldest(header(name, size=3)), b"abc".ljust(BLOCK, b"\0"), bytes(2 * BLOCK))
    data = b"".join(blocks)
    assert b"ustar" not in data
    assert content_of(data, tmp_path) == {name: b"abc"}


def test_a_label_in_front_is_passed_over(tmp_path: Path) -> None:
    label = header("CelebA", kind=b"V")
    data = label + header("a.jpg", size=3) + b"abc".ljust(BLOCK, b"\0") + bytes(2 * BLOCK)
    assert content_of(data, tmp_path) == {"a.jpg": b"abc"}


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize("of_all", [False, True])
def test_a_keyword_that_only_its_maker_knows_is_passed_over(keyword: str, of_all: bool, tmp_path: Path) -> None:
    buffer, settings = io.BytesIO(), {keyword: "a\nb=c"}
    with tarfile.open(fileobj=buffer, mode="w", pax_headers=settings if of_all else None) as archive:
        info = tarfile.TarInfo("ü" * 80)
        info.size, info.pax_headers = 3, {} if of_all else settings
        archive.addfile(info, io.BytesIO(b"abc"))
    assert content_of(buffer.getvalue(), tmp_path) == {"ü" * 80: b"abc"}


@pytest.mark.parametrize("keyword", ["GNU.sparse.size", "GNU.sparse.map", "GNU.sparse.major"])
def test_a_sparse_file_of_each_form_is_refused(keyword: str, tmp_path: Path) -> None:
    """Its content is what is left of the file without its holes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("a.jpg")
        info.pax_headers = {keyword: "1"}
        archive.addfile(info)
    with pytest.raises(DatasetError, match=r"a sparse file[\s\S]*yourself"):
        content_of(buffer.getvalue(), tmp_path)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_a_name_that_is_not_utf8_is_called_so(form: int, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="latin-1") as archive:
        archive.addfile(tarfile.TarInfo("ü.jpg"))
    if form == tarfile.PAX_FORMAT:
        # Here the name has a record of its own, in UTF-8.
        assert content_of(buffer.getvalue(), tmp_path) == {"ü.jpg": b""}
        return
    with pytest.raises(DatasetError, match=r"a name that is not UTF-8[\s\S]*udcfc"):
        content_of(buffer.getvalue(), tmp_path)
