"""Ingestion: every input that a dataset lists becomes a record or a quarantine row, exactly one of them."""

from __future__ import annotations

import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, lru_cache, partial
from itertools import islice
from json.encoder import encode_basestring
from pathlib import Path
from typing import NamedTuple, TypeVar

import polars as pl

from plumbline.catalog.schema import QUARANTINE_SCHEMA
from plumbline.concurrency import usable_cores
from plumbline.datasets.indexes import PATH_CODES, dataset_root, index_file, inside, unreadable_index
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
from plumbline.images.decoding import check, read_image_file, suffix_of

Progress = Callable[[int, int], None]

# Large enough that handing work to a thread costs little beside the work, small enough that progress is seen.
_CHUNK = 32
_CHUNKS_AHEAD = 4
# An item that takes less is Python from end to end: several threads would only hand its lock to and fro.
_QUICK_SECONDS = 150e-6
# So many slow chunks in a row are no accident of a busy machine. Then each thread gets so many before chunks are timed
# again, alone: beside others they would wait for their lock.
_SLOW_CHUNKS, _CHUNKS_UNTIMED = 4, 128

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
    pending: deque[Future[list[_Result]]] = deque()
    chunks = (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))
    # Chunks that threads may still get before the next is worked through here.
    left = len(items) if workers is not None and workers > 1 else 0
    done = slow = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        try:
            while True:
                wanted = min(left, threads * _CHUNKS_AHEAD - len(pending))
                pending.extend(pool.submit(_work_through, work, chunk) for chunk in islice(chunks, wanted))
                left -= wanted
                if pending:
                    results = pending.popleft().result()
                elif chunk := next(chunks, ()):
                    start = time.perf_counter()
                    results = _work_through(work, chunk)
                    slow = slow + 1 if time.perf_counter() - start > _QUICK_SECONDS * len(chunk) else 0
                    if slow == _SLOW_CHUNKS and threads > 1:
                        slow, left = 0, threads * _CHUNKS_UNTIMED
                else:
                    return
                yield from results
                done += len(results)
                if progress is not None:
                    progress(done, len(items))
        finally:
            # Reached early only when the caller or a file system gives up; what has not begun need not begin.
            for future in pending:
                future.cancel()


def _work_through(work: Callable[[_Item], _Result], chunk: Iterable[_Item]) -> list[_Result]:
    return [work(item) for item in chunk]


# --- Files with the same bytes: which rows are kept, and why each of the others is not


class Accepted(NamedTuple):
    """An accepted image. A tuple, since there is one per file: a frozen dataclass takes four times as long to make."""

    entry: Entry
    labels: dict[str, str]
    image_id: str


def resolve_duplicates(items: Sequence[Accepted | Refusal], *, with_labels: bool = True) -> list[Accepted | Refusal]:
    """Keep one row per picture and context, or none where the rows of a picture contradict each other.

    A picture that is listed in several contexts has a row in each: a face as it is belongs to every dimension that is
    varied, and a photograph may be listed in two scenes. Of several rows in one context the first is kept, and another
    is refused as `duplicate_row` (the same path) or `duplicate` (another path). Where the rows of the same bytes say
    different things of who is shown, none can be trusted and all are refused (`conflicting_duplicate`).

    Parameters
    ----------
    items : sequence of Accepted or Refusal
        In index order; refusals stay as they are.
    with_labels : bool
        Whether a refusal says what the labels are that contradict each other; else of which columns, since a label of
        a group that is too small to be shown must not be told.
    """
    first_of: dict[str, int] = {}
    same_bytes: defaultdict[int, list[int]] = defaultdict(list)
    for position, item in enumerate(items):
        if isinstance(item, Accepted) and (earlier := first_of.setdefault(item.image_id, position)) != position:
            same_bytes[earlier].append(position)
    outcomes = list(items)
    for positions in ([first, *later] for first, later in same_bytes.items()):
        group = {position: item for position in positions if isinstance(item := items[position], Accepted)}
        contradict = len({canonical_json(_person(item.labels)) for item in group.values()}) > 1
        kept: dict[str, Accepted] = {}
        for position, item in group.items():
            first = kept.setdefault(canonical_json(_context(item.labels)), item)
            if contradict or first is not item:
                rejected = _conflict([*group.values()], with_labels) if contradict else _repetition(item, first)
                outcomes[position] = Refusal.of_entry(rejected, item.entry, stage="duplicates")
    return outcomes


def _person(labels: Mapping[str, str]) -> dict[str, str]:
    """Return what the labels say of who is shown."""
    return {column: value for column, value in labels.items() if column not in CONTEXT_COLUMNS}


def _context(labels: Mapping[str, str]) -> dict[str, str]:
    """Return what the labels say of where a picture is listed."""
    return {column: value for column, value in labels.items() if column in CONTEXT_COLUMNS}


def _conflict(group: Sequence[Accepted], with_labels: bool) -> ImageRejected:
    what = f"the same bytes are listed {len(group)} times with different labels"
    persons = [_person(item.labels) for item in group]
    if with_labels:
        shown = "; ".join(sorted({canonical_json(person) for person in persons}))
    else:
        columns = dict.fromkeys(column for person in persons for column in person)
        shown = f"other values of {', '.join(c for c in columns if len({person.get(c) for person in persons}) > 1)}"
    return ImageRejected("conflicting_duplicate", what, found=shown, expected="one set of labels")


def _repetition(item: Accepted, first: Accepted) -> ImageRejected:
    same_path = item.entry.path == first.entry.path
    kept = f"kept: line {first.entry.line}" if same_path else f"kept: {first.entry.path}"
    if same_path:
        what = "the index lists this file again with the same labels"
        return ImageRejected("duplicate_row", what, found=item.entry.path, expected=f"one row; {kept}")
    what = "an earlier file has the same bytes and the same labels"
    return ImageRejected("duplicate", what, found=f"sha256 {item.image_id}", expected=f"one copy; {kept}")


# --- Ingestion

_LABELS_KEPT = 4096


def ingest(
    reader: Reader, root: Path | str, *, dataset: str, progress: Progress | None = None, workers: int | None = None
) -> Ingested:
    """Read a dataset: decode every listed file in full, and account for all of them.

    Of files with the same bytes, one row is kept in each context: see `resolve_duplicates`.

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
    folder = dataset_root(root)
    # Before the listing is read: an index that changes meanwhile is then found to have changed.
    indexes = list(_index_lines(reader, folder))
    listed = reader.entries(folder)
    # Labels follow from an entry's own values alone, and most datasets repeat few combinations.
    labels_of = lru_cache(_LABELS_KEPT)(lambda raw: reader.labels(dict(raw)))
    outcomes: list[Accepted | Refusal] = []

    def contents() -> Iterator[str]:
        yield from indexes
        read = _reader_of(folder) if reader.has_images else None
        examined = in_order(partial(_examine, labels_of, read), listed, workers=workers, progress=progress)
        for outcome, line in examined:
            outcomes.append(outcome)
            yield line

    digest = digest_sequence(contents())
    resolved = resolve_duplicates(outcomes, with_labels=reader.least_shown <= 1)
    accepted = [item for item in resolved if isinstance(item, Accepted)]
    refused = [item for item in resolved if isinstance(item, Refusal)]
    records, ungrouped = reader.grouped(_record_frame(accepted, dataset, reader.declaration.attributes))
    ingested = Ingested(records, _quarantine_frame(refused, dataset), ungrouped, len(listed), digest)
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
    folder = dataset_root(root)
    indexes = list(_index_lines(reader, folder))
    read = _reader_of(folder) if reader.has_images else None

    def line(item: Entry | Refusal) -> str:
        # Many results wait at once: none may hold the bytes of its file.
        return _content(read, item).line

    return digest_sequence([*indexes, *in_order(line, reader.entries(folder), workers=workers)])


def _index_lines(reader: Reader, root: Path) -> Iterator[str]:
    for name in reader.index_files(root):
        try:
            yield canonical_json([name, digest_file(index_file(root, name))])
        except OSError as error:
            raise unreadable_index(name, error.strerror) from error


class _Content(NamedTuple):
    """The content of one input: its line in the folder's digest, its bytes and their sha256, or why it has none."""

    line: str
    data: bytes = b""
    image_id: str = ""
    refused: ImageRejected | None = None


_PLAIN_NAME = re.compile(r"[\w-][\w.-]*", re.ASCII)


def _reader_of(root: Path) -> Callable[[str], bytes]:
    """Return what reads a listed file, during one run. Folders are looked at once: a dataset's files lie in few."""

    @cache
    def is_plain(folder: str) -> bool:
        try:
            return not folder or f"{inside(root, folder)}/" == f"{root}/{folder}"
        except ImageRejected:
            return False

    def read(path: str) -> bytes:
        folder, slash, name = path.rpartition("/")
        if _PLAIN_NAME.fullmatch(name) and is_plain(folder + slash):
            try:
                return read_image_file(f"{root}/{path}", follow=False)
            except ImageRejected:
                # What is unusual about it is refused below, with the reasons.
                pass
        return read_image_file(inside(root, path))

    return read


def _content(read: Callable[[str], bytes] | None, item: Entry | Refusal) -> _Content:
    if isinstance(item, Refusal):
        return _Content(canonical_json([item.path, item.line, item.code]))
    if read is None:  # without files an image is what it is called
        return _Content(canonical_json([ascii(item.path)]), image_id=digest_bytes(ascii(item.path).encode()))
    try:
        data = read(item.path)
    except ImageRejected as error:
        return _Content(canonical_json([ascii(item.path), item.line, error.code]), refused=error)
    image_id = digest_bytes(data)
    # What `canonical_json` gives for the two, at a fifth of its time: this runs once a file.
    return _Content(f'[{encode_basestring(item.path)},"{image_id}"]', data, image_id)


_LabelsOf = Callable[[tuple[tuple[str, str], ...]], dict[str, str]]
_Outcome = Accepted | Refusal


def _examine(
    labels_of: _LabelsOf, read: Callable[[str], bytes] | None, item: Entry | Refusal
) -> tuple[Accepted | Refusal, str]:
    """Accept or refuse one input. A file is part of the digest even where its labels or its path are refused."""
    content = _content(read, item)
    if isinstance(item, Refusal):
        return item, content.line
    stage = "labels"
    try:
        labels = labels_of(tuple(item.raw.items()))
        stage = "path" if content.refused is not None and content.refused.code in PATH_CODES else "image"
        if content.refused is not None:
            raise content.refused
        if read is not None:
            check(content.data, suffix=suffix_of(item.path))
        elif not item.path.strip() or unsafe_characters(item.path):
            stage = "path"
            raise ImageRejected("unsafe_path", "the row names no image", found=repr(item.path), expected="a name")
    except ImageRejected as error:
        return Refusal.of_entry(error, item, stage=stage), content.line
    return Accepted(item, labels, content.image_id), content.line


def _record_frame(accepted: list[Accepted], dataset: str, attributes: Sequence[str]) -> pl.DataFrame:
    columns: dict[str, list[str | None]] = {
        "image_id": [item.image_id for item in accepted],
        "dataset": [dataset] * len(accepted),
        "path": [item.entry.path for item in accepted],
        "split": [item.entry.split for item in accepted],
        **{name: [item.labels.get(name) for item in accepted] for name in (*LABEL_COLUMNS, *attributes)},
    }
    return pl.DataFrame(columns, schema=RECORD_SCHEMA | dict.fromkeys(attributes, pl.String))


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
