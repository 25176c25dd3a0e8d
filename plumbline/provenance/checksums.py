"""Checksum files in the format of `sha256sum`: writing one, and verifying a folder against it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from plumbline.digests import digest_file
from plumbline.errors import StorageError

CHECKSUMS = "SHA256SUMS"
_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<path>.+)")


@dataclass(frozen=True)
class Verdict:
    """Result of comparing a folder with its checksum file.

    Attributes
    ----------
    sound : int
        Number of unchanged files.
    missing, changed, extra : tuple of str
        Relative paths; `extra` are files that the checksum file does not list.
    """

    sound: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Return whether every listed file is unchanged, and there is no other."""
        return not (self.missing or self.changed or self.extra)


def write_checksums(folder: Path) -> Path:
    """Write `SHA256SUMS` over all files of a folder, in the order of their paths; `sha256sum -c` reads it too.

    Raises
    ------
    StorageError
        If a name holds a character that the format escapes.
    """
    names = _files(folder)
    if odd := [name for name in names if "\\" in name or "\n" in name or "\r" in name]:
        raise StorageError("a file name cannot stand in a checksum file", where=folder, found=ascii(odd[0]))
    lines = [f"{digest_file(folder / name)}  {name}\n" for name in names]
    path = folder / CHECKSUMS
    path.write_text("".join(lines), "utf-8")
    return path


def verify_folder(folder: Path) -> Verdict:
    """Compare a folder with its checksum file.

    Raises
    ------
    StorageError
        If there is no checksum file, or a line of it is none or names a file outside of the folder.
    """
    listed = _listed(folder)
    present = set(_files(folder))
    missing = tuple(name for name in listed if name not in present)
    changed = tuple(name for name, sha256 in listed.items() if name in present and digest_file(folder / name) != sha256)
    extra = tuple(sorted(present - set(listed)))
    return Verdict(len(listed) - len(missing) - len(changed), missing, changed, extra)


def _files(folder: Path) -> list[str]:
    """Return the files below a folder; a link counts as a file, so that none is followed out of it unseen."""
    every = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return sorted(name for path in every if (name := path.relative_to(folder).as_posix()) != CHECKSUMS)


def _listed(folder: Path) -> dict[str, str]:
    path, listed = folder / CHECKSUMS, {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            "there is no checksum file to verify", where=path, found=type(error).__name__,
            hint="name a folder that `plumbline export` wrote",
        ) from error  # fmt: skip
    for number, line in enumerate(lines, start=1):
        parts = _LINE.fullmatch(line)
        if parts is None or parts["path"].startswith("/") or ".." in parts["path"].split("/"):
            raise StorageError(
                "this is no line of a checksum file", where=f"{path}:{number}", found=ascii(line[:80]),
                expected="64 hexadecimal digits, two spaces, and a path inside of the folder",
            )  # fmt: skip
        listed[parts["path"]] = parts["sha256"]
    return listed
