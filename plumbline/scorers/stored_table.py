"""A file of scores that were made elsewhere, read with every value checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.digests import digest_file
from plumbline.errors import ScoringError
from plumbline.scorers.stored_checks import (
    ROW,
    is_parquet,
    key_of_text_in,
    lower_in,
    place,
    refuse_bad_values,
    score_in,
)
from plumbline.scorers.text_scores import TEXT, TEXT_KEY
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES

_TRUNCATED = "truncated"
_HALF = 8


@dataclass(frozen=True)
class StoredTable:
    """Scores by text, about 20 + 8 x attributes bytes a text.

    Attributes
    ----------
    name, digest : str
        Of the file: its name, and the sha256 of its bytes.
    columns : dict of str to str
        What was read -> the file's name for it.
    attributes : tuple of str
    first, second : (n,) uint64
        The first and the second 64 bits of a text's sha256; `first` is sorted.
    scores : (n, attributes) float64
        nan where there is none.
    truncated : (n,) bool
    """

    name: str
    digest: str
    columns: dict[str, str]
    attributes: tuple[str, ...]
    first: NDArray[np.uint64]
    second: NDArray[np.uint64]
    scores: NDArray[np.float64]
    truncated: NDArray[np.bool_]


def read_stored(path: Path, columns: Mapping[str, str] | None = None) -> StoredTable:
    """Read a CSV with a header or a Parquet file (`.parquet`), one row a text.

    Needed are

    - `text`, or `text_sha256`: the sha256 (hex) of its UTF-8, for those who may not pass texts on. With both they must
      agree;
    - at least one column of scores in [0, 1], named as here (`identity_attack`) or as in the Perspective API
      (`IDENTITY_ATTACK`): capitals, spaces, hyphens and an ending `_score` make no difference. Empty or nan is no
      score.

    `truncated` (true or false) may say that only the beginning was read. Other columns are left alone. A text may come
    several times, with the same scores.

    Parameters
    ----------
    columns : mapping of str to str, optional
        `text`, `text_sha256` or attribute -> name of its column, where it has another.

    Raises
    ------
    ScoringError
        If the file cannot be read, lacks columns, or has a value that is no score or no sha256, or two scores of one
        text; with the line.
    """
    rows = _scan(path)
    found = _columns(path, rows.collect_schema().names(), columns or {})
    attributes = tuple(name for name in SCORED_ATTRIBUTES if name in found)
    try:
        refuse_bad_values(path, rows, found, attributes)
        table = _keyed(rows, found, attributes).collect(engine="streaming").sort("first", "second", ROW)
    except pl.exceptions.PolarsError as error:
        raise _unreadable(path, error) from error
    table = _once(path, table, attributes)
    return StoredTable(
        name=path.name,
        digest=digest_file(path),
        columns=found,
        attributes=attributes,
        first=table["first"].to_numpy(),
        second=table["second"].to_numpy(),
        scores=table.select(attributes).to_numpy(),
        truncated=table[_TRUNCATED].to_numpy(),
    )


def key_halves(keys: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first and second 64 bits of hexadecimal digests."""
    frame = pl.DataFrame({TEXT_KEY: pl.Series(keys, dtype=pl.String)}).select(*_halves(pl.col(TEXT_KEY)))
    return frame["first"].to_numpy(), frame["second"].to_numpy()


def _halves(key: pl.Expr) -> list[pl.Expr]:
    data = key.str.decode("hex").bin
    return [
        data.slice(place, _HALF).bin.reinterpret(dtype=pl.UInt64, endianness="big").alias(name)
        for name, place in (("first", 0), ("second", _HALF))
    ]


def _scan(path: Path) -> pl.LazyFrame:
    try:
        # Values of a CSV are checked below, where the line is known.
        frame = pl.scan_parquet(path) if is_parquet(path) else pl.scan_csv(path, infer_schema=False)
        frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from error
    return frame.with_row_index(ROW)


def _columns(path: Path, names: Sequence[str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return what is read -> the file's name for it."""
    found: dict[str, str] = {}
    for what in (TEXT, TEXT_KEY, _TRUNCATED, *SCORED_ATTRIBUTES):
        same = [name for name in names if (name == wanted[what] if what in wanted else _plain(name) == what)]
        if len(same) > 1 or (what in wanted and not same):
            raise ScoringError(
                f"the stored scores have {'two columns' if same else 'no column'} for `{what}`",
                where=path,
                found=", ".join(names[1:]),
                expected=wanted.get(what, "one column of that name"),
            )
        if same:
            found[what] = same[0]
    if not found.keys() & {TEXT, TEXT_KEY} or not found.keys() & set(SCORED_ATTRIBUTES):
        raise ScoringError(
            "the stored scores lack a column",
            where=path,
            found=", ".join(names[1:]),
            expected=f"`text` or `text_sha256`, and some of {', '.join(SCORED_ATTRIBUTES)}",
            hint="name them under `columns` of the scorer where they are called otherwise",
        )
    return found


def _plain(name: str) -> str:
    plain = re.sub(r"[\s-]+", "_", name.strip("\ufeff \t").lower())
    return plain.removesuffix("_score")


def _keyed(rows: pl.LazyFrame, found: Mapping[str, str], attributes: Sequence[str]) -> pl.LazyFrame:
    key = lower_in(found[TEXT_KEY]) if TEXT_KEY in found else key_of_text_in(found[TEXT])
    flag = pl.lit(False)
    if _TRUNCATED in found:
        flag = lower_in(found[_TRUNCATED]).is_in(["true", "1"])
    scores = [score_in(found[name]).fill_null(float("nan")).alias(name) for name in attributes]
    return rows.select(ROW, *_halves(key), *scores, flag.alias(_TRUNCATED))


def _once(path: Path, table: pl.DataFrame, attributes: Sequence[str]) -> pl.DataFrame:
    """Return each text once; refuse one with two scores."""
    again = (pl.col("first") == pl.col("first").shift()) & (pl.col("second") == pl.col("second").shift())
    other = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in attributes)
    table = table.with_columns(_again=again.fill_null(False), _before=pl.col(ROW).shift())
    twice = table.filter(pl.col("_again") & other).head(1)
    if twice.height:
        raise ScoringError(
            "one text has two different scores",
            where=place(path, twice[ROW][0]),
            found=f"other scores than {place(path, twice['_before'][0])}",
            expected="each text once, or with the same scores",
        )
    return table.filter(~pl.col("_again"))


def _unreadable(path: Path, error: Exception) -> ScoringError:
    return ScoringError(
        "the file of stored scores cannot be read",
        where=path,
        found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        expected="a CSV with a header, in UTF-8, or a Parquet file that ends in .parquet",
    )
