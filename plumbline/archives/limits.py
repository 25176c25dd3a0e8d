"""How much an archive may hold, and what it has taken so far."""

from __future__ import annotations

from dataclasses import dataclass

from plumbline.archives.member import Refused

# Below this much output a ratio says nothing: a folder of ten empty files compresses a thousandfold.
_RATIO_FREE_BYTES = 16 << 20


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold.

    Attributes
    ----------
    members : int
        Files and folders. Those of a zip are all in memory at once, at some 600 bytes each; CelebA has 200,000.
    total_bytes, file_bytes : int
        Of everything and of one file, extracted.
    ratio : float
        Extracted bytes over the bytes of the archive, from the first 16 MiB on. Pictures do not compress: the
        archives of the known datasets stay below 2.
    """

    members: int = 1_000_000
    total_bytes: int = 400 << 30
    file_bytes: int = 16 << 30
    ratio: float = 50.0


class Usage:
    """What one archive has taken so far; each method raises Refused beyond a limit.

    Parameters
    ----------
    packed : int
        Bytes of the archive itself.

    Attributes
    ----------
    members, files : int
        Entries met, and files written.
    written : int
        Bytes of those files.
    """

    def __init__(self, limits: Limits, packed: int) -> None:
        self.limits, self._packed = limits, packed
        self.members = self.files = self.written = self._unpacked = 0

    def require_members(self, count: int) -> None:
        """Refuse more members than may be."""
        if count > self.limits.members:
            raise Refused(
                "the archive holds too many members",
                found="more",
                expected=f"at most {self.limits.members} members",
            )

    def require_size(self, size: int) -> None:
        """Refuse a file, as it says it is or as it comes out, that is too large."""
        if size > self.limits.file_bytes:
            raise Refused(
                "the archive holds a file that is too large",
                found=f"{size} bytes or more",
                expected=f"at most {self.limits.file_bytes} bytes a file",
            )

    def unpack(self, more: int) -> None:
        """Count bytes of a decompressed tar with its headers and padding: they too can be what grows."""
        self._unpacked += more
        self._require_ratio(self._unpacked)

    def write(self, more: int) -> None:
        """Count bytes of a file."""
        self.written += more
        if self.written > self.limits.total_bytes:
            most = self.limits.total_bytes
            raise Refused(
                "the archive holds too much",
                found=f"more than {most} bytes",
                expected=f"at most {most} bytes in all",
            )
        self._require_ratio(self.written)

    def _require_ratio(self, size: int) -> None:
        if size > _RATIO_FREE_BYTES and size > self.limits.ratio * self._packed:
            raise Refused(
                "the archive grows too much when it is extracted",
                found=f"{size} bytes from {self._packed}",
                expected=f"at most {self.limits.ratio:g} times its size",
            )
