"""The names of members: relative, printable and of a length that a disk takes."""

from __future__ import annotations

from plumbline.archives.member import Refused
from plumbline.datasets.containment import leads_out
from plumbline.datasets.records import unsafe_characters

_LONGEST_PART, _LONGEST_NAME = 255, 1024


def safe_parts(name: str) -> list[str]:
    """Return the parts of a member's name; none for the archive's own folder, `.`.

    Raises
    ------
    Refused
        If the name is absolute or empty, has `..`, a drive, a backslash or control characters, is not UTF-8, or is
        too long.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    wrong = _wrong(name, parts)
    if wrong is not None:
        what, expected = wrong
        raise Refused(f"the archive holds {what}", found=ascii(name), expected=expected)
    return parts


def _wrong(name: str, parts: list[str]) -> tuple[str, str] | None:
    if any("\udc80" <= character <= "\udcff" for character in name):
        return "a name that is not UTF-8", "a name in UTF-8"
    if unsafe_characters(name):
        return "a name with control characters", "a printable name"
    if leads_out(name):
        return "a name that leads out of the folder", "a relative name, without `..`"
    if "\\" in name:
        return "a name with a backslash", "a name with `/` between its parts"
    if not parts and name.rstrip("/") != ".":
        return "a member without a name", "a name"
    if len(name) > _LONGEST_NAME or any(len(part.encode()) > _LONGEST_PART for part in parts):
        return "a name that is too long", f"at most {_LONGEST_NAME} characters, {_LONGEST_PART} bytes a part"
    return None
