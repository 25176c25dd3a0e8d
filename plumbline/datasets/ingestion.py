"""From a dataset's folder to its records and its quarantine: every listed input ends in exactly one."""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from json.encoder import encode_basestring
from pathlib import Path
from typing import NamedTuple, TypeVar

import polars as pl

from plumbline.catalog.schema import QUARANTINE_SCHEMA
from plumbline.concurrency import usable_cores
from plumbline.datasets.indexes import PATH_CODES, dataset_root, index_file, inside, leads_out, unreadable_index
from plumbline.datasets.records import (
    CONTEXT_COLUMNS,
    LABEL_COLUMNS,
    RECORD_SCHEMA,
    Entry,
    Ingested,
    Reader,
    Refusal,
    unsafe_characters,
)
from plumbline.digests import canonical_json, digest_bytes, digest_file, digest_sequence
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images.decoding import MAX_FILE_BYTES, check, read_image_file, suffix_of

Progress = Callable[[int, int], None]

# Large enough that handing work to a thread costs little beside the work, small enough that progress is seen.
_CHUNK = 32
_CHUNKS_AHEAD = 4
# An item that takes less is Python from end to end: several threads would only hand its lock to and fro.
_QUICK_SECONDS = 150e-6

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(
    work: Callable[[_Item], _Result], items: Sequence[_Item], *, workers: int | None, progress: Progress | None = None
) -> Iterator[_Result]:
    """Yield `work(item)` in the order of the items, with a bounded number of them under way.

    Parameters
    ----------
    workers : int or None
        Threads; with None as many as pay, which is found out on the way.
    progress : callable, optional
        Called with (items done, items in all) in this thread.
    """
    threads = workers or usable_cores()
    pending: deque[Future[tuple[list[_Result], float]]] = deque()
    chunks = (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))
    done, ahead = 0, threads * _CHUNKS_AHEAD if workers else 1
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        try:
            while True:
                wanted = max(0, ahead - len(pending))
                pending.extend(pool.submit(_work_through, work, chunk) for chunk in islice(chunks, wanted))
                if not pending:
                    return
                results, seconds = pending.popleft().result()
                if not workers:
                    ahead = 1 if seconds < _QUICK_SECONDS * len(results) else threads * _CHUNKS_AHEAD
                yield from results
                done += len(results)
                if progress is not None:
                    progress(done, len(items))
        finally:
            # Reached early only when the caller or a file system gives up; what has not begun need not begin.
            for future in pending:
                future.cancel()


def _work_through(work: Callable[[_Item], _Result], chunk: Iterable[_Item]) -> tuple[list[_Result], float]:
    """Return the results for some items, and the seconds that they took."""
    start = time.perf_counter()
    return [work(item) for item in chunk], time.perf_counter() - start


# --- The files of a dataset, read in as few steps as can be while nothing about them is unusual

# A link at the end is not followed, a pipe is not waited for: both then go the way that has the reasons.
_PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DatasetFiles:
    """The files of one dataset while it is read.

    Sound ones are read here, in as few steps as can be; `inside` and `read_image_file` have the rest and its reasons.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Folders without a link on the way to them. Looked at once a run: a dataset's files lie in few of them.
        self._straight: dict[str, bool] = {}

    def read(self, path: str) -> bytes:
        """Return a listed file's bytes.

        Raises
        ------
        ImageRejected
            As `inside` and `read_image_file` do.
        """
        data = self.read_straight(path)
        return read_image_file(inside(self.root, path)) if data is None else data

    def read_straight(self, path: str) -> bytes | None:
        """Return a plain file's bytes in four system calls; None if anything at all is unusual about it."""
        folder, _, name = path.rpartition("/")
        if name in ("", ".") or leads_out(path) or unsafe_characters(path) or not self._is_straight(folder):
            return None
        try:
            descriptor = os.open(f"{self.root}/{path}", _PLAIN_FILE)
        except (OSError, ValueError):
            return None
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_FILE_BYTES:
                return None
            data = os.read(descriptor, about.st_size + 1)
            return data if len(data) == about.st_size else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _is_straight(self, folder: str) -> bool:
        known = self._straight.get(folder)
        if known is None:
            try:
                known = not folder or os.path.realpath(inside(self.root, folder)) == f"{self.root}/{folder}"
            except ImageRejected:
                known = False
            self._straight[folder] = known
        return known


# --- Files with the same bytes: which row is kept, and why each of the others is not


class Accepted(NamedTuple):
    """An accepted image. A tuple, since there is one per file: a frozen dataclass takes four times as long to make."""

    entry: Entry
    labels: dict[str, str]
    image_id: str


def resolve_duplicates(items: Sequence[Accepted | Refusal]) -> list[Accepted | Refusal]:
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
    outcomes = list(items)
    for positions in same_bytes.values():
        if len(positions) > 1:
            group = [item for position in positions if isinstance(item := items[position], Accepted)]
            for position, outcome in zip(positions, _resolved(group), strict=True):
                outcomes[position] = outcome
    return outcomes


def _resolved(group: Sequence[Accepted]) -> list[Accepted | Refusal]:
    first = group[0]
    if any(_person(item.labels) != _person(first.labels) for item in group):
        reason = _conflict(group)
        return [_refused(item, *reason) for item in group]
    return [first, *(_refused(item, *_repetition(item, first)) for item in group[1:])]


def _person(labels: Mapping[str, str]) -> dict[str, str]:
    """Return what the labels say of who is shown."""
    return {column: value for column, value in labels.items() if column not in CONTEXT_COLUMNS}


# Code, sentence, what was met and what is expected, as of an ImageRejected.
_Reason = tuple[str, str, str, str]


def _conflict(group: Sequence[Accepted]) -> _Reason:
    what = f"the same bytes are listed {len(group)} times with different labels"
    found = "; ".join(sorted({canonical_json(_person(item.labels)) for item in group}))
    return "conflicting_duplicate", what, found, "one set of labels"


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
        return "other_context", what, canonical_json(other), f"one row a picture; {kept}"
    if same_path:
        what = "the index lists this file again with the same labels"
        return "duplicate_row", what, item.entry.path, f"one row; {kept}"
    what = "an earlier file has the same bytes and the same labels"
    return "duplicate", what, f"sha256 {item.image_id}", f"one copy; {kept}"


def _refused(item: Accepted, code: str, what: str, found: str, expected: str) -> Refusal:
    rejected = ImageRejected(code, what, found=found, expected=expected)
    return Refusal.of_entry(rejected, item.entry, stage="duplicates")


# --- Ingestion

_LABELS_KEPT = 4096


class _Examined(NamedTuple):
    """What became of one input, and its line in the folder's digest."""

    outcome: Accepted | Refusal
    content: str


def ingest(
    reader: Reader, root: Path | str, *, dataset: str, progress: Progress | None = None, workers: int | None = None
) -> Ingested:
    """Read a dataset: check every listed file down to its last pixel, and account for all of them.

    Of files with the same bytes, one row is kept at most: see `resolve_duplicates`.

    Parameters
    ----------
    reader : Reader
        From `reader_for`.
    root : Path or str
        The dataset's folder.
    dataset : str
        Its name in the tables.
    progress : callable, optional
        Called with (inputs done, inputs listed) in this thread.
    workers : int, optional
        Threads; by default as many as pay: one per core where files have to be waited for or decoded, one where
        they are quick. The result does not depend on it.

    Returns
    -------
    Ingested
        Both tables in index order. Each thread holds one file in memory at a time.

    Raises
    ------
    DatasetError
        If the folder is not there, its index cannot be read, or the accounts do not balance.
    """
    files = DatasetFiles(dataset_root(root))
    # Before the listing is read: an index that changes meanwhile is then found to have changed.
    indexes = _index_lines(reader, files.root)
    listed = reader.entries(files.root)
    examine = partial(_examine, _Labels(reader), files)
    outcomes: list[Accepted | Refusal] = []

    def contents() -> Iterator[str]:
        yield from indexes
        for examined in in_order(examine, listed, workers=workers, progress=progress):
            outcomes.append(examined.outcome)
            yield examined.content

    digest = digest_sequence(contents())
    resolved = resolve_duplicates(outcomes)
    accepted = [item for item in resolved if isinstance(item, Accepted)]
    refused = [item for item in resolved if isinstance(item, Refusal)]
    records, quarantine = _record_frame(accepted, dataset), _quarantine_frame(refused, dataset)
    ingested = Ingested(records, quarantine, len(listed), digest)
    _require_balance(ingested, dataset)
    return ingested


def dataset_digest(records: pl.DataFrame, quarantine: pl.DataFrame) -> str:
    """Return the sha256 (hex) of both tables' columns and rows, in order."""
    frames = (records, quarantine)
    lines = (line for frame in frames for line in (frame.columns, *frame.iter_rows()))
    return digest_sequence(canonical_json(list(line)) for line in lines)


def folder_digest(reader: Reader, root: Path | str, *, workers: int | None = None) -> str:
    """Return the sha256 (hex) of a dataset's content: its index files and every listed file.

    Times and unlisted files do not count. A file that is absent or refused counts as such, so that putting it
    right changes the digest.

    Raises
    ------
    DatasetError
        If the folder is not there or its index cannot be read.
    """
    files = DatasetFiles(dataset_root(root))
    indexes = _index_lines(reader, files.root)
    listed = in_order(partial(_content, files), reader.entries(files.root), workers=workers)
    return digest_sequence([*indexes, *listed])


class _Labels:
    """A reader's labels. They follow from an entry's own values alone, and most datasets repeat few combinations."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def __call__(self, entry: Entry) -> dict[str, str]:
        key = tuple(entry.raw.items())
        labels = self._known.get(key)
        if labels is None:
            labels = self._reader.labels(entry)
            if len(self._known) < _LABELS_KEPT:
                self._known[key] = labels
        return labels


def _index_lines(reader: Reader, root: Path) -> list[str]:
    return [canonical_json([name, _index_digest(root, name)]) for name in reader.index_files(root)]


def _index_digest(root: Path, name: str) -> str:
    try:
        return digest_file(index_file(root, name))
    except OSError as error:
        raise unreadable_index(name, error.strerror) from error


def _examine(labels_of: _Labels, files: DatasetFiles, item: Entry | Refusal) -> _Examined:
    """Say what becomes of one input. A file counts in the digest even where its labels or its path are refused."""
    if isinstance(item, Refusal):
        return _Examined(item, _refused_line(item))
    labels: dict[str, str] = {}
    refusal: Refusal | None = None
    try:
        labels = labels_of(item)
    except ImageRejected as error:
        refusal = Refusal.of_entry(error, item, stage="labels")
    try:
        data = files.read(item.path)
    except ImageRejected as error:
        stage = "path" if error.code in PATH_CODES else "image"
        return _Examined(refusal or Refusal.of_entry(error, item, stage=stage), _unread_line(item, error))
    image_id = digest_bytes(data)
    if refusal is None:
        try:
            check(data, suffix=suffix_of(item.path))
        except ImageRejected as error:
            refusal = Refusal.of_entry(error, item, stage="image")
    return _Examined(refusal or Accepted(item, labels, image_id), _content_line(item, image_id))


def _content(files: DatasetFiles, item: Entry | Refusal) -> str:
    if isinstance(item, Refusal):
        return _refused_line(item)
    try:
        return _content_line(item, digest_bytes(files.read(item.path)))
    except ImageRejected as error:
        return _unread_line(item, error)


def _content_line(entry: Entry, image_id: str) -> str:
    # What `canonical_json` gives for the two, at a fifth of its time: this runs once a file.
    return f'[{encode_basestring(entry.path)},"{image_id}"]'


def _unread_line(entry: Entry, error: ImageRejected) -> str:
    return canonical_json([ascii(entry.path), entry.line, error.code])


def _refused_line(refusal: Refusal) -> str:
    return canonical_json([refusal.path, refusal.line, refusal.code])


def _record_frame(accepted: list[Accepted], dataset: str) -> pl.DataFrame:
    columns: dict[str, list[str | None]] = {
        "image_id": [item.image_id for item in accepted],
        "dataset": [dataset] * len(accepted),
        "path": [item.entry.path for item in accepted],
        "split": [item.entry.split for item in accepted],
        **{name: [item.labels.get(name) for item in accepted] for name in LABEL_COLUMNS},
    }
    return pl.DataFrame(columns, schema=RECORD_SCHEMA)


def _quarantine_frame(refused: list[Refusal], dataset: str) -> pl.DataFrame:
    columns = {name: [getattr(item, name) for item in refused] for name in QUARANTINE_SCHEMA if name != "dataset"}
    return pl.DataFrame({"dataset": [dataset] * len(refused), **columns}, schema=QUARANTINE_SCHEMA)


def _require_balance(ingested: Ingested, dataset: str) -> None:
    accepted, quarantined = ingested.records.height, ingested.quarantine.height
    if accepted + quarantined != ingested.listed:
        raise DatasetError(
            "accepted and quarantined inputs do not add up to the listed ones",
            where=dataset,
            found=f"{accepted} + {quarantined}",
            expected=ingested.listed,
            hint="report this with the index file: nothing may be dropped in silence",
        )
