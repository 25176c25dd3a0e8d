"""Every error that Plumbline raises on purpose: one tree, each with place, found, expected and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Self, TypeVar

Kind = TypeVar("Kind", bound="PlumblineError")

UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029"  # control characters and line ends
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # changes of writing direction
    r"\ud800-\udfff]"  # what stands for bytes that are not UTF-8
)
"""Characters that no table, terminal or page should get from a foreign text."""


MOST_EXAMPLES = 3
"""Examples that a message gives of several like things."""


def examples(things: Iterable[object], *, total: int | None = None) -> str:
    """Return the first three of several things, and how many more there are.

    Parameters
    ----------
    total : int, optional
        How many there are, where not all are given.
    """
    texts = list(map(str, things))
    shown = texts[:MOST_EXAMPLES]
    more = (len(texts) if total is None else total) - len(shown)
    return "; ".join([*shown, f"and {more:,} more"] if more > 0 else shown)


def suggestion(name: object, known: Iterable[object]) -> str:
    """Return `; did you mean ...?` if a known name is close, else nothing."""
    close = difflib.get_close_matches(str(name), list(map(str, known)), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


class PlumblineError(Exception):
    """An error with everything a person needs to mend it.

    Parameters
    ----------
    what : str
        One sentence: what went wrong.
    where : str, optional
        File, line, key, row or address.
    found, expected : object, optional
        The value met, and what would have been right.
    hint : str, optional
        What to write or run instead.
    """

    def __init__(
        self, what: str, *, where: object = None, found: object = None, expected: object = None, hint: str | None = None
    ) -> None:
        self.parts: tuple[PlumblineError, ...] = ()
        self.what, self.where, self.found, self.expected, self.hint = what, where, found, expected, hint
        super().__init__(self._render())

    def restated(self, kind: type[Kind], before: str = "", *, where: object, hint: str | None = None) -> Kind:
        """Return the same complaint as an error of another kind: with words before it, a place, another hint."""
        return kind(before + self.what, where=where, found=self.found, expected=self.expected, hint=hint or self.hint)

    @classmethod
    def all_of(cls, errors: Sequence[Self]) -> Self:
        """Return one error with everything that several say; the one itself where there is one."""
        if len(errors) == 1:
            return errors[0]
        parts = [part for error in errors for part in (error.parts or (error,))]
        messages = (str(part).replace("\n", "\n  ") for part in parts)
        together = cls(f"{len(parts)} things are wrong:" + "".join(f"\n- {one}" for one in messages))
        together.parts = tuple(parts)
        return together

    @property
    def in_short(self) -> str:
        """Return what went wrong in one line, each of several things in its words."""
        return "; ".join(part.what for part in self.parts) if self.parts else self.what

    def _render(self) -> str:
        lines = [self.what]
        for name in ("where", "found", "expected"):
            value = getattr(self, name)
            if value is not None:
                lines.append(f"  {name + ':':<10}{value}")
        if self.hint:
            lines.append(f"  {'do:':<10}{self.hint}")
        return UNSAFE.sub(_escaped, "\n".join(lines))


def _escaped(character: re.Match[str]) -> str:
    """Return an unsafe character as its escape; line ends and tabs are those of messages themselves."""
    return character[0] if character[0] in "\n\t" else f"\\u{ord(character[0]):04x}"


class ConfigError(PlumblineError):
    """The audit file says something that cannot be run."""


class DatasetError(PlumblineError):
    """A dataset folder or its index as a whole cannot be read. Single bad files are quarantined instead."""


class ImageRejected(PlumblineError):
    """One image file is not accepted; becomes a quarantine row with `code` as its reason."""

    def __init__(self, code: str, what: str, **details: object) -> None:
        self.code = code
        super().__init__(what, **details)  # type: ignore[arg-type]


class CheckpointError(PlumblineError):
    """A checkpoint is missing, unsafe, of another digest than expected, or does not load."""


class EncodingError(PlumblineError):
    """A model gave an embedding that must not be used (NaN, Inf, zero norm, wrong shape)."""


class GenerationError(PlumblineError):
    """A model or an endpoint could not answer; rows that are finished stay finished."""


class ScoringError(PlumblineError):
    """A scorer could not score; scores that are finished stay finished."""


class StorageError(PlumblineError):
    """Something stored is absent, torn or of another checksum than its manifest says."""


class StoredDataGone(StorageError):
    """A data file that its manifest names is not there any more."""


class MetricError(PlumblineError, ValueError):
    """A metric was asked for something that its definition excludes."""
