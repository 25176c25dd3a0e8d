"""Files with the same bytes: which row is kept, and why each of the others is not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plumbline.datasets.records import CONTEXT_COLUMNS, Entry, Refusal
from plumbline.digests import canonical_json
from plumbline.errors import ImageRejected


class Accepted(NamedTuple):
    """An accepted image. A tuple, since there is one per file: a frozen dataclass takes four times as long to make."""

    entry: Entry
    labels: dict[str, str]
    image_id: str


def settle_duplicates(items: Sequence[Accepted | Refusal]) -> list[Accepted | Refusal]:
    """Leave one row a picture, or none where its rows contradict each other.

    Where all rows of the same bytes say the same of who is shown, the first is kept. Another is refused as
    `duplicate_row` (the same path) or `duplicate` (another path) if its context is that of the first too, and as
    `other_context` if not, since an image id stands for one row of the records. Where they say different things of
    who is shown, none can be trusted and all are refused (`conflicting_duplicate`).

    Parameters
    ----------
    items : sequence of Accepted or Refusal
        In index order; refusals stay as they are.
    """
    same_bytes: defaultdict[str, list[int]] = defaultdict(list)
    for position, item in enumerate(items):
        if isinstance(item, Accepted):
            same_bytes[item.image_id].append(position)
    settled = list(items)
    for positions in same_bytes.values():
        if len(positions) > 1:
            group = [item for position in positions if isinstance(item := items[position], Accepted)]
            for position, outcome in zip(positions, _settled(group), strict=True):
                settled[position] = outcome
    return settled


def _settled(group: Sequence[Accepted]) -> list[Accepted | Refusal]:
    first = group[0]
    if any(_person(item.labels) != _person(first.labels) for item in group):
        reason = _conflict(group)
        return [_refused(item, *reason) for item in group]
    return [first, *(_refused(item, *_repetition(item, first)) for item in group[1:])]


def _person(labels: Mapping[str, str]) -> dict[str, str]:
    """Return what the labels say of who is shown."""
    return {column: value for column, value in labels.items() if column not in CONTEXT_COLUMNS}


class _Reason(NamedTuple):
    code: str
    what: str
    found: str
    expected: str


def _conflict(group: Sequence[Accepted]) -> _Reason:
    what = f"the same bytes are listed {len(group)} times with different labels"
    found = "; ".join(sorted({canonical_json(_person(item.labels)) for item in group}))
    return _Reason("conflicting_duplicate", what, found, "one set of labels")


def _repetition(item: Accepted, first: Accepted) -> _Reason:
    same_path = item.entry.path == first.entry.path
    kept = f"kept: line {first.entry.line}" if same_path else f"kept: {first.entry.path}"
    other = {
        column: item.labels.get(column)
        for column in CONTEXT_COLUMNS
        if item.labels.get(column) != first.labels.get(column)
    }
    if other:
        what = f"an earlier row has the same picture with another {', '.join(other)}"
        return _Reason("other_context", what, canonical_json(other), f"one row a picture; {kept}")
    if same_path:
        what = "the index lists this file again with the same labels"
        return _Reason("duplicate_row", what, item.entry.path, f"one row; {kept}")
    what = "an earlier file has the same bytes and the same labels"
    return _Reason("duplicate", what, f"sha256 {item.image_id}", f"one copy; {kept}")


def _refused(item: Accepted, code: str, what: str, found: str, expected: str) -> Refusal:
    rejected = ImageRejected(code, what, found=found, expected=expected)
    return Refusal.of_entry(rejected, item.entry, stage="duplicates")
