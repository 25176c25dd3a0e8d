"""What a dataset holds, seen before it is audited: all labels, and as many images as can be looked at in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from plumbline.datasets.extended import label_shares
from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import Declaration, Entry, Ingested, Reader, Refusal, UnmappedValues
from plumbline.errors import DatasetError, examples
from plumbline.statistics.groups import Groups, attribute_groups

LOOKED_AT = 400
"""Images that are decoded."""


@dataclass(frozen=True)
class Preview:
    """A dataset as an audit will find it.

    Attributes
    ----------
    listed, accepted : int
        Images that are listed, and those whose row and labels can be read.
    looked_at : int
        Images that were decoded, evenly spaced.
    seen : DataFrame or None
        The records of those that can be read; None where nothing was looked at.
    refused : DataFrame
        `QUARANTINE_SCHEMA`: of all rows those that cannot be read, and of the images looked at those that cannot.
    refused_share : float
        Share of the images that an audit will quarantine: known where all were looked at, else estimated.
    ungrouped : DataFrame
        `UNGROUPED_SCHEMA`, of `records`.
    unmapped : mapping of str to UnmappedValues
        Attribute -> its values that the map does not name.
    least_shown : int
        Images of the smallest group, and rows of the rarest value, that is shown.
    records : DataFrame
        `RECORD_SCHEMA`, without the images that were seen to be unreadable.
    groups : list of Groups
        Of `records`, as the metric families form them.
    failing : list of str
        What will refuse the audit: place, limit with its key, and what was found.
    """

    listed: int
    accepted: int
    looked_at: int
    seen: pl.DataFrame | None
    refused: pl.DataFrame
    refused_share: float
    ungrouped: pl.DataFrame
    unmapped: Mapping[str, UnmappedValues]
    least_shown: int
    records: pl.DataFrame
    groups: list[Groups]
    failing: list[str]


class _Part(Reader):
    """A reader that lists some of another's images, or all of them without opening any."""

    def __init__(self, reader: Reader, entries: Sequence[Entry | Refusal], *, has_images: bool) -> None:
        self._reader, self._entries = reader, entries
        self.declaration, self.least_shown = reader.declaration, reader.least_shown
        self.has_images = has_images

    def index_files(self, root: Path) -> Sequence[str]:
        return self._reader.index_files(root)

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        return self._entries

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        return self._reader.labels(raw)

    def grouped(self, records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        return self._reader.grouped(records)


def preview(
    reader: Reader,
    root: Path,
    *,
    dataset: str,
    balance: Mapping[str, tuple[float, float]],
    most_refused: float,
    looked_at: int = LOOKED_AT,
) -> Preview:
    """Read all labels of a dataset and look at some of its images.

    Parameters
    ----------
    balance : mapping of str to (float, float)
        Of the audit file: the range in which the share of each label of an attribute must lie.
    most_refused : float
        Largest share of images that may be quarantined, `thresholds.quarantine_rate` or the dataset's own.
    looked_at : int
        Images to decode at most; of none, what only images can tell is not found.

    Raises
    ------
    DatasetError
        If the folder is not there, its index cannot be read, or its column map cannot be right.
    """
    listed = reader.entries(root)
    by_label = ingest(_Part(reader, listed, has_images=False), root, dataset=dataset)
    entries = [entry for entry in listed if isinstance(entry, Entry)]
    step = max(1, -(-len(entries) // looked_at)) if looked_at else 0
    sample = entries[::step] if reader.has_images and step else []
    seen = ingest(_Part(reader, sample, has_images=True), root, dataset=dataset) if sample else None
    refused = by_label.quarantine
    many, readable = float(refused.height), by_label
    if seen is not None:
        # A row is refused once, whatever else is wrong with its image.
        bad = seen.quarantine.join(refused, on=["path", "line"], how="anti", nulls_equal=True)
        refused = pl.concat([refused, bad])
        if bad.height:  # groups form without them
            unreadable = set(bad["path"])
            left = [entry for entry in entries if entry.path not in unreadable]
            readable = ingest(_Part(reader, left, has_images=False), root, dataset=dataset)
        many += bad.height * len(entries) / len(sample)
    share = many / max(1, by_label.listed)
    accepted = set(readable.records["path"])
    failing = _failing(
        replace(by_label, records=readable.records),
        refused,
        reader.declaration,
        balance,
        share,
        most_refused,
        dataset=dataset,
        all_seen=step < 2,
    )
    return Preview(
        by_label.listed,
        by_label.records.height,
        len(sample),
        None if seen is None else seen.records,
        refused,
        share,
        readable.ungrouped,
        reader.unmapped(entry for entry in entries if entry.path in accepted),
        reader.least_shown,
        readable.records,
        attribute_groups(readable.records),
        failing,
    )


def require_fit(
    ingested: Ingested,
    declaration: Declaration,
    *,
    dataset: str,
    balance: Mapping[str, tuple[float, float]],
    most_refused: float,
) -> None:
    """Refuse a dataset that was read whole and is not as the audit file demands; see `preview`.

    Raises
    ------
    DatasetError
        With everything that is wrong: what was found, the limit and its key.
    """
    share = ingested.quarantine.height / max(1, ingested.listed)
    failing = _failing(
        ingested, ingested.quarantine, declaration, balance, share, most_refused, dataset=dataset, all_seen=True
    )
    if failing:
        raise DatasetError("; ".join(failing), where=dataset, hint="mend the dataset, or state other limits")


def refused_words(row: Mapping[str, Any]) -> str:
    """Return what a row of `QUARANTINE_SCHEMA` says: path, line, what is wrong, what was found and what is accepted."""
    line = f" (line {row['line']})"
    if row["line"] is None or f"line {row['line']})" in row["message"]:
        line = ""
    what = "".join(f", {word} {row[word]}" for word in ("found", "expected") if row[word] is not None)
    return f"{row['path']}{line}: {row['message']}{what}"


def too_many_refused(refused: pl.DataFrame, share: float, most: float, *, dataset: str, all_seen: bool = True) -> str:
    """Return what is said where too large a share of a dataset is quarantined: the limit, its keys, three examples."""
    about = "" if all_seen else "about "
    rows = examples(map(refused_words, refused.to_dicts()))
    return (
        f"{about}{share:.1%} of the images are refused; `datasets.{dataset}.quarantine_rate` or "
        f"`thresholds.quarantine_rate` allows {most:.1%}: {rows}"
    )


def outside_balance(shares: pl.DataFrame, *, dataset: str) -> list[str]:
    """Return what is said of each attribute of `label_shares` with shares outside its range: found, limit and key.

    Three labels of an attribute are said, and how many more there are.
    """
    outside = shares.filter((pl.col("share") < pl.col("expected_low")) | (pl.col("share") > pl.col("expected_high")))
    lines: dict[str, list[str]] = {}
    for row in outside.iter_rows(named=True):
        lines.setdefault(row["attribute"], []).append(
            f"{row['share']:.1%} of the images are `{row['label']}`; `datasets.{dataset}.balance.{row['attribute']}` "
            f"asks for {row['expected_low']:.0%} to {row['expected_high']:.0%} (n = {row['n']:,})"
        )
    return [examples(each) for each in lines.values()]


def none_left(listed: int, refused: pl.DataFrame, *, dataset: str) -> str:
    """Return what is said where no image of a dataset is accepted."""
    return f"{dataset}: none of {listed:,} images is left to audit: {examples(map(refused_words, refused.to_dicts()))}"


def _failing(
    ingested: Ingested,
    quarantined: pl.DataFrame,
    declaration: Declaration,
    balance: Mapping[str, tuple[float, float]],
    refused: float,
    most_refused: float,
    *,
    dataset: str,
    all_seen: bool,
) -> list[str]:
    failing = []
    if refused > most_refused:
        failing.append(too_many_refused(quarantined, refused, most_refused, dataset=dataset, all_seen=all_seen))
    shares = label_shares(ingested.records, declaration, balance, composite=False)
    failing += outside_balance(shares, dataset=dataset)
    if ingested.records.is_empty():
        failing.append(none_left(ingested.listed, quarantined, dataset=dataset))
    return failing
