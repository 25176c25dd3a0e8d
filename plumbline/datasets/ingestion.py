"""From a dataset's folder to its records and its quarantine: every listed input ends in exactly one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from json.encoder import encode_basestring
from pathlib import Path
from typing import NamedTuple

import polars as pl

from plumbline.datasets.containment import dataset_root, index_file, inside, unreadable_index
from plumbline.datasets.dataset_files import DatasetFiles
from plumbline.datasets.duplicates import Accepted, settle_duplicates
from plumbline.datasets.in_order import Progress, in_order
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
from plumbline.images.decoding import check, read_image_file, suffix_of
from plumbline.tables.schema import QUARANTINE_SCHEMA

_LABELS_KEPT = 4096


class _Examined(NamedTuple):
    """What became of one input, and its line in the folder's digest."""

    outcome: Accepted | Refusal
    content: str


def ingest(
    reader: Reader,
    root: Path | str,
    *,
    dataset: str,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Ingested:
    """Read a dataset: check every listed file down to its last pixel, and account for all of them.

    Of files with the same bytes, one row is kept at most: see `settle_duplicates`.

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
    settled = settle_duplicates(outcomes)
    accepted = [item for item in settled if isinstance(item, Accepted)]
    refused = [item for item in settled if isinstance(item, Refusal)]
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
    stage = "path"
    try:
        data = files.read_straight(item.path)
        if data is None:
            path = inside(files.root, item.path)
            stage = "image"
            data = read_image_file(path)
    except ImageRejected as error:
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
        data = files.read_straight(item.path)
        if data is None:
            data = read_image_file(inside(files.root, item.path))
    except ImageRejected as error:
        return _unread_line(item, error)
    return _content_line(item, digest_bytes(data))


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
