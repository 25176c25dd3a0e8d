"""A finished file or folder gets its name only when its bytes are on the disk, and the old one stays if it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plumbline.storage.atomic import move_into_place


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


def test_a_folder_never_replaces_one_that_holds_something(tmp_path: Path) -> None:
    for name in ("unfinished", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    with pytest.raises(OSError, match="not empty"):
        move_into_place(tmp_path / "unfinished", tmp_path / "data")
    assert (tmp_path / "data/a").read_text() == "data"
    assert (tmp_path / "unfinished/a").read_text() == "unfinished"
