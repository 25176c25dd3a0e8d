"""Parts of a result that were computed before, taken over where all that they are computed from is the same.

A table of metrics is made of parts: rows of one event of a suite by one attribute, say. Each part is a function with
its arguments, and nothing else goes into its rows. The digest of both names them: one word more in one suite leaves the
parts of all others as they were, and a mitigation that was fitted again with the same result costs nothing. Arguments
are compared by their content, so that a part cannot be taken over by mistake.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FunctionType
from typing import IO, Any, cast

import numpy as np
import polars as pl

from plumbline.blocks import Rows, blocks
from plumbline.catalog.schema import Row
from plumbline.concurrency import run_threads
from plumbline.reasons import Reason, decode, encode

_REASONS, _NAN = "reason codes", "bits of nan"
_REMEMBERED = 1 << 16
"""Bytes from which the digest of an array is remembered: several parts are computed from the same labels."""


@dataclasses.dataclass
class Parts:
    """The parts of one result.

    Attributes
    ----------
    before : mapping of str to list
        Digest -> rows as JSON, of the last time.
    now : dict of str to list
        The same of what was computed or taken over since.
    """

    before: Mapping[str, list[Any]] = dataclasses.field(default_factory=dict)
    now: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    _digests: dict[int, tuple[Any, bytes]] = dataclasses.field(default_factory=dict, repr=False)

    def key(self, *what: Any) -> str:
        """Return the digest of functions and values.

        Raises
        ------
        TypeError
            If a value has no content that could be compared, such as a cell with all of its responses.
        """
        digest = hashlib.sha256()
        for data in _content(what, self._digests):
            digest.update(data)
        return digest.hexdigest()

    def find(self, key: str) -> list[Row] | None:
        """Return the rows of a part as they were, and take them over; None where it has to be computed."""
        stored = self.before.get(key)
        if stored is None:
            return None
        self.now[key] = stored
        return [_row(each) for each in stored]

    def keep(self, key: str, rows: Sequence[Row]) -> None:
        """Keep the rows of a part."""
        self.now[key] = [_as_json(row) for row in rows]

    def forget_arrays(self) -> None:
        """Let go of the arrays whose digests are remembered."""
        self._digests.clear()


_CURRENT: ContextVar[Parts | None] = ContextVar("parts", default=None)


def current_parts() -> Parts | None:
    """Return the parts of the result that is being computed; None where none are kept."""
    return _CURRENT.get()


@contextmanager
def keeping(parts: Parts) -> Iterator[Parts]:
    """Take over and keep the parts of what is computed inside."""
    token = _CURRENT.set(parts)
    try:
        yield parts
    finally:
        _CURRENT.reset(token)


def rows_of_parts(calls: Sequence[partial[Any]]) -> list[list[Row]]:
    """Return the rows of each part, taken over or computed; the parts run in threads."""
    rows = run_threads([partial(_taken_or_computed, call) for call in calls])
    if (parts := _CURRENT.get()) is not None:
        parts.forget_arrays()
    return rows


def _taken_or_computed(call: partial[Any]) -> list[Row]:
    parts = _CURRENT.get()
    if parts is None:
        return list(call())
    key = parts.key(call)
    if (rows := parts.find(key)) is None:
        rows = list(call())
        parts.keep(key, rows)
    return rows


# --- Rows as JSON.


def _as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):  # which has a sign, and a table has its bits
        return {_NAN: struct.pack(">d", value).hex()}
    if isinstance(value, Reason):
        return {_REASONS: encode([value])}
    if isinstance(value, tuple):
        if not all(isinstance(each, Reason) for each in value):
            raise TypeError(f"no row holds {value!r}")
        return {_REASONS: encode(value)}
    return _as_json(value) if isinstance(value, Mapping) else value


def _row(stored: dict[str, Any]) -> Row:
    return {name: _restored(value) for name, value in stored.items()}


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if _NAN in value:
        return struct.unpack(">d", bytes.fromhex(value[_NAN]))[0]
    return decode(value[_REASONS]) if _REASONS in value else _row(value)


# --- What a part is computed from, as bytes.


def _content(value: Any, known: dict[int, tuple[Any, bytes]]) -> Iterator[bytes]:
    """Give a value as bytes that no other value has; of large arrays their digest."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        text = repr(value).encode()
        yield b"%s %d " % (kind.__name__.encode(), len(text))
        yield text
    elif isinstance(value, np.generic):
        yield from _content((str(value.dtype), value.item()), known)
    elif isinstance(value, np.ndarray):
        yield from _array(value, known)
    elif isinstance(value, pl.DataFrame):
        yield from _frame(value, known)
    elif isinstance(value, tuple | list):
        yield b"%s %d " % (kind.__qualname__.encode(), len(value))
        for each in value:
            yield from _content(each, known)
    elif isinstance(value, Mapping):
        yield b"mapping %d " % len(value)
        for each in value.items():
            yield from _content(each, known)
    elif isinstance(value, partial):
        yield from _content((value.func, value.args, value.keywords), known)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _fields(value, known)
    elif isinstance(value, FunctionType):
        enclosed = [cell.cell_contents for cell in value.__closure__ or ()]
        of = value.__code__
        yield from _content((value.__module__, of.co_qualname, of.co_firstlineno, of.co_names, *enclosed), known)
    else:
        raise TypeError(f"{kind.__qualname__} has no content that could be compared: {value!r:.100}")


def _fields(value: Any, known: dict[int, tuple[Any, bytes]]) -> Iterator[bytes]:
    """Give the fields of a dataclass; of one whose rows are read from the disk these rows."""
    yield type(value).__qualname__.encode() + b" "
    if hasattr(type(value), "__getitem__") and hasattr(value, "shape"):
        yield from _rows(value)
        return
    for each in dataclasses.fields(value):
        if each.init:
            yield from _content((each.name, getattr(value, each.name)), known)


def _rows(table: Rows) -> Iterator[bytes]:
    yield repr(table.shape).encode()
    for rows in blocks(0, len(table), table.shape[1]):
        yield np.ascontiguousarray(table[rows]).tobytes()


def _array(value: np.ndarray[Any, Any], known: dict[int, tuple[Any, bytes]]) -> Iterator[bytes]:
    yield f"array {value.dtype.str} {value.shape} ".encode()
    if value.dtype == object:
        yield from _content(value.tolist(), known)
    elif value.nbytes < _REMEMBERED:
        yield value.tobytes()
    else:
        remembered = known.get(id(value))
        if remembered is None:  # with the array, so that no other one gets its place in memory
            digest = hashlib.sha256()
            # Block by block, since one that is not contiguous is copied.
            for rows in blocks(0, len(value), value[0].size):
                digest.update(np.ascontiguousarray(value[rows]).data)
            remembered = (value, digest.digest())
            known[id(value)] = remembered
        yield remembered[1]


def _frame(value: pl.DataFrame, known: dict[int, tuple[Any, bytes]]) -> Iterator[bytes]:
    yield f"frame {value.schema} ".encode()
    remembered = known.get(id(value))
    if remembered is None:
        hashed = _Hashed()
        value.rechunk().write_ipc(cast(IO[bytes], hashed))
        remembered = (value, hashed.digest())
        known[id(value)] = remembered
    yield remembered[1]


class _Hashed(io.RawIOBase):
    """A file of which only the digest is kept: a frame takes as much memory as its bytes do."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._sha256.update(data)
        return len(data)

    def digest(self) -> bytes:
        return self._sha256.digest()
