"""The folder that an extraction fills: there complete or not at all, and what stands in its way is said."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plumbline.datasets.unpacking import extract_archive, new_folder
from plumbline.errors import DatasetError
from plumbline.storage import files as atomic


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("val/a.jpg", b"a" * 5000)
    return tmp_path / "a.zip"


@contextmanager
def small_disk() -> Iterator[None]:
    """Let no file grow beyond 1000 bytes: the system refuses a write as on a full disk.

    Not a fixture: it would still hold when pytest writes to its own output, which may be a longer file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_folder_that_holds_something_is_left_as_it_is(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mine.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    for name, found in (("data", "mine.txt"), ("data/mine.txt", "a file"), ("link", "a link")):
        with pytest.raises(DatasetError, match=rf"holds something already[\s\S]*found: +.*{found}"):
            extract_archive(archive, tmp_path / name)
    assert (tmp_path / "data/mine.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip", "data", "link"]


@pytest.mark.parametrize("name", ["file/data", "file/deep/data", "n" * 250, "absent/../file/data"])
def test_a_place_that_cannot_be_written_is_said(name: str, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"cannot be written[\s\S]*where:[\s\S]*expected: +a folder") as caught:
        extract_archive(archive, tmp_path / name)
    assert str(tmp_path) in str(caught.value.where)
    assert caught.value.found.startswith(("FileExistsError", "NotADirectoryError", "OSError: File name too long"))


def test_a_disk_that_takes_no_more_is_said_and_nothing_is_left(archive: Path, tmp_path: Path) -> None:
    said = r"cannot be written[\s\S]*a\.jpg[\s\S]*File too large"
    with pytest.raises(DatasetError, match=said), small_disk():
        extract_archive(archive, tmp_path / "data")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_what_a_killed_extraction_left_is_cleared(archive: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from plumbline.datasets.unpacking import extract_archive;"
        "extract_archive(Path(sys.argv[1]), Path(sys.argv[2]), "
        "progress=lambda _: os.kill(os.getpid(), signal.SIGKILL))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(archive), str(tmp_path / "data")])
    assert done.returncode == -signal.SIGKILL
    left = tmp_path / ".data.unfinished"
    assert left.is_dir() and not (tmp_path / "data").exists()
    (left / "of/before").mkdir(parents=True)
    (left / "old.jpg").write_text("of another archive")
    (left / "link").symlink_to(tmp_path)
    extract_archive(archive, tmp_path / "data")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip", "data"]
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["val"]


def test_one_process_at_a_time_fills_a_folder(archive: Path, tmp_path: Path) -> None:
    with new_folder(tmp_path / "data") as unfinished:
        (unfinished / "mine.jpg").write_text("mine")
        with pytest.raises(DatasetError, match="another process"):
            extract_archive(archive, tmp_path / "data")
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["mine.jpg"]


def test_a_link_in_the_place_of_the_unfinished_folder_is_not_followed(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/mine.txt").write_text("mine")
    (tmp_path / ".data.unfinished").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match="cannot be written"):
        extract_archive(archive, tmp_path / "data")
    assert (tmp_path / "elsewhere/mine.txt").read_text() == "mine"


def test_the_bytes_are_on_the_disk_before_the_name_is_and_the_name_before_the_end(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []
    folder = tmp_path / "data"
    flush = os.fsync

    def flush_all(descriptor: int) -> int:
        seen.append((Path(f"/proc/self/fd/{descriptor}").resolve().name, folder.exists()))
        return 0

    def flush_one(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").resolve().name, folder.exists()))
        flush(descriptor)

    monkeypatch.setattr(atomic, "_syncfs", flush_all)
    monkeypatch.setattr(os, "fsync", flush_one)
    extract_archive(archive, folder)
    assert seen == [(".data.unfinished", False), (tmp_path.name, True)]
