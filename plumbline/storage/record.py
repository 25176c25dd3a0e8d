"""Records of audits: what was stored for each, so that an older one can be read as it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from plumbline.digests import canonical_json
from plumbline.errors import StorageError
from plumbline.storage.lake import Committed, Lake
from plumbline.tables.schema import Schema

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
    """

    audit_id: str
    made_at: str
    settings: Mapping[str, Any]
    things: Mapping[tuple[str, str], Committed]


@dataclass(frozen=True)
class RecordedLake(Lake):
    """The lake as it was for one audit: its manifests are those of the record, and nothing can be written."""

    record: AuditRecord

    def committed(self, name: str, *, partition: str = "") -> Committed | None:
        """Return the manifest that the audit used."""
        return self.record.things.get((name, partition))

    def _write(self, name: str, *_: object, **__: object) -> Committed:
        raise StorageError("an audit of the past is not written to", where=self.record.audit_id, found=name)


def write_record(
    lake: Lake, things: Iterable[Committed], *, audit_id: str, made_at: str, settings: Mapping[str, Any]
) -> Committed:
    """Commit the record of an audit; one of the same audit id is replaced."""
    rows = [vars(thing) | {"details": canonical_json(thing.details)} for thing in things]
    frame = pl.DataFrame(rows, schema=RECORD_SCHEMA, orient="row").sort("name", "partition")
    details = {"audit_id": audit_id, "made_at": made_at, "settings": dict(settings)}
    return lake.write_table(TABLE, frame, partition=audit_id, details=details)


def read_record(lake: Lake, audit_id: str) -> AuditRecord:
    """Return the record of an audit.

    Raises
    ------
    StorageError
        If there is none, or it is damaged.
    """
    made = lake.require(TABLE, partition=audit_id)
    rows = lake.read_table(TABLE, made=made).iter_rows(named=True)
    found = [Committed(**row | {"details": json.loads(row["details"])}) for row in rows]
    things = {(thing.name, thing.partition): thing for thing in found}
    return AuditRecord(audit_id, made.details["made_at"], made.details["settings"], things)


def recorded_audits(lake: Lake) -> dict[str, str]:
    """Return audit id -> when it was made, of all recorded audits, the newest first."""
    folder = lake.root / TABLE
    ids = [each.name for each in folder.iterdir()] if folder.exists() else []
    found = {name: made for name in ids if (made := lake.committed(TABLE, partition=name))}
    times = {name: made.details["made_at"] for name, made in found.items()}
    return dict(sorted(times.items(), key=lambda each: each[::-1], reverse=True))


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
        found = audits[int(back or 0) :][:1]
    else:
        found = [audit for audit in audits if len(name) >= _SHORTEST and audit.startswith(name)]
    if len(found) != 1:
        raise StorageError(
            "there is no such audit" if not found else "several audits have ids that start so",
            where=lake.root / TABLE,
            found=name,
            expected=f"`newest`, `newest~1`, or the first {_SHORTEST} or more characters of one of: "
            + (", ".join(audit[:12] for audit in audits) or "none yet; run `plumbline audit`"),
        )
    return found[0]
