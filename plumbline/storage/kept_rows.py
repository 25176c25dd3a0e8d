"""Rows that are made once and found again: Parquet parts named by their content, many keys in little memory."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source
from upath import UPath

from plumbline.digests import digest_bytes
from plumbline.errors import StorageError
from plumbline.storage.files import commit_bytes, table_bytes

ABSENT = -1


class _Sorted(NamedTuple):
    hashes: NDArray[np.uint64]
    places: NDArray[np.int32]


class KeySet:
    """Says which keys it was given and with which number; 12 bytes a key.

    Two keys of one hash are taken for one: with 57 million keys the chance that any two meet is below 1 in 10,000.
    Hashes are of this process alone and are stored nowhere.
    """

    def __init__(self) -> None:
        # Each more than twice as long as the next: adding n keys one by one sorts each only log n times.
        self._sorted: list[_Sorted] = []

    def __len__(self) -> int:
        """Return the number of keys."""
        return sum(len(part.hashes) for part in self._sorted)

    def places(self, keys: pl.Series) -> NDArray[np.int32]:
        """Return (n,) the number that each key was added with, `ABSENT` where it was not."""
        return self._places(_hashes(keys))

    def add(self, parts: Iterable[pl.Series], place: int) -> NDArray[np.bool_]:
        """Add the keys of parts, numbered from `place`; return (n,) whether each was new, the first of equal ones only.

        Many parts at once take half of the time that they take one by one.
        """
        hashes = [_hashes(keys) for keys in parts]
        places = np.repeat(np.arange(place, place + len(hashes), dtype=np.int32), [len(part) for part in hashes])
        whole = np.concatenate([np.zeros(0, dtype=np.uint64), *hashes])
        order = np.argsort(whole, kind="stable")
        whole, places = whole[order], places[order]
        fresh = self._places(whole) == ABSENT
        fresh[1:] &= whole[1:] != whole[:-1]
        new = np.zeros(len(whole), dtype=bool)
        new[order] = fresh
        self._sorted.append(_Sorted(whole[fresh], places[fresh]))
        while len(self._sorted) > 1 and len(self._sorted[-2].hashes) <= 2 * len(self._sorted[-1].hashes):
            self._sorted[-2:] = [_merged(*self._sorted[-2:])]
        return new

    def _places(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        # Looked up in order the search walks through memory once, and is several times as fast.
        order = np.argsort(hashes)
        sought, places = hashes[order], np.full(len(hashes), ABSENT, dtype=np.int32)
        for part in self._sorted:
            if len(part.hashes):
                at = np.minimum(np.searchsorted(part.hashes, sought), len(part.hashes) - 1)
                there = part.hashes[at] == sought
                places[order[there]] = part.places[at[there]]
        return places


def _merged(first: _Sorted, second: _Sorted) -> _Sorted:
    hashes = np.concatenate([first.hashes, second.hashes])
    # A stable sort finds the two runs and only merges them.
    order = np.argsort(hashes, kind="stable")
    return _Sorted(hashes[order], np.concatenate([first.places, second.places])[order])


def _hashes(keys: pl.Series) -> NDArray[np.uint64]:
    return keys.hash().to_numpy().astype(np.uint64, copy=False)


# --- The rows

_SUFFIX = ".parquet"


class KeptRows:
    """Rows of one schema with a key, in parts that are never changed; a crash loses only rows that were not kept yet.

    A part is named by the sha256 of its bytes and put in its place whole, so that there is no manifest that could
    disagree with it, and several processes may keep rows in one folder. Every part is checked when the folder is
    opened: one whose bytes have another sha256 is removed, and its rows are lacking again.

    Parameters
    ----------
    root : UPath
        A folder of these rows alone; made with the first part.
    schema : mapping of str to polars type
        Of every part.
    key : str
        String column of the schema, never null.
    added : collection of str, optional
        Columns that parts of earlier versions lack; null there.

    Attributes
    ----------
    schema : polars Schema
    damaged : int
        Parts that were removed on opening.

    Raises
    ------
    StorageError
        If a part has another schema: another version's rows, which belong in another folder.
    """

    def __init__(
        self, root: UPath, schema: Mapping[str, type[pl.DataType]], *, key: str, added: Collection[str] = ()
    ) -> None:
        self._root, self.schema, self._key = root, pl.Schema(schema), key
        self._earlier = pl.Schema({name: kind for name, kind in schema.items() if name not in added})
        self._parts: list[UPath] = []
        self._keys, self.damaged = KeySet(), 0
        # What has no name of a part is not one, and is not removed as damaged.
        opened = map(self._open, sorted(root.glob("[0-9a-f]" * 64 + _SUFFIX), key=str))
        self._repeated = not self._keys.add((keys for keys in opened if keys is not None), 0).all()

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._keys)

    @property
    def parts(self) -> int:
        """Return the number of parts; they are numbered from 0, and a new one gets the next number."""
        return len(self._parts)

    def lacking(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return those of the rows, which need only the key, that are not kept; in order, equal ones once."""
        once = rows.unique(self._key, keep="first", maintain_order=True)
        return once.filter(pl.Series(self._keys.places(once[self._key]) == ABSENT))

    def keep(self, rows: pl.DataFrame) -> int:
        """Keep the rows whose keys are new, as one part; return how many they are.

        Raises
        ------
        StorageError
            If they cannot be written; they are not kept then.
        """
        rows = self.lacking(rows)
        if rows.is_empty():
            return 0
        data = table_bytes(rows.select(list(self.schema)).cast(self.schema))
        path = self._root / f"{digest_bytes(data)}{_SUFFIX}"
        commit_bytes(path, data)
        self._keys.add([rows[self._key]], len(self._parts))
        self._parts.append(path)
        return rows.height

    def parts_with(self, keys: pl.Series) -> set[int]:
        """Return numbers of the parts that hold any of the keys: rows made together lie in few of them."""
        return set(np.unique(self._keys.places(keys)).tolist()) - {ABSENT}

    def scan(self, parts: Collection[int] | None = None) -> pl.LazyFrame:
        """Return rows that are kept by now, read where they are needed; one row a key, in no order.

        Rows of a key that two processes made at once may lie in two parts: the part whose name comes first counts.

        Parameters
        ----------
        parts : collection of int, optional
            As `parts_with` gives them; all by default.
        """
        chosen = self._parts if parts is None else [self._parts[number] for number in parts]
        if not chosen:
            return pl.LazyFrame(schema=self.schema)
        return self._scan(sorted(chosen, key=str))

    def _scan(self, parts: list[UPath]) -> pl.LazyFrame:
        if all(part.protocol in ("", "file") for part in parts):
            paths = [Path(part.path) for part in parts]
            frame = pl.scan_parquet(paths, glob=False, schema=self.schema, missing_columns="insert")
        else:
            frame = register_io_source(_reader(parts, self.schema), schema=self.schema, is_pure=True)
        if self._repeated:
            frame = frame.unique(self._key, keep="first", maintain_order=True)
        return frame

    def _open(self, path: UPath) -> pl.Series | None:
        """Take a part up and return its keys; remove it where its bytes are not those of its name."""
        data = path.read_bytes()
        if digest_bytes(data) != path.stem:
            path.unlink(missing_ok=True)
            self.damaged += 1
            return None
        stored_schema = pl.read_parquet_schema(io.BytesIO(data))
        if pl.Schema(stored_schema) not in (self.schema, self._earlier):
            raise StorageError(
                "kept rows are of another schema",
                where=path,
                found=dict(stored_schema),
                expected=dict(self.schema),
                hint="another version wrote them: remove this folder, they will be made again",
            )
        self._parts.append(path)
        return pl.read_parquet(io.BytesIO(data), columns=[self._key])[self._key]


def _reader(parts: list[UPath], schema: pl.Schema) -> Callable[..., Iterator[pl.DataFrame]]:
    """Return a source of the parts of an object store, one in memory at a time."""

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch: int | None
    ) -> Iterator[pl.DataFrame]:
        left = rows
        for part in parts:
            if left is not None and left <= 0:
                return
            frame = pl.read_parquet(io.BytesIO(part.read_bytes()), n_rows=left)
            frame = frame.with_columns(
                pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in frame.columns
            ).select(columns or list(schema))
            left = None if left is None else left - frame.height
            yield frame if predicate is None else frame.filter(predicate)

    return read


class PartWriter:
    """Gathers rows and keeps them as parts of a fair size or age; leaving its `with` block keeps what is left.

    Whatever ends the block, an error or an interrupt, so loses nothing; a kill loses the rows of one part.

    Parameters
    ----------
    kept : KeptRows
    most_rows : int
        Of a part.
    most_seconds : float
        Between the first row of a part and its keeping, looked at when a row is added.
    clock : callable
        Seconds.
    """

    def __init__(
        self, kept: KeptRows, *, most_rows: float, most_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept, self._clock = kept, clock
        self._most_rows, self._most_seconds = most_rows, most_seconds
        self._rows: list[Mapping[str, object]] = []
        self._since = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.flush()

    def add(self, row: Mapping[str, object]) -> None:
        """Take a row, which has every column of the schema, and keep a part that is large or old enough."""
        if not self._rows:
            self._since = self._clock()
        self._rows.append(row)
        if len(self._rows) >= self._most_rows or self._clock() - self._since >= self._most_seconds:
            self.flush()

    def flush(self) -> None:
        """Keep the rows that wait."""
        rows, self._rows = self._rows, []
        if rows:
            self._kept.keep(pl.DataFrame(rows, schema=self._kept.schema))
