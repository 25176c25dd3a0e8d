"""The lake, the cache of shards and the records of audits: data files named by content, with manifests written last."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray
from upath import UPath

from plumbline.blocks import Rows
from plumbline.catalog.schema import Schema
from plumbline.digests import canonical_json, digest_bytes, digest_file, digest_json
from plumbline.errors import StorageError, StoredDataGone
from plumbline.recording import current, note, unrecorded
from plumbline.storage.files import (
    arrays_bytes,
    arrays_from_bytes,
    arrays_in_file,
    commit_bytes,
    table_bytes,
    table_from_bytes,
)

MANIFEST_SCHEMA = 1
WORK = (
    "forward_passes", "computed_shards", "cached_shards", "repaired_shards", "fitting_rows", "images_or_texts",
    "generated", "found", "tokens_per_second", "device", "decoder_gate_looked_at",
)  # fmt: skip
"""Details that tell of the work that something took, not of what it is."""
BUILDS = "builds"
"""Folder of how each result was computed (`plumbline.storage.builds`); no table has this name."""
_SUFFIX = {"table": "parquet", "arrays": "safetensors"}


@dataclass(frozen=True)
class Committed:
    """One stored thing, as its manifest describes it.

    Attributes
    ----------
    sha256 : str
        Of the data file's bytes: its name, and the data version of the asset.
    rows : int
        Rows of a table; for arrays the length of the first axis of the longest one.
    details : dict
        What the writer wished to keep beside the data: digests of inputs, counters, settings.
    """

    name: str
    partition: str
    kind: str
    sha256: str
    rows: int
    bytes: int
    details: dict[str, Any]

    @property
    def version(self) -> str:
        """Return the digest of content and details, those left out that only say how much work it was."""
        details = {name: value for name, value in self.details.items() if name not in WORK}
        return digest_json([self.sha256, details])[:16]


def _below(top: UPath, name: str) -> Iterator[UPath]:
    """Yield the files of a name below a folder, behind links too, but for links that lead back."""
    if top.protocol not in ("", "file"):
        yield from top.rglob(name)
        return
    for folder, below, files in os.walk(top.path, followlinks=True):
        if name in files:
            yield UPath(folder) / name
        below[:] = [each for each in below if not _leads_back(Path(folder, each))]


def _leads_back(path: Path) -> bool:
    return path.is_symlink() and any(path.samefile(folder) for folder in path.parents)


@dataclass(frozen=True)
class Lake:
    """Tables and arrays under a root folder or object-store address.

    A data file is named by the sha256 of its bytes; `manifest.json` beside it is replaced last. No manifest, no data.
    Two writers of one partition leave one of the two results, never a mix. Data files that a newer manifest no
    longer names are kept (docs/decisions, 5), so whoever read a manifest can read its data, whatever is written
    meanwhile: pass it as `manifest` where digest and data must belong together.
    """

    root: UPath

    def folder(self, name: str, partition: str = "") -> UPath:
        """Return where a partition of a named thing lives; the `|` of grid keys becomes a folder."""
        return self._place(name, partition)

    def _place(self, name: str, partition: str, *below: str) -> UPath:
        # In one call: a path of universal_pathlib takes as long to make as a small file to read.
        return self.root.joinpath(name, *(part for part in partition.split("|") if part), *below)

    def write_table(
        self,
        name: str,
        frame: pl.DataFrame,
        *,
        partition: str = "",
        details: Mapping[str, Any] | None = None,
        row_group_rows: int | None = None,
    ) -> Committed:
        """Commit a frame as one Parquet file; see `table_bytes` for its row groups."""
        data = table_bytes(frame, row_group_rows=row_group_rows)
        return self._write(name, partition, "table", data, frame.height, details)

    def write_arrays(
        self,
        name: str,
        arrays: Mapping[str, NDArray[Any]],
        *,
        partition: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> Committed:
        """Commit named arrays as one safetensors file."""
        rows = max((array.shape[0] for array in arrays.values() if array.ndim), default=0)
        return self._write(name, partition, "arrays", arrays_bytes(arrays), rows, details)

    def read_table(self, name: str, *, partition: str = "", manifest: Committed | None = None) -> pl.DataFrame:
        """Return a committed frame: the newest, or the one of a manifest that was read before.

        Raises
        ------
        StorageError
            If it was never committed, or its bytes are not those of the manifest.
        """
        return table_from_bytes(self._read(manifest or self.require(name, partition=partition)))

    def scan_table(self, manifest: Committed) -> pl.LazyFrame:
        """Return a committed frame that is read when it is collected, so that it need not fit into memory.

        Its bytes are checked now. On an object store it is read now.

        Raises
        ------
        StorageError
            As `read_table`.
        """
        local = self._checked_on_disk(manifest)
        return (
            self.read_table(manifest.name, manifest=manifest).lazy()
            if local is None
            else pl.scan_parquet(local, glob=False)
        )

    def read_arrays(
        self, name: str, *, partition: str = "", manifest: Committed | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return committed arrays, as `read_table` does."""
        return arrays_from_bytes(self._read(manifest or self.require(name, partition=partition)))

    def scan_arrays(self, manifest: Committed) -> dict[str, Rows]:
        """Return committed arrays whose rows are read when they are asked for, as `scan_table` does."""
        local = self._checked_on_disk(manifest)
        return dict(self.read_arrays(manifest.name, manifest=manifest) if local is None else arrays_in_file(local))

    def _checked_on_disk(self, manifest: Committed) -> Path | None:
        """Return a data file on the disk whose bytes were compared with its manifest; None on an object store."""
        path = self._path(manifest)
        if path.protocol not in ("", "file"):
            return None
        local = Path(path.path)
        self._check(manifest, digest_file(local) if local.is_file() else None)
        return local

    def size(self, manifest: Committed) -> int | None:
        """Return the bytes of a data file as it lies there; None where it is gone. To read it is what proves it."""
        try:
            return int(self._path(manifest).stat().st_size)
        except FileNotFoundError:
            return None

    def verify(self, manifest: Committed) -> None:
        """Read a data file and compare its bytes with its manifest.

        Raises
        ------
        StorageError
            If it is gone or damaged.
        """
        self._read(manifest)

    def forget_producer(self, damaged: Committed) -> str | None:
        """Let what was found damaged be computed again: forget how the result that stored it was computed.

        A check is done again with what it checked, whose version its details have as `of`. Of what has been replaced
        since nothing is forgotten; nor on a disk that is read-only.

        Returns
        -------
        str or None
            The asset that stored it; None where that is not known any more.
        """
        output, asset = [damaged.name, damaged.partition, damaged.version], None
        for path in _below(self.folder(BUILDS), "build.json"):
            with suppress(OSError, ValueError, KeyError):
                build = json.loads(path.read_text("utf-8"))
                if output in build["outputs"] or damaged.details.get("of") in [each[2] for each in build["outputs"]]:
                    asset = str(build["asset"])
                    path.unlink()
        return asset

    def committed(self, name: str, *, partition: str = "") -> Committed | None:
        """Return the manifest of a partition, or None where nothing was committed."""
        manifest = self._place(name, partition, "manifest.json")
        try:
            content = json.loads(manifest.read_text("utf-8"))
            if content.pop("schema") != MANIFEST_SCHEMA:
                raise ValueError("the manifest has another schema")
            committed = Committed(**content)
            if committed.kind not in _SUFFIX:
                raise ValueError(f"a thing of kind {committed.kind!r}")
            note("stored", name, partition, value=committed.version)
            return committed
        except FileNotFoundError:
            note("stored", name, partition, value=None)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(
                "a manifest cannot be read",
                where=manifest,
                found=f"{type(error).__name__}: {error}",
                expected=f"a manifest of schema {MANIFEST_SCHEMA}",
                hint=f"materialise `{name}` again",
            ) from error

    def require(self, name: str, *, partition: str = "") -> Committed:
        """Return the manifest of a partition that must be there."""
        manifest = self.committed(name, partition=partition)
        if manifest is None:
            raise StorageError(
                f"{name} has not been made for this partition",
                where=self.folder(name, partition),
                hint=f"run `plumbline audit`, or materialise `{name}`{f' for {partition}' if partition else ''} first",
            )
        return manifest

    def all_committed(self, *, without: Collection[str] = ()) -> Iterator[Committed]:
        """Return every manifest of the lake, in no order, but for things of some names."""
        for top in self.root.iterdir():
            for path in _below(top, "manifest.json") if top.name not in without else ():
                parts = path.parent.relative_to(self.root).parts
                if manifest := self.committed(parts[0], partition="|".join(parts[1:])):
                    yield manifest

    def _write(
        self, name: str, partition: str, kind: str, data: bytes, rows: int, details: Mapping[str, Any] | None
    ) -> Committed:
        sha256 = digest_bytes(data)
        manifest = Committed(name, partition, kind, sha256, rows, len(data), dict(details or {}))
        folder = self.folder(name, partition)
        commit_bytes(folder / f"{sha256}.{_SUFFIX[kind]}", data)
        commit_bytes(folder / "manifest.json", canonical_json({"schema": MANIFEST_SCHEMA, **vars(manifest)}).encode())
        if (recording := current()) is not None:
            recording.wrote(name, partition, version=manifest.version)
        return manifest

    def _path(self, manifest: Committed) -> UPath:
        return self.folder(manifest.name, manifest.partition) / f"{manifest.sha256}.{_SUFFIX[manifest.kind]}"

    def _read(self, manifest: Committed) -> bytes:
        try:
            data = self._path(manifest).read_bytes()
        except FileNotFoundError:
            data = None
        self._check(manifest, None if data is None else digest_bytes(data))
        return data or b""

    def _check(self, manifest: Committed, found: str | None) -> None:
        """Refuse a data file that is not there (`found` is None), or whose bytes have another sha256.

        The next audit computes it again.
        """
        if found == manifest.sha256:
            return
        asset = self.forget_producer(manifest)
        where = self._path(manifest)
        again = "the next audit computes it again"
        # Of an earlier audit nothing is made again; and who asks twice has had it forgotten before.
        hint = f"{again}, or materialise `{asset}` again" if asset else f"if it is of the newest audit, {again}"
        if found is None:
            raise StoredDataGone("a data file that its manifest names is gone", where=where, hint=hint)
        raise StorageError(
            "stored data is damaged",
            where=where,
            found=f"sha256 {found}",
            expected=f"sha256 {manifest.sha256}",
            hint=hint,
        )


# --- A cache of array shards, keyed by content: what was computed once is found again, damaged shards are not


@dataclass(frozen=True)
class Shard:
    """Arrays of one shard with the sha256 of their stored bytes."""

    key: str
    sha256: str
    arrays: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ShardCache:
    """Shards under a root; `key` is the digest of everything that the content depends on."""

    root: UPath

    def _manifest(self, key: str) -> UPath:
        return self.root / key[:2] / f"{key}.json"

    def _data(self, key: str, sha256: str) -> UPath:
        return self.root / key[:2] / f"{sha256}.safetensors"

    def is_listed(self, key: str) -> bool:
        """Say whether a shard was ever committed under this key (its bytes may since be damaged)."""
        return self._manifest(key).exists()

    def is_there(self, key: str) -> bool:
        """Say whether a shard's data is there in its size; to load it is what proves it."""
        try:
            manifest = json.loads(self._manifest(key).read_text("utf-8"))
            return int(self._data(key, manifest["sha256"]).stat().st_size) == manifest["bytes"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return False

    def load(self, key: str) -> Shard | None:
        """Return the shard, or None where there is none or where its bytes fail their checksum."""
        try:
            sha256 = json.loads(self._manifest(key).read_text("utf-8"))["sha256"]
            data = self._data(key, sha256).read_bytes()
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return Shard(key, sha256, arrays_from_bytes(data)) if digest_bytes(data) == sha256 else None

    def commit(self, key: str, arrays: Mapping[str, NDArray[Any]], *, details: Mapping[str, Any]) -> Shard:
        """Store a shard: its data first, its manifest last."""
        data = arrays_bytes(arrays)
        sha256 = digest_bytes(data)
        commit_bytes(self._data(key, sha256), data)
        manifest = {"sha256": sha256, "bytes": len(data), "details": dict(details)}
        commit_bytes(self._manifest(key), canonical_json(manifest).encode())
        return Shard(key, sha256, dict(arrays))


# --- Records of audits: what was stored for each, so that an older one can be read as it was

TABLE = "audit_record"
RECORD_SCHEMA: Schema = {
    "name": pl.String,
    "partition": pl.String,
    "kind": pl.String,
    "sha256": pl.String,
    "rows": pl.Int64,
    "bytes": pl.Int64,
    "details": pl.String,
}
"""One row a stored thing: its manifest, `details` as JSON."""
NEWEST = "newest"
_SHORTEST = 6


@dataclass(frozen=True, eq=False)
class AuditRecord:
    """One audit as it was. Two readings of one record are not equal, so that one can be the key of a cache.

    Attributes
    ----------
    audit_id : str
        As in the metric table.
    made_at : str
        ISO 8601 with time zone: when this audit was last the newest.
    settings : dict
        The audit file as it was resolved, without what was left to defaults.
    things : mapping of (str, str) to Committed
        Manifests by name and partition.
    software : mapping of str to str
        What was installed then, name -> version; empty in the records of earlier versions.
    """

    audit_id: str
    made_at: str
    settings: Mapping[str, Any]
    things: Mapping[tuple[str, str], Committed]
    software: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedLake(Lake):
    """The lake as it was for one audit: its manifests are those of the record, and nothing can be written."""

    record: AuditRecord

    def committed(self, name: str, *, partition: str = "") -> Committed | None:
        """Return the manifest that the audit used."""
        return self.record.things.get((name, partition))

    def _write(self, name: str, *_: object, **__: object) -> Committed:
        raise StorageError("an audit of the past is not written to", where=self.record.audit_id, found=name)


@dataclass(frozen=True)
class SeenLake(Lake):
    """The lake at one moment: each manifest is read once."""

    _seen: dict[tuple[str, str], Committed | None] = field(default_factory=dict, compare=False, repr=False)

    def committed(self, name: str, *, partition: str = "") -> Committed | None:
        """Return the manifest of a partition as it was first read, or None where nothing was committed."""
        if (name, partition) not in self._seen:
            self._seen[name, partition] = super().committed(name, partition=partition)
        first_read = self._seen[name, partition]
        note("stored", name, partition, value=None if first_read is None else first_read.version)
        return first_read


def write_record(
    lake: Lake,
    things: Iterable[Committed],
    *,
    audit_id: str,
    made_at: str,
    settings: Mapping[str, Any],
    software: Mapping[str, str],
) -> Committed:
    """Commit the record of an audit; one of the same audit id is replaced."""
    rows = [vars(thing) | {"details": canonical_json(thing.details)} for thing in things]
    frame = pl.DataFrame(rows, schema=RECORD_SCHEMA, orient="row").sort("name", "partition")
    # As a text, since the order of entries counts: the first scorer is that of the headlines.
    written = json.dumps(dict(settings), ensure_ascii=False)
    details = {"audit_id": audit_id, "made_at": made_at, "settings": written, "software": dict(software)}
    return lake.write_table(TABLE, frame, partition=audit_id, details=details)


def read_record(lake: Lake, audit_id: str) -> AuditRecord:
    """Return the record of an audit.

    Raises
    ------
    StorageError
        If there is none, or it is damaged.
    """
    manifest = lake.require(TABLE, partition=audit_id)
    rows = lake.read_table(TABLE, manifest=manifest).iter_rows(named=True)
    committed = (Committed(**row | {"details": json.loads(row["details"])}) for row in rows)
    things = {(thing.name, thing.partition): thing for thing in committed}
    details, settings = manifest.details, manifest.details["settings"]
    # Version 0.5 and the first of 1.0 kept them sorted.
    read = json.loads(settings) if isinstance(settings, str) else settings
    return AuditRecord(audit_id, details["made_at"], read, things, details.get("software", {}))


def recorded_audits(lake: Lake) -> dict[str, str]:
    """Return audit id -> when it was made, of all recorded audits, the newest first."""
    folder = lake.root / TABLE
    ids = [each.name for each in folder.iterdir()] if folder.exists() else []
    with unrecorded():
        manifests = {name: lake.committed(TABLE, partition=name) for name in ids}
    times = {name: manifest.details["made_at"] for name, manifest in manifests.items() if manifest}
    newest_first = dict(sorted(times.items(), key=lambda each: each[::-1], reverse=True))
    note("audits", value=list(newest_first))
    return newest_first


def named_audit(lake: Lake, name: str) -> str:
    """Return the id of the audit that a person names: the start of an id, `newest`, or `newest~2` for two before it.

    Raises
    ------
    StorageError
        If none or several are so named.
    """
    audits = list(recorded_audits(lake))
    base, _, back = name.partition("~")
    if base == NEWEST and (not back or back.isdecimal()):
        matches = audits[int(back or 0) :][:1]
    else:
        matches = [audit for audit in audits if len(name) >= _SHORTEST and audit.startswith(name)]
    if len(matches) != 1:
        raise StorageError(
            "there is no such audit" if not matches else "several audits have ids that start so",
            where=lake.root / TABLE,
            found=name,
            expected=f"`newest`, `newest~1`, or the first {_SHORTEST} or more characters of one of: "
            + (", ".join(audit[:12] for audit in audits) or "none yet; run `plumbline audit`"),
        )
    return matches[0]
