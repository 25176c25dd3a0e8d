"""A finished file or folder gets its name only when its bytes are on the disk, and the old one stays if it cannot."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest
from upath import UPath

from plumbline.storage import files as atomic
from plumbline.storage.files import move_into_place, sweep


def test_a_file_is_flushed_before_it_has_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished, target = tmp_path / ".a.unfinished", tmp_path / "a"
    unfinished.write_bytes(b"new")
    target.write_bytes(b"old")
    seen: list[tuple[Path, bytes]] = []

    def flush(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").resolve(), target.read_bytes()))

    monkeypatch.setattr(os, "fsync", flush)
    move_into_place(unfinished, target)
    assert seen == [(unfinished, b"old"), (tmp_path, b"new")]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    folder = tmp_path / ".data.unfinished"
    folder.mkdir()
    (folder / "a").write_text("a")
    return folder


def test_what_the_disk_did_not_take_of_a_folder_is_said_and_it_gets_no_name(
    unfinished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(atomic, "_syncfs", failing)
    with pytest.raises(OSError, match=r"Input/output error.*\.data\.unfinished") as caught:
        move_into_place(unfinished, unfinished.with_name("data"))
    assert caught.value.errno == errno.EIO
    assert [path.name for path in unfinished.parent.iterdir()] == [".data.unfinished"]


@pytest.mark.skipif(atomic._syncfs is None, reason="the system has no syncfs")
def test_the_system_is_asked_in_its_own_terms() -> None:
    """A real call, of a folder that is closed: its answer and its error number are understood."""
    descriptor = os.open(".", os.O_RDONLY)
    assert atomic._syncfs(descriptor) == 0
    os.close(descriptor)
    assert atomic._syncfs(descriptor) == -1
    assert ctypes.get_errno() == errno.EBADF


def test_a_system_without_such_a_call_flushes_everything(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(atomic, "_syncfs", None)
    monkeypatch.setattr(os, "sync", lambda: seen.extend(path.name for path in unfinished.parent.iterdir()))
    move_into_place(unfinished, unfinished.with_name("data"))
    assert seen == [".data.unfinished"]
    assert (unfinished.with_name("data") / "a").read_text() == "a"


def test_a_folder_never_replaces_one_that_holds_something(tmp_path: Path) -> None:
    for name in ("unfinished", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    with pytest.raises(OSError, match="not empty"):
        move_into_place(tmp_path / "unfinished", tmp_path / "data")
    assert (tmp_path / "data/a").read_text() == "data"
    assert (tmp_path / "unfinished/a").read_text() == "unfinished"


def test_what_a_killed_process_left_is_swept_after_an_hour(tmp_path: Path) -> None:
    old, new, other = (tmp_path / "a" / name for name in (".x.0123456789ab.tmp", ".x.ba9876543210.tmp", ".x.notes.tmp"))
    old.parent.mkdir()
    for path in (old, new, other):
        path.write_bytes(b"half")
        os.utime(path, (1000, 1000 if path is not new else 2000))
    assert sweep(UPath(tmp_path), now=5000.0) == 1
    assert sorted(path.name for path in old.parent.iterdir()) == [new.name, other.name]
