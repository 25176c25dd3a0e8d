"""What a value of stored scores may be; a bad one is refused with its line."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from plumbline.errors import ScoringError
from plumbline.scorers.text_scores import TEXT, TEXT_KEY, text_keys

ROW = "__row"
"""Column with the number of a row, from 0, the header not counted."""

_HEX_64 = r"^[0-9a-f]{64}$"
_LONGEST_FIELD = 1 << 24


def refuse_bad_values(
    path: Path, rows: pl.LazyFrame, found: Mapping[str, str], attributes: Sequence[str]
) -> None:
    """Refuse what is no score, no sha256, or the sha256 of another text."""
    for attribute in attributes:
        raw, score = pl.col(found[attribute]), score_in(found[attribute])
        said = raw.cast(pl.String).str.strip_chars().fill_null("") != ""
        bad = said & (score.is_null() | ~(score.is_between(0, 1) | score.is_nan()))
        what = f"a stored score of `{attribute}` is not from 0 to 1"
        _refuse(path, rows, bad, raw, what, "a number from 0 to 1")
    if TEXT_KEY not in found:
        return
    raw, key = pl.col(found[TEXT_KEY]), lower_in(found[TEXT_KEY])
    _refuse(path, rows, ~key.str.contains(_HEX_64), raw, "this is no sha256", "64 hexadecimal digits")
    if TEXT in found:
        other = key != key_of_text_in(found[TEXT])
        _refuse(path, rows, other, raw, "this is the sha256 of another text", "that of the text in UTF-8")


def _refuse(path: Path, rows: pl.LazyFrame, bad: pl.Expr, shown: pl.Expr, what: str, expected: str) -> None:
    wrong = rows.filter(bad.fill_null(True)).select(ROW, value=shown.cast(pl.String))
    first = wrong.bottom_k(1, by=ROW).collect(engine="streaming")
    if first.height:
        row, value = first.row(0)
        raise ScoringError(what, where=place(path, row), found=value, expected=expected)


def score_in(column: str) -> pl.Expr:
    """Return a column as numbers; null where it holds something else."""
    return pl.col(column).cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)


def lower_in(column: str) -> pl.Expr:
    """Return a column as text in lower case, null as empty."""
    return pl.col(column).cast(pl.String).str.strip_chars().str.to_lowercase().fill_null("")


def key_of_text_in(column: str) -> pl.Expr:
    """Return the sha256 (hex) of the texts of a column, null as empty."""

    def keys(texts: pl.Series) -> pl.Series:
        return pl.Series(text_keys(texts.to_list()), dtype=pl.String)

    return pl.col(column).fill_null("").map_batches(keys, pl.String, is_elementwise=True)


def place(path: Path, row: int) -> str:
    """Return file and line of a row, counted from 0 without the header; texts may run over several lines."""
    if is_parquet(path):
        return f"{path}, row {row + 1}"
    csv.field_size_limit(_LONGEST_FIELD)
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.reader(file)
        for _ in range(row + 1):
            next(reader, None)
        return f"{path}, line {reader.line_num + 1}"


def is_parquet(path: Path) -> bool:
    """Return whether a file is read as Parquet."""
    return path.suffix.lower() == ".parquet"
