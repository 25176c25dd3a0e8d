"""What both kinds of archive come down to: members, and what is met where one is damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, NamedTuple


class Damage(Exception):
    """An archive that is cut, changed or of no known form; says what was met, and where."""


class Member(NamedTuple):
    """One entry of an archive.

    Attributes
    ----------
    name : str
        As written, unchecked.
    kind : str
        `file`, `folder`, or what else it is, in words.
    size : int
        Bytes of its content, as the archive says.
    content : callable
        Opens the content of a file.
    """

    name: str
    kind: str
    size: int
    content: Callable[[], IO[bytes]]
