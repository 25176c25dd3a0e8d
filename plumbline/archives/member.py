"""What both kinds of archive come down to: members, and why one is not extracted."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, NamedTuple

KINDS = "zip, tar, tar.gz, tar.bz2 or tar.xz"

GET_AGAIN = "nothing was extracted; get the archive from the dataset's own page again"
BY_HAND = (
    "nothing was extracted; if you trust who made the archive, unpack it yourself into the dataset's folder"
)


class Refused(Exception):
    """Why an archive is not extracted, in the words of a DatasetError, which adds the place.

    Parameters
    ----------
    what, found, expected, hint : str
        As of a PlumblineError. By default the archive may be whole, and the hint is to unpack it by hand.
    """

    def __init__(self, what: str, *, found: str | None, expected: str, hint: str = BY_HAND) -> None:
        self.what, self.found, self.expected, self.hint = what, found, expected, hint
        super().__init__(what, found)


class Damage(Refused):
    """An archive that is cut or changed; says what was met, and where."""

    def __init__(self, found: str) -> None:
        super().__init__(
            "the archive cannot be extracted", found=found, expected=f"a whole {KINDS}", hint=GET_AGAIN
        )


class Member(NamedTuple):
    """One entry of an archive.

    Attributes
    ----------
    name : str
        As its maker meant it, unchecked.
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
