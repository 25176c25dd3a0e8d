"""Archives: what is plain comes out whole, whatever is not is refused by name, and nothing is left behind."""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from plumbline.datasets import unpacking as limits_module
from plumbline.datasets.unpacking import Extracted, Limits, extract_archive
from plumbline.errors import DatasetError

FILES = {"a.jpg": b"\xff\xd8a", "val/b.jpg": b"b" * 3000, "val/ü/c.txt": b""}
TARS = {"tar": "w", "tar.gz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}
KINDS = ("zip", *TARS)

Entry = tuple[str, bytes, dict[str, object]]


def write_zip(path: Path, entries: list[Entry]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, options in entries:
            info = zipfile.ZipInfo("placeholder")
            # Set afterwards: the constructor would cut the name at a NUL.
            info.filename = info.orig_filename = name
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = int(options.get("mode", stat.S_IFREG | 0o644)) << 16
            archive.writestr(info, content)
    return path


def write_tar(path: Path, entries: list[Entry], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content, options in entries:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), options.get("type", tarfile.REGTYPE)
            info.linkname = options.get("linkname", "")
            archive.addfile(info, io.BytesIO(content))
    return path


def write(kind: str, path: Path, entries: list[Entry]) -> Path:
    return write_zip(path, entries) if kind == "zip" else write_tar(path, entries, TARS[kind])


def plain(files: dict[str, bytes]) -> list[Entry]:
    return [(name, content, {}) for name, content in files.items()]


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_plain_files_come_out_under_their_names(kind: str, tmp_path: Path) -> None:
    archive, seen = write(kind, tmp_path / f"a.{kind}", plain(FILES)), []
    extracted = extract_archive(archive, tmp_path / "deep/er/data", progress=seen.append)
    assert tree(tmp_path / "deep/er/data") == FILES
    assert extracted == Extracted(3, 3003)
    assert seen[-1] == 3003
    assert [p.name for p in (tmp_path / "deep/er").iterdir()] == ["data"]


@pytest.mark.parametrize("kind", KINDS)
def test_folders_and_the_dot_in_front_are_plain(kind: str, tmp_path: Path) -> None:
    mode = {"mode": stat.S_IFDIR | 0o755, "type": tarfile.DIRTYPE}
    entries = [("./" if kind == "zip" else ".", b"", mode), ("./empty/", b"", mode), ("./x/a.jpg", b"a", {})]
    (tmp_path / "data").mkdir()
    extract_archive(write(kind, tmp_path / "a", entries), tmp_path / "data")
    assert tree(tmp_path / "data") == {"x/a.jpg": b"a"}
    assert (tmp_path / "data/empty").is_dir()


NAMES = {
    "parent": "../evil.jpg",
    "parent within": "val/../../evil.jpg",
    "absolute": "/evil.jpg",
    "drive": "C:/evil.jpg",
    "drive, relative": "c:evil.jpg",
    "backslash": "..\\evil.jpg",
    "backslash within": "val\\evil.jpg",
    "escape sequence": "evil\x1b[31m.jpg",
    "line end": "evil\n.jpg",
    "direction change": "evil\u202egpj.exe",
    "long part": "x" * 256 + ".jpg",
    "long name": "x/" * 600 + "evil.jpg",
}


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_leads_out_or_hides_something_is_refused(case: str, kind: str, tmp_path: Path) -> None:
    entries = [*plain(FILES), (NAMES[case], b"evil", {})]
    assert_refused(
        write(kind, tmp_path / "a", entries), r"leads out|control characters|too long|with a backslash", tmp_path
    )


def test_a_name_cut_by_nul_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a", plain({"evil.jpgX.exe": b"evil"}))
    path.write_bytes(path.read_bytes().replace(b"evil.jpgX", b"evil.jpg\0"))
    assert_refused(path, r"control characters[\s\S]*x00", tmp_path)


OTHER_THINGS: dict[str, tuple[str, Entry]] = {
    "link, zip": ("zip", ("evil", b"/etc/passwd", {"mode": stat.S_IFLNK | 0o777})),
    "device, zip": ("zip", ("evil", b"", {"mode": stat.S_IFBLK | 0o644})),
    "pipe, zip": ("zip", ("evil", b"", {"mode": stat.S_IFIFO | 0o644})),
    "link, tar": ("tar", ("evil", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})),
    "link within, tar": ("tar", ("evil", b"", {"type": tarfile.SYMTYPE, "linkname": "a.jpg"})),
    "hard link, tar": ("tar", ("evil", b"", {"type": tarfile.LNKTYPE, "linkname": "a.jpg"})),
    "block device, tar": ("tar", ("evil", b"", {"type": tarfile.BLKTYPE})),
    "character device, tar": ("tar", ("evil", b"", {"type": tarfile.CHRTYPE})),
    "pipe, tar": ("tar", ("evil", b"", {"type": tarfile.FIFOTYPE})),
    "sparse, tar": ("tar", ("evil", b"", {"type": tarfile.GNUTYPE_SPARSE})),
}


@pytest.mark.parametrize("case", OTHER_THINGS)
def test_nothing_but_files_and_folders_is_extracted(case: str, tmp_path: Path) -> None:
    kind, entry = OTHER_THINGS[case]
    said = r"something else than files and folders[\s\S]*member 'evil'"
    assert_refused(write(kind, tmp_path / "a", [*plain(FILES), entry]), said, tmp_path)


def test_content_under_the_name_of_a_folder_is_refused_and_not_dropped(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("folder/", "")
        archive.writestr("hidden/", "content")
    assert_refused(tmp_path / "a.zip", "named as a folder, with content", tmp_path)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a", plain({"evil.jpg": b"evil"}))
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path.write_bytes(data)
    assert_refused(path, "encrypted", tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_comes_twice_is_refused(kind: str, tmp_path: Path) -> None:
    twice = [("x/evil.jpg", b"a", {}), ("x/./evil.jpg", b"b", {})]
    assert_refused(write(kind, tmp_path / "a", twice), "same name twice", tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("entries", [{"evil": b"a", "evil/b": b"b"}, {"evil/b": b"b", "evil": b"a"}])
def test_a_name_that_is_file_and_folder_is_refused(entries: dict[str, bytes], kind: str, tmp_path: Path) -> None:
    assert_refused(write(kind, tmp_path / "a", plain(entries)), "same name twice", tmp_path)


LIMITS = {
    "members": (Limits(members=2), "too many members"),
    "total": (Limits(total_bytes=3002), "holds too much"),
    "file": (Limits(file_bytes=2999), "too large"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", LIMITS)
def test_each_limit_holds_and_its_value_is_still_allowed(case: str, kind: str, tmp_path: Path) -> None:
    archive = write(kind, tmp_path / "a", plain(FILES))
    limits, said = LIMITS[case]
    assert_refused(archive, said, tmp_path, limits=limits)
    extract_archive(archive, tmp_path / "data", limits=Limits(members=3, total_bytes=3003, file_bytes=3000))


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.bz2", "tar.xz"])
def test_what_grows_too_much_is_refused_before_it_is_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "_RATIO_FREE_BYTES", 1000)
    archive = write(kind, tmp_path / "a", plain({"evil.jpg": b"\0" * 5_000_000}))
    assert_refused(archive, r"grows too much[\s\S]*at most 50 times", tmp_path)
    extract_archive(archive, tmp_path / "data", limits=Limits(ratio=1e6))


def test_what_a_zip_says_of_its_sizes_is_not_believed(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a", plain({"evil.jpg": b"e" * 70_000}))
    data = path.read_bytes()
    path.write_bytes(data.replace((70_000).to_bytes(4, "little"), (7).to_bytes(4, "little")))
    assert_refused(path, "cannot be extracted|too large", tmp_path, limits=Limits(file_bytes=10))


@pytest.mark.parametrize("content", [b"", b"<html>sign in</html>", b"Rar!\x1a\x07\0", b"\x1f\x8bnot gzip"])
def test_what_is_no_archive_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    assert_refused(tmp_path / "a", "not an archive of a known kind|cannot be extracted", tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_without_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    mode = {"mode": stat.S_IFDIR | 0o755, "type": tarfile.DIRTYPE}
    assert_refused(write(kind, tmp_path / "a", [("empty/", b"", mode)]), "no file", tmp_path)


def test_an_archive_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    (tmp_path / "folder.zip").mkdir()
    os.mkfifo(tmp_path / "pipe.zip")
    for name, found in (
        ("absent.zip", "FileNotFoundError"),
        ("folder.zip", "IsADirectoryError"),
        ("pipe.zip", "it is a pipe"),
    ):
        said = rf"cannot be opened[\s\S]*{name}[\s\S]*{found}[\s\S]*do: +correct its path"
        assert_refused(tmp_path / name, said, tmp_path)


def test_what_to_do_is_true_of_the_refusal(tmp_path: Path) -> None:
    """Another copy mends what is cut; what was made so is so in every copy."""
    whole = write_tar(tmp_path / "whole", plain(FILES))
    (tmp_path / "cut").write_bytes(whole.read_bytes()[:700])
    assert_refused(tmp_path / "cut", "do: .*get the archive .* again", tmp_path)
    by_hand = r"do: (?!.*again).*unpack it yourself into the dataset's folder"
    for entry in (OTHER_THINGS["link, tar"][1], *((name, b"evil", {}) for name in NAMES.values())):
        assert_refused(write_tar(tmp_path / "a", [entry]), by_hand, tmp_path)
    for limits, _ in LIMITS.values():
        assert_refused(whole, by_hand, tmp_path, limits=limits)


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    archive = write_zip(tmp_path / "a", plain(FILES))
    with pytest.raises(KeyboardInterrupt):
        extract_archive(archive, tmp_path / "data", progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def assert_refused(archive: Path, said: str, tmp_path: Path, *, limits: Limits | None = None) -> None:
    """Check the error's words, and that nothing was written inside or outside the folder."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DatasetError) as caught:
        extract_archive(archive, tmp_path / "data", limits=limits)
    assert re.search(said, str(caught.value)), caught.value
    assert caught.value.expected and not any(ord(c) < 32 for c in str(caught.value).replace("\n", ""))
    assert sorted(tmp_path.rglob("*")) == before
