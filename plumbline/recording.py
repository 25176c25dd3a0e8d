"""What a result is computed from, recorded while it is computed.

Whoever reads something that a result depends on (a stored table, a setting, a checkpoint, the prompts of a suite)
notes what it read and the digest of what it found there. A later audit looks up the same things again, and computes the
result anew only if one of them has changed. Nobody declares what depends on what, so nobody can forget to. In the
literature this is a verifying trace (Mokhov, Mitchell and Peyton Jones, "Build systems à la carte", 2018).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from plumbline.digests import canonical_json, digest_json

_SHOWN = 100


@dataclass
class Recording:
    """What one computation has read and written so far.

    Attributes
    ----------
    reads : dict of str to JSON value
        What was read, as canonical JSON of its kind and arguments -> the value or its digest, as it was first read.
    written : dict of (str, str) to str
        Name and partition of what was stored -> its version.
    """

    reads: dict[str, Any] = field(default_factory=dict)
    written: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, kind: str, *arguments: object, value: Any) -> None:
        """Note what was read; of something that is read twice the first value counts."""
        self.reads.setdefault(canonical_json([kind, *arguments]), short(value))

    def wrote(self, name: str, partition: str, *, version: str) -> None:
        """Note what was stored."""
        self.written[name, partition] = version

    def inputs(self) -> dict[str, Any]:
        """Return what was read and not written by the computation itself."""
        own_outputs = {canonical_json(["stored", *written]) for written in self.written}
        return {read: value for read, value in self.reads.items() if read not in own_outputs}


_CURRENT: ContextVar[Recording | None] = ContextVar("recording", default=None)


def current() -> Recording | None:
    """Return the recording under way; None where nothing is recorded."""
    return _CURRENT.get()


@contextmanager
def recording() -> Iterator[Recording]:
    """Record everything that is noted inside."""
    started = Recording()
    token = _CURRENT.set(started)
    try:
        yield started
    finally:
        _CURRENT.reset(token)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Note nothing of what is read inside: it decides nothing, or the caller notes exactly what of it counts."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def note(kind: str, *arguments: object, value: Any) -> None:
    """Note what was read by the computation that is recorded, if one is.

    Parameters
    ----------
    kind, arguments : str, JSON values
        What was read; `assets.up_to_date` looks the same up again.
    value : JSON value
        What was found there, or its digest.
    """
    if (under_way := _CURRENT.get()) is not None:
        under_way.note(kind, *arguments, value=value)


def short(value: Any) -> Any:
    """Return a JSON value as it is kept: itself where it is short, so that a change can be shown, else its digest."""
    text = canonical_json(value)
    return json.loads(text) if len(text) <= _SHOWN else f"digest {digest_json(value)[:16]}"
