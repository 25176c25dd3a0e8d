"""What lies in a folder: its table, where the paths in it start, which columns tell of people, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import polars as pl

from plumbline.datasets.folder import TABLE_KINDS, table_rows
from plumbline.datasets.indexes import Row, read_header, table_schema
from plumbline.encoders.folders import CONFIGURATIONS
from plumbline.images.decoding import SUFFIXES

_SUFFIXES = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)

MOST_ROWS = 20_000
"""Rows of a table that are looked at."""

_KNOWN = {
    "gender": ("gender", "sex"),
    "race": ("race", "ethnicity", "origin", "ethnic_group"),
    "age": ("age", "years", "age_years"),
    "age_group": ("age_group", "age_band", "age_range"),
    "occupation": ("occupation", "job", "profession"),
    "split": ("split", "part", "partition"),
}
"""Attribute of an audit -> names of columns that are taken for it."""

_MOST_GROUPS, _FEWEST_ROWS_A_GROUP, _EXAMPLES, _LOOKED_AT = 40, 3, 3, 50


@dataclass(frozen=True)
class Table:
    """A table of labels.

    Attributes
    ----------
    path : Path
    frame : DataFrame
        Its first rows, all of them texts; columns without a name left out.
    """

    path: Path
    frame: pl.DataFrame

    @classmethod
    def read(cls, path: Path) -> Table:
        """Read the first rows of a CSV or Parquet table, as an audit reads them.

        Raises
        ------
        DatasetError
            If it cannot be read.
        """
        if path.suffix == ".parquet":
            names = tuple(table_schema(path, name=path.name).names)
        else:
            names = read_header(path, name=path.name).names
        columns = [name for name in names if names.count(name) == 1]
        rows = (row.values for row in table_rows(path, name=path.name, columns=columns) if isinstance(row, Row))
        return cls(path, pl.DataFrame(list(islice(rows, MOST_ROWS)), schema=dict.fromkeys(columns, pl.String)))

    @property
    def columns(self) -> list[str]:
        """Return the names of its columns."""
        return self.frame.columns

    def path_column(self, folder: Path) -> str | None:
        """Return the column whose values are files below a folder, one of its folders, or the folder of the table."""
        for column in self.columns:
            if any(self._there(column, start) for start in _starts(self, folder)):
                return column
        return None

    def _there(self, column: str, start: Path) -> bool:
        values = [value for value in self.frame[column].head(_LOOKED_AT) if value.strip()]
        found = sum(Path(value).suffix.lower() in _SUFFIXES and (start / value).is_file() for value in values)
        return found > len(values) / 2

    def guessed(self, *, besides: str | None) -> dict[str, str]:
        """Return attribute -> column of those that hold groups of people, by their names and values."""
        rows = self.frame.height
        found: dict[str, str] = {}
        for column in self.columns:
            attribute = attribute_of(column)
            values = self.frame[column].filter(self.frame[column].str.strip_chars() != "")
            groups = values.n_unique()
            few = 2 <= groups <= min(_MOST_GROUPS, max(2, rows // _FEWEST_ROWS_A_GROUP))
            if column != besides and attribute not in found and (few or (attribute == "age" and groups > 1)):
                found[attribute] = column
        return found

    def values(self, column: str) -> list[tuple[str, int]]:
        """Return value -> rows, the most frequent first."""
        counted = self.frame[column].value_counts(sort=True)
        return [(str(value), int(n)) for value, n in counted.iter_rows()]

    def examples(self) -> str:
        """Return the columns with three values of each."""
        return "; ".join(
            f"{column}: {', '.join(self.frame[column].unique(maintain_order=True).head(_EXAMPLES).to_list())}"
            for column in self.columns
        )


def attribute_of(column: str) -> str:
    """Return the attribute that a column is taken for: a known one by its name, else its own name."""
    name = column.strip().lower().replace(" ", "_")
    return next((attribute for attribute, names in _KNOWN.items() if name in names), column)


def _starts(table: Table, folder: Path) -> list[Path]:
    below = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    return list(dict.fromkeys([folder, table.path.parent, *below]))


def paths_start(table: Table, column: str, folder: Path) -> Path:
    """Return where the paths of a column start: the folder of images, one in it, or the folder of the table."""
    return next((start for start in _starts(table, folder) if table._there(column, start)), folder)


def table_of_folder(folder: Path) -> Table | None:
    """Return the table of a folder: of several the one whose rows name images there."""
    tables = [Table.read(path) for path in sorted(folder.iterdir()) if path.suffix in TABLE_KINDS and path.is_file()]
    return next((table for table in tables if table.path_column(folder)), tables[0] if tables else None)


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the folders in it, itself included, that hold a checkpoint of an encoder."""
    folders = [folder, *sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))]
    return [path for path in folders if any((path / name).is_file() for name in CONFIGURATIONS)]


def images_in(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that are named as images are."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _SUFFIXES and path.is_file())
