"""Scores that were made elsewhere, as by the Perspective API while it lasted: a file, checked and looked up by text."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import polars as pl
from pydantic import AfterValidator, Field

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.digests import digest_file, digest_json
from plumbline.errors import ConfigError, ImageRejected, ScoringError
from plumbline.images.parquet import read_frame
from plumbline.scorers.scorer import Scored, ScorerSettings
from plumbline.scorers.scoring import TEXT, TEXT_KEY, text_keys

if TYPE_CHECKING:
    from plumbline.checkpoints.device import Placement
    from plumbline.scorers.scorer import Scorer


def _column_names(value: dict[str, str]) -> dict[str, str]:
    known = ("text", "text_sha256", *SCORED_ATTRIBUTES)
    if not set(value) <= set(known):
        raise ValueError(f"any of {', '.join(known)} -> name of its column")
    return value


class StoredSettings(ScorerSettings):
    """Scores that were made elsewhere, such as by the Perspective API while it lasted: a CSV or Parquet file."""

    kind: Literal["stored"]
    """what scores"""
    path: str = Field(min_length=1)
    """columns `text` or `text_sha256`, and one per attribute"""
    origin: Literal["perspective", "classifier"] | None = None
    """what made them: scores of the Perspective API are compared with published ones"""
    columns: Annotated[dict[str, str], AfterValidator(_column_names)] = Field(default_factory=dict)
    """`text`, `text_sha256` or scored attribute -> name of its column, where it has another"""

    def content(self, *, project: Path, fetched: Path) -> str:
        """See `ScorerSettings`."""
        path = self._file(project)
        if not path.is_file():
            raise ConfigError(
                "a file of stored scores that the audit file names is not there",
                where="`path` of a scorer of kind `stored`",
                found=self.path,
                expected=f"a file at {path}: relative paths start in the folder of the command",
            )
        return digest_file(path)

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        return StoredScorer(read_stored(self._file(project), self.columns))

    def _file(self, project: Path) -> Path:
        return (project / Path(self.path).expanduser()).resolve()


# What a value may be; a bad one is refused with its line.

_ROW = "__row"
"""Column with the number of a row, from 0, the header not counted."""

_HEX_64 = r"^[0-9a-f]{64}$"
_LONGEST_FIELD = 1 << 24


def _refuse_bad_values(path: Path, rows: pl.LazyFrame, columns: Mapping[str, str], attributes: Sequence[str]) -> None:
    """Refuse what is no score, no sha256, or the sha256 of another text."""
    for attribute in attributes:
        raw, score = pl.col(columns[attribute]), _score_in(columns[attribute])
        filled = raw.cast(pl.String).str.strip_chars().fill_null("") != ""
        bad = filled & (score.is_null() | ~(score.is_between(0, 1) | score.is_nan()))
        what = f"a stored score of `{attribute}` is not from 0 to 1"
        _refuse(path, rows, bad, raw, what, "a number from 0 to 1")
    if TEXT_KEY not in columns:
        return
    raw, key = pl.col(columns[TEXT_KEY]), _lower_in(columns[TEXT_KEY])
    _refuse(path, rows, ~key.str.contains(_HEX_64), raw, "this is no sha256", "64 hexadecimal digits")
    if TEXT in columns:
        other = key != _key_of_text_in(columns[TEXT])
        _refuse(path, rows, other, raw, "this is the sha256 of another text", "that of the text in UTF-8")


def _refuse(path: Path, rows: pl.LazyFrame, bad: pl.Expr, shown: pl.Expr, what: str, expected: str) -> None:
    wrong = rows.filter(bad.fill_null(True)).select(_ROW, value=shown.cast(pl.String))
    first = wrong.bottom_k(1, by=_ROW).collect(engine="streaming")
    if first.height:
        row, value = first.row(0)
        raise ScoringError(what, where=_line_of(path, row), found=value, expected=expected)


def _score_in(column: str) -> pl.Expr:
    """Return a column as numbers; null where it holds something else."""
    return pl.col(column).cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)


def _lower_in(column: str) -> pl.Expr:
    """Return a column as text in lower case, null as empty."""
    return pl.col(column).cast(pl.String).str.strip_chars().str.to_lowercase().fill_null("")


def _key_of_text_in(column: str) -> pl.Expr:
    """Return the sha256 (hex) of the texts of a column, null as empty."""

    def keys(texts: pl.Series) -> pl.Series:
        return pl.Series(text_keys(texts.to_list()), dtype=pl.String)

    return pl.col(column).cast(pl.String).fill_null("").map_batches(keys, pl.String, is_elementwise=True)


def _line_of(path: Path, row: int) -> str:
    """Return file and line of a row, counted from 0 without the header; texts may run over several lines."""
    if _is_parquet(path):
        return f"{path}, row {row + 1}"
    csv.field_size_limit(_LONGEST_FIELD)
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.reader(file)
        try:
            for _ in range(row + 1):
                next(reader, None)
        except csv.Error:  # a longer text before it
            return f"{path}, row {row + 1}"
        return f"{path}, line {reader.line_num + 1}"


def _is_parquet(path: Path) -> bool:
    """Return whether a file is read as Parquet."""
    return path.suffix.lower() == ".parquet"


# Reading the file.

_TRUNCATED = "truncated"
_KEY_BYTES = 16


@dataclass(frozen=True)
class StoredTable:
    """Scores by text, about 40 + 8 x attributes bytes a text.

    Attributes
    ----------
    name, digest : str
        Of the file: its name, and the sha256 of its bytes.
    columns : dict of str to str
        What was read -> the file's name for it.
    attributes : tuple of str
    rows : DataFrame
        Sorted by `TEXT_KEY`, the first 128 bits of a text's sha256; the attributes, nan where there is no score; and
        whether the text was truncated.
    """

    name: str
    digest: str
    columns: dict[str, str]
    attributes: tuple[str, ...]
    rows: pl.DataFrame


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
    names = _columns(path, _header(path, rows), columns or {})
    attributes = tuple(name for name in SCORED_ATTRIBUTES if name in names)
    try:
        _refuse_bad_values(path, rows, names, attributes)
        table = _keyed(rows, names, attributes).collect(engine="streaming").sort(TEXT_KEY, _ROW)
    except pl.exceptions.PolarsError as error:
        raise _unreadable(path, error) from error
    return StoredTable(path.name, digest_file(path), names, attributes, _once(path, table, attributes))


def _short(key: pl.Expr) -> pl.Expr:
    return key.str.decode("hex").bin.slice(0, _KEY_BYTES).alias(TEXT_KEY)


def _scan(path: Path) -> pl.LazyFrame:
    try:
        if path.is_fifo():
            raise OSError("it is a pipe")
        if not _is_parquet(path):
            _refuse_compressed(path)
        # Values of a CSV are checked below, where the line is known.
        frame = read_frame(path).lazy() if _is_parquet(path) else pl.scan_csv(path, glob=False, infer_schema=False)
        frame.collect_schema()
    except (OSError, ImageRejected, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from error
    return frame.with_row_index(_ROW)


_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""How gzip, zstd and zlib begin: polars unpacks them, to whatever size."""


def _refuse_compressed(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(4).startswith(_COMPRESSED):
            raise ScoringError(
                "the stored scores are compressed", where=path, expected="a CSV as text, or Parquet",
                hint="unpack them first",
            )  # fmt: skip


def _header(path: Path, rows: pl.LazyFrame) -> list[str]:
    """Return the names of the columns as the file has them: polars numbers those that a CSV has twice."""
    _, *names = rows.collect_schema().names()
    if _is_parquet(path):
        return names
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            header = next(filter(None, csv.reader(file)), [])
    except csv.Error as error:  # a name that is longer than that
        raise _unreadable(path, error) from error
    if len(header) != len(names):
        return names
    return [written if name.startswith(f"{written}_duplicated_") else name for written, name in zip(header, names)]


def _columns(path: Path, names: Sequence[str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return what is read -> the file's name for it."""
    columns: dict[str, str] = {}
    shown = ", ".join(names)
    for what in (TEXT, TEXT_KEY, _TRUNCATED, *SCORED_ATTRIBUTES):
        same = [name for name in names if (name == wanted[what] if what in wanted else _plain(name) == what)]
        if len(same) > 1 or (what in wanted and not same):
            raise ScoringError(
                f"the stored scores have {'two columns' if same else 'no column'} for `{what}`",
                where=path,
                found=shown,
                expected=wanted.get(what, "one column of that name"),
            )
        if same:
            columns[what] = same[0]
    if not columns.keys() & {TEXT, TEXT_KEY} or not columns.keys() & set(SCORED_ATTRIBUTES):
        raise ScoringError(
            "the stored scores lack a column",
            where=path,
            found=shown,
            expected=f"`text` or `text_sha256`, and some of {', '.join(SCORED_ATTRIBUTES)}",
            hint="name them under `columns` of the scorer where they are called otherwise",
        )
    return columns


def _plain(name: str) -> str:
    plain = re.sub(r"[\s-]+", "_", name.strip("\ufeff \t").lower())
    return plain.removesuffix("_score")


def _keyed(rows: pl.LazyFrame, columns: Mapping[str, str], attributes: Sequence[str]) -> pl.LazyFrame:
    key = _lower_in(columns[TEXT_KEY]) if TEXT_KEY in columns else _key_of_text_in(columns[TEXT])
    flag = pl.lit(False)
    if _TRUNCATED in columns:
        flag = _lower_in(columns[_TRUNCATED]).is_in(["true", "1"])
    scores = [_score_in(columns[name]).fill_null(float("nan")).alias(name) for name in attributes]
    return rows.select(_ROW, _short(key), *scores, flag.alias(_TRUNCATED))


def _once(path: Path, table: pl.DataFrame, attributes: Sequence[str]) -> pl.DataFrame:
    """Return each text once; refuse one with two scores."""
    again = pl.col(TEXT_KEY) == pl.col(TEXT_KEY).shift()
    other = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in attributes)
    table = table.with_columns(_again=again.fill_null(False), _before=pl.col(_ROW).shift())
    twice = table.filter(pl.col("_again") & other).head(1)
    if twice.height:
        raise ScoringError(
            "one text has two different scores",
            where=_line_of(path, twice[_ROW][0]),
            found=f"other scores than {_line_of(path, twice['_before'][0])}",
            expected="each text once, or with the same scores",
        )
    return table.filter(~pl.col("_again"))


def _unreadable(path: Path, error: Exception) -> ScoringError:
    first = str(error).splitlines()[0] if str(error) else ""
    cause = error.found if isinstance(error, ImageRejected) else f"{type(error).__name__}: {first}"
    return ScoringError(
        "the file of stored scores cannot be read",
        where=path,
        found=cause,
        expected="a CSV with a header, in UTF-8, or a Parquet file that ends in .parquet",
    )


# The scorer.

_CODE = 1
"""Raised whenever the same file would give a text another score."""

NOT_STORED = "the file of stored scores lacks this text"
NO_VALUE = "the file of stored scores has no value here"


class StoredScorer:
    """Looks texts up in a file of scores: `plumbline.scorers.scorer.Scorer`.

    A text that the file lacks has nan and a reason, as have single attributes without a value; how many texts it
    covers is for `plumbline.scorers.scoring.score_coverage` to say. Texts match by every character.

    Parameters
    ----------
    table : StoredTable
        As `plumbline.scorers.stored.read_stored` makes it; that says what files are accepted.
    """

    offline_stand_in: bool = False

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self.attributes: tuple[str, ...] = table.attributes
        self.version = f"{table.name} {table.digest[:12]}"
        self.identity = digest_json({"kind": "stored", "code": _CODE, "file": table.digest, "columns": table.columns})

    def score(self, texts: Sequence[str]) -> Iterator[tuple[int, Scored]]:
        """See `Scorer`."""
        stored = self._table.rows
        keys = pl.DataFrame({TEXT_KEY: pl.Series(text_keys(texts), dtype=pl.String)}).select(_short(pl.col(TEXT_KEY)))
        at = stored[TEXT_KEY].search_sorted(keys[TEXT_KEY])
        scored = stored.select(pl.all().gather(at, null_on_oob=True)).with_columns(asked=keys[TEXT_KEY])
        scored = scored.with_columns(held=pl.col(TEXT_KEY) == pl.col("asked"))
        for i, (held, truncated, *scores) in enumerate(scored.select("held", _TRUNCATED, *self.attributes).iter_rows()):
            if held:
                reason = NO_VALUE if any(map(math.isnan, scores)) else None
                yield i, Scored(dict(zip(self.attributes, scores)), truncated, reason)
            else:
                yield i, Scored(dict.fromkeys(self.attributes, float("nan")), reason=NOT_STORED)
