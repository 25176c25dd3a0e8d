"""Zips as other programs write them: names in their own ways, and methods that are refused."""

from __future__ import annotations

import re
import stat
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from plumbline.datasets.unpacking import extract_archive
from plumbline.errors import DatasetError

DOS, UNIX, MACOS = 0, 3, 19
METHODS = {"bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}
PICTURE = bytes(range(256)) * 5_000


def write(
    path: Path, *names: str, system: int = UNIX, mode: int = 0, method: int = zipfile.ZIP_STORED, content: bytes = b"a"
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr, info.compress_type = system, mode << 16, method
            archive.writestr(info, b"" if name.endswith(("/", "\\")) else content)
    return path


def replaced(path: Path, old: bytes, new: bytes) -> Path:
    """Replace what stands in a member's own header and in the list."""
    data = path.read_bytes()
    assert data.count(old) == 2
    path.write_bytes(data.replace(old, new))
    return path


def written_silently(path: Path, name: bytes, *, system: int) -> Path:
    """Write a name of these bytes without the flag that says UTF-8."""
    return replaced(write(path, "x" * len(name), system=system), b"x" * len(name), name)


def names(archive: Path, folder: Path) -> list[str]:
    extract_archive(archive, folder)
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def assert_refused(archive: Path, said: str, folder: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        extract_archive(archive, folder)
    assert re.search(said, str(caught.value)), caught.value
    assert not folder.exists()


@pytest.mark.parametrize("system", [UNIX, MACOS])
@pytest.mark.parametrize("name", ["ds/ü.jpg", "日本/a.jpg", "plain.jpg"])
def test_a_name_in_utf8_that_does_not_say_so_is_read_as_such(name: str, system: int, tmp_path: Path) -> None:
    archive = written_silently(tmp_path / "a", name.encode(), system=system)
    assert names(archive, tmp_path / "data") == [name]


def test_a_name_that_says_utf8_is_not_decoded_twice(tmp_path: Path) -> None:
    name = "├╝.jpg"
    assert name.encode("cp437").decode() == "ü.jpg"
    assert names(write(tmp_path / "a", name), tmp_path / "data") == [name]


@pytest.mark.parametrize(("system", "name"), [(UNIX, b"\x81.jpg"), (DOS, b"\x81.jpg"), (DOS, b"\xc3\xbc.jpg")])
def test_other_names_are_of_code_page_437(system: int, name: bytes, tmp_path: Path) -> None:
    archive = written_silently(tmp_path / "a", name, system=system)
    assert names(archive, tmp_path / "data") == [name.decode("cp437")]


def test_a_hostile_name_in_silent_utf8_is_refused(tmp_path: Path) -> None:
    archive = written_silently(tmp_path / "a", "\u202egpj.exe".encode(), system=UNIX)
    assert_refused(archive, "control characters", tmp_path / "data")


def test_backslashes_of_dos_are_slashes(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", "ds\\", "ds\\val\\a.jpg", "ds\\b.jpg", system=DOS)
    assert names(archive, tmp_path / "data") == ["ds/b.jpg", "ds/val/a.jpg"]


@pytest.mark.parametrize("name", ["..\\evil.jpg", "ds\\..\\..\\evil.jpg", "\\evil.jpg", "C:\\evil.jpg"])
def test_backslashes_of_dos_that_lead_out_are_refused(name: str, tmp_path: Path) -> None:
    assert_refused(write(tmp_path / "a", name, system=DOS), "leads out", tmp_path / "data")


@pytest.mark.parametrize("name", ["ds\\a.jpg", "ds\\ü.jpg"])
def test_backslashes_of_other_systems_are_refused_as_what_they_are(name: str, tmp_path: Path) -> None:
    assert_refused(write(tmp_path / "a", name), "a name with a backslash", tmp_path / "data")


@pytest.mark.parametrize("method", METHODS)
def test_what_zipfile_unpacks_without_bounds_never_stands_in_memory(method: str, tmp_path: Path) -> None:
    """A few kilobytes of bzip2 or LZMA that become 100 MiB."""
    archive = write(tmp_path / "a", "a.jpg", method=METHODS[method], content=bytes(100 << 20))
    tracemalloc.start()
    try:
        said = rf"compressed by method {METHODS[method]}[\s\S]*yourself"
        assert_refused(archive, said, tmp_path / "data")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [9, 93])
def test_a_method_that_cannot_be_unpacked_is_named(method: int, tmp_path: Path) -> None:
    archive = write(tmp_path / "a", "a.jpg", method=zipfile.ZIP_DEFLATED, content=PICTURE)
    data = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(signature) + offset] = method
    archive.write_bytes(data)
    assert_refused(archive, rf"compressed by method {method}[\s\S]*yourself", tmp_path / "data")


def test_what_was_read_from_a_pipe_is_called_so(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", "-", mode=stat.S_IFIFO | 0o600)
    assert_refused(archive, "a pipe, or what was read from one", tmp_path / "data")
