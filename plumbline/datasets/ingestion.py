"""From a dataset's folder to its records and its quarantine: every listed input ends in exactly one."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import polars as pl

from plumbline.datasets.containment import dataset_root, inside
from plumbline.datasets.records import (
    LABEL_COLUMNS,
    RECORD_SCHEMA,
    Entry,
    Ingested,
    Reader,
    Refusal,
)
from plumbline.digests import canonical_json, digest_bytes, digest_file, digest_sequence
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images import check, read_image_file
from plumbline.parquet_images import names_row
from plumbline.tables.schema import QUARANTINE_SCHEMA

Progress = Callable[[int, int], None]

# Large enough that handing work to a thread costs little beside the work, small enough that progress is seen.
_CHUNK = 32
_CHUNKS_AHEAD = 4

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Accepted:
    entry: Entry
    labels: dict[str, str]
    image_id: str


def ingest(
    reader: Reader,
    root: Path | str,
    *,
    dataset: str,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Ingested:
    """Read a dataset: check every listed file down to its last pixel, and account for all of them.

    Of files with the same bytes, the first is kept where their labels agree (`duplicate`, or `duplicate_row`
    for the same path listed again) and none where they differ (`conflicting_duplicate`).

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
        Threads; by default one per core. The result does not depend on it.

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
    listed = reader.entries(folder)
    examined = _in_order(partial(_examine, reader, folder), listed, workers=workers, progress=progress)
    settled = _settle_duplicates(list(examined))
    accepted = [item for item in settled if isinstance(item, _Accepted)]
    refused = [item for item in settled if isinstance(item, Refusal)]
    ingested = Ingested(_record_frame(accepted, dataset), _quarantine_frame(refused, dataset), len(listed))
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
    indexes = [canonical_json([name, digest_file(folder / name)]) for name in reader.index_files(folder)]
    listed = _in_order(partial(_content, folder), reader.entries(folder), workers=workers)
    return digest_sequence([*indexes, *listed])


def _examine(reader: Reader, root: Path, item: Entry | Refusal) -> _Accepted | Refusal:
    if isinstance(item, Refusal):
        return item
    stage = "labels"
    try:
        labels = reader.labels(item)
        stage = "path"
        path = inside(root, item.path)
        stage = "image"
        data = read_image_file(path)
        check(data, suffix=None if names_row(item.path) else Path(item.path).suffix)
    except ImageRejected as error:
        return _refused(item, error, stage)
    return _Accepted(item, labels, digest_bytes(data))


def _refused(entry: Entry, error: ImageRejected, stage: str) -> Refusal:
    if entry.index is not None:
        error.where = f"{entry.index}, line {entry.line}"
    return Refusal.of(error, path=entry.path, stage=stage, line=entry.line)


def _content(root: Path, item: Entry | Refusal) -> str:
    if isinstance(item, Refusal):
        return canonical_json([item.path, item.line, item.code])
    try:
        return canonical_json([item.path, digest_bytes(read_image_file(inside(root, item.path)))])
    except ImageRejected as error:
        return canonical_json([ascii(item.path), item.line, error.code])


def _in_order(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    workers: int | None,
    progress: Progress | None = None,
) -> Iterator[_Result]:
    """Yield `work(item)` in the order of the items, with a bounded number of them under way."""
    threads = workers or os.cpu_count() or 1
    pending: deque[Future[list[_Result]]] = deque()
    chunks = _chunks(items)
    done = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        try:
            while True:
                wanted = threads * _CHUNKS_AHEAD - len(pending)
                pending.extend(pool.submit(_work_through, work, chunk) for chunk in islice(chunks, wanted))
                if not pending:
                    return
                results = pending.popleft().result()
                yield from results
                done += len(results)
                if progress is not None:
                    progress(done, len(items))
        finally:
            # Reached early only when the caller or a file system gives up; what has not begun need not begin.
            for future in pending:
                future.cancel()


def _chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))


def _work_through(work: Callable[[_Item], _Result], chunk: Iterable[_Item]) -> list[_Result]:
    return [work(item) for item in chunk]


def _settle_duplicates(items: list[_Accepted | Refusal]) -> list[_Accepted | Refusal]:
    same_bytes: defaultdict[str, list[int]] = defaultdict(list)
    for position, item in enumerate(items):
        if isinstance(item, _Accepted):
            same_bytes[item.image_id].append(position)
    settled = list(items)
    for positions in same_bytes.values():
        group = [item for position in positions if isinstance(item := items[position], _Accepted)]
        agree = all(item.labels == group[0].labels for item in group)
        for position, item in list(zip(positions, group, strict=True))[1 if agree else 0 :]:
            settled[position] = _duplicate(item, group, agree=agree)
    return settled


def _duplicate(item: _Accepted, group: list[_Accepted], *, agree: bool) -> Refusal:
    first = group[0].entry
    if not agree:
        code, what = (
            "conflicting_duplicate",
            f"the same bytes are listed {len(group)} times with different labels",
        )
        found = "; ".join(sorted({canonical_json(other.labels) for other in group}))
        expected = "one set of labels"
    elif item.entry.path == first.path:
        code, what = "duplicate_row", "the index lists this file again with the same labels"
        found, expected = item.entry.path, f"one row; kept: line {first.line}"
    else:
        code, what = "duplicate", "an earlier file has the same bytes and the same labels"
        found, expected = f"sha256 {item.image_id}", f"one copy; kept: {first.path}"
    error = ImageRejected(code, what, found=found, expected=expected)
    return _refused(item.entry, error, "duplicates")


def _record_frame(accepted: list[_Accepted], dataset: str) -> pl.DataFrame:
    columns: dict[str, list[str | None]] = {
        "image_id": [item.image_id for item in accepted],
        "dataset": [dataset] * len(accepted),
        "path": [item.entry.path for item in accepted],
        "split": [item.entry.split for item in accepted],
        **{name: [item.labels.get(name) for item in accepted] for name in LABEL_COLUMNS},
    }
    return pl.DataFrame(columns, schema=RECORD_SCHEMA)


def _quarantine_frame(refused: list[Refusal], dataset: str) -> pl.DataFrame:
    own = [name for name in QUARANTINE_SCHEMA if name != "dataset"]
    columns = {name: [getattr(item, name) for item in refused] for name in own}
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
