"""Predictions that were made elsewhere: the candidate that each image was assigned to, read from tables.

A table of counts (the reader `counts`) has a column a candidate, all of one suite. Any other table has a row an image,
and a column a suite, named as the suite, with the candidate that matched best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.suites import Suite
from plumbline.checkpoints.addresses import Address
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles, FolderContents
from plumbline.datasets.counts import candidate_columns, counted_as
from plumbline.datasets.folder import TABLE_KINDS, ColumnMap, table_rows
from plumbline.datasets.indexes import Row, read_header, table_schema
from plumbline.datasets.records import Refusal, printable
from plumbline.digests import digest_file, digest_json
from plumbline.encoders.encoder import Crop, EncoderIdentity
from plumbline.errors import CheckpointError, EncodingError, examples


def stored_tables(address: Address, encoder: str) -> FolderContents:
    """Return the tables of an address `stored:PATH`: the file, or every CSV and Parquet file of the folder.

    Raises
    ------
    CheckpointError
        If there is none.
    """
    path = address.folder_in(Path())
    listed = sorted(path.iterdir()) if path.is_dir() else [path]
    tables = tuple(each for each in listed if each.suffix in TABLE_KINDS and each.is_file())
    if not tables:
        raise CheckpointError(
            f"the predictions of encoder `{encoder}` are not on this disk",
            where=path,
            found="no table",
            expected=f"a {' or '.join(TABLE_KINDS)} file, or a folder of them",
            hint="correct the path in the audit file",
        )
    return FolderContents(tables, {each.name: each for each in tables})


class StoredPredictions:
    """The tables as an encoder that has answered all it will: an identity by content, and nothing to run."""

    family = "stored"
    parameters = 0
    device = "none"
    crop: Crop | None = None

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        self.weights_sha256 = files.weights_sha256
        self.identity = EncoderIdentity(files.digest, digest_json("stored"), "stored predictions", "none", "none")


@dataclass(frozen=True)
class PredictionTable:
    """A table of what was chosen for the images of one dataset.

    Attributes
    ----------
    path : Path
    dataset : str
        Id in the audit file, for messages.
    names : mapping of str to str
        What the table calls a candidate -> the candidate, its prompt, a category of the suite, or a word by which
        several people are described (`woman`, `east asian`).
    image : str
        Column with the image's path or sha256, where a row is an image.
    counts : ColumnMap or None
        The map of the dataset, where the table is one of counts.
    """

    path: Path
    dataset: str
    names: Mapping[str, str]
    image: str
    counts: ColumnMap | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that name what was chosen: candidates of counts, suites of rows."""
        name = self.path.name
        csv = self.path.suffix == ".csv"
        columns = read_header(self.path, name=name).names if csv else tuple(table_schema(self.path, name=name).names)
        return candidate_columns(self.counts, columns) if self.counts else columns

    def answers(self, suite: Suite) -> bool:
        """Return whether the table holds predictions of a suite of outcomes."""
        if self.counts is None:
            return suite.id in self.columns
        return all(_meant(suite, self.names, column) for column in self.columns)

    def require(self, suites: Iterable[Suite]) -> None:
        """Refuse suites that the table has no predictions of.

        Raises
        ------
        EncodingError
            With the columns that no candidate is named by, or the column that is absent.
        """
        for suite in suites:
            if self.answers(suite):
                continue
            if self.counts is None:
                raise EncodingError(
                    f"the table has no predictions of the suite `{suite.id}`",
                    where=self.path,
                    found=f"columns {', '.join(self.columns)}",
                    expected=f"a column `{suite.id}` with the candidate that matched best",
                )
            unknown = [column for column in self.columns if not _meant(suite, self.names, column)]
            raise EncodingError(
                f"{len(unknown)} of {len(self.columns)} columns of counts are of no candidate of `{suite.id}`",
                where=self.path,
                found=printable(", ".join(unknown)),
                expected=_known(suite),
                hint="say under `predictions.names` of the encoder which candidate, category or group a column is; a "
                "column of totals is `map.total` of the dataset",
            )

    def require_images(self) -> None:
        """Refuse a table of rows without the column that says which image a row is: EncodingError."""
        if self.counts is None and self.image not in self.columns:
            raise EncodingError(
                "the table of predictions does not say which image a row is",
                where=self.path,
                found=f"columns {', '.join(self.columns)}",
                expected=f"a column `{self.image}`",
                hint="name it under `predictions.image` of the encoder",
            )

    def chosen(self, suites: Sequence[Suite], records: pl.DataFrame) -> tuple[dict[str, NDArray[np.float32]], int]:
        """Return the candidates that each record was assigned to, by suite, and how many rows are of no record.

        Parameters
        ----------
        records : DataFrame
            `path` and `image_id` of n accepted images.

        Returns
        -------
        (dict of str to (n, m) float32, int)
            1 for the candidate that was chosen, 0 for the others; 1 for each of several where the table says no more
            than that it is one of them. Rows of images that were not accepted are counted, and left aside.

        Raises
        ------
        EncodingError
            If a suite is not in the table, a row cannot be read, an image stands in two rows or in none, or a value
            is no candidate: with file, line, column, and how many there are of the kind.
        """
        self.require(suites)
        if self.counts is not None:
            counted = [counted_as(path) for path in records["path"]]
            return {suite.id: self._marked(suite, counted, lambda i: "") for suite in suites}, 0
        rows = self._rows([suite.id for suite in suites])
        positions, again = find_rows(records, [row.values[self.image] for row in rows])
        if again:
            second = again[0][2]
            raise EncodingError(
                f"{len(again)} rows are of an image that another row is of",
                where=f"{self.path}, line {rows[second].line}, column `{self.image}`",
                found=examples(
                    f"{printable(image)} in line {rows[second].line}, as in line {rows[first].line}"
                    for image, first, second in again
                ),
                expected="one row an image",
            )
        if absent := [path for path, row in zip(records["path"], positions) if row < 0]:
            raise EncodingError(
                f"{len(absent)} of {records.height} images of `{self.dataset}` have no prediction",
                where=f"{self.path}, column `{self.image}`",
                found=f"{len(rows)} rows; no row of {examples(absent)}",
                expected="a row for every accepted image, by its path or its sha256",
                hint="add the rows, or take the images out of the dataset's table",
            )
        kept = [rows[row] for row in positions]
        chosen = {
            suite.id: self._marked(
                suite, [row.values[suite.id] for row in kept], lambda i: f", line {kept[i].line}, column "
            )
            for suite in suites
        }
        return chosen, len(rows) - len({row.line for row in kept})

    def _rows(self, suites: Sequence[str]) -> list[Row]:
        self.require_images()
        rows = list(table_rows(self.path, name=self.path.name, columns=[self.image, *suites]))
        if refused := [row for row in rows if isinstance(row, Refusal)]:
            raise EncodingError(
                f"{len(refused)} rows of the table of predictions cannot be read: {refused[0].message}",
                where=f"{self.path}, line {refused[0].line}",
                found=examples(f"line {row.line}: {row.found}" for row in refused),
                expected=refused[0].expected,
            )
        return [row for row in rows if isinstance(row, Row)]

    def _marked(self, suite: Suite, values: Sequence[str], where: Callable[[int], str]) -> NDArray[np.float32]:
        meant = {value: _meant(suite, self.names, value) for value in dict.fromkeys(values)}
        wrong = [i for i, value in enumerate(values) if not meant[value]]
        if wrong:
            raise EncodingError(
                f"{len(wrong)} of {len(values)} predictions are no candidate of `{suite.id}`",
                where=f"{self.path}{where(wrong[0])}`{suite.id}`",
                found=printable(examples(repr(values[i]) for i in wrong)),
                expected=_known(suite),
                hint="say under `predictions.names` of the encoder which candidate, category or group it is",
            )
        rows = np.zeros((len(meant), len(suite.candidates)), dtype=np.float32)
        for row, positions in enumerate(meant.values()):
            rows[row, positions] = 1
        numbers = {value: row for row, value in enumerate(meant)}
        return rows[[numbers[value] for value in values]]


def table_of_dataset(
    path: Path,
    dataset: str,
    model: str,
    *,
    columns: ColumnMap | None,
    reader: str,
    root: Path,
    names: Mapping[str, str],
    image: str | None,
) -> PredictionTable:
    """Return the table that holds what an encoder chose for the images of a dataset.

    Parameters
    ----------
    path : Path
        Of the address `stored:PATH`: a table, or a folder of them.
    columns : ColumnMap or None
        The dataset's `map`.
    reader, root : str, Path
        The dataset's own.
    names, image : mapping, str
        `predictions` of the encoder.

    Raises
    ------
    EncodingError
        If the folder has none for this dataset, or its counts are those of another table.
    """
    if path.is_dir():
        known = [dataset + kind for kind in TABLE_KINDS]
        if columns is not None and reader != "folder":
            known.insert(0, columns.index.rpartition("/")[2])
        tables = [path / name for name in known if (path / name).is_file()]
        if not tables:
            raise EncodingError(
                f"`{model}` has no predictions of the dataset `{dataset}`",
                where=path,
                found=", ".join(sorted(each.name for each in path.iterdir())) or "an empty folder",
                expected=" or ".join(known),
            )
        path = tables[0]
    counts = columns if reader == "counts" else None
    if counts is not None:
        require_same_table(path, root / counts.index)
    by_row = image or (columns.path if columns is not None else None) or "path"
    return PredictionTable(path, dataset, dict(names), by_row, counts)


def find_rows(records: pl.DataFrame, names: Sequence[str]) -> tuple[NDArray[np.int64], list[tuple[str, int, int]]]:
    """Find the row of each image in what was computed elsewhere, by what it calls its rows.

    A row is of an image whose path below the dataset, or whose sha256, it names. Else of one whose path, with its
    suffix or without, is how the name ends (`/data/faces/a.jpg` is `a.jpg`) or ends with the name (the key `000012` of
    a webdataset is `00000/000012.jpg`), unless two images are called so, or it names another one exactly.

    Parameters
    ----------
    records : DataFrame
        `path` and `image_id` of n accepted images.
    names : sequence of str
        Of the rows.

    Returns
    -------
    (n,) int64
        Row of each image; -1 where there is none.
    list of (str, int, int)
        Images that have several rows, with the first two.
    """
    exact: dict[str, list[int]] = {}
    ending: dict[str, list[int]] = {}
    wanted = {called for path in records["path"] for called in _called(path)}
    longest = max(map(len, wanted), default=0)
    for i, name in enumerate(names):
        exact.setdefault(name, []).append(i)
        whole = name.replace("\\", "/")
        # Of a name that is longer than any path only the parts at its end may be one.
        tail = whole if len(whole) <= longest else whole[-longest - 1 :].partition("/")[2]
        for end in _ends(tail):
            if end in wanted:
                ending.setdefault(end, []).append(i)
    row_of = np.full(records.height, -1, dtype=np.int64)
    again: dict[str, tuple[str, int, int]] = {}
    named, loosely = set[int](), dict[int, set[str]]()
    for n, (path, image) in enumerate(records.select("path", "image_id").rows()):
        rows = exact.get(path) or exact.get(image)
        named.update(rows or ())
        if not rows:
            called = _called(path)
            rows = next((ending[each] for each in called if each in ending), None) or next(
                (exact[end] for each in called for end in _ends(each) if end in exact), []
            )
            for row in rows[:1]:
                loosely.setdefault(row, set()).add(path)
        if rows:
            row_of[n] = rows[0]
        if len(rows) > 1:
            again[path] = (path, rows[0], rows[1])
    of_another = {path for row, paths in loosely.items() if len(paths) > 1 or row in named for path in paths}
    row_of[records["path"].is_in(list(of_another)).to_numpy()] = -1
    return row_of, [*again.values()]


def _called(path: str) -> tuple[str, str]:
    """Return a path, and the path without its suffix."""
    return path, path.rpartition(".")[0] if "." in path.rpartition("/")[2] else path


def _ends(name: str) -> Iterator[str]:
    """Give what a path ends with, from itself to its last part."""
    parts = name.split("/")
    return ("/".join(parts[i:]) for i in range(len(parts)))


def _meant(suite: Suite, names: Mapping[str, str], value: str) -> list[int]:
    """Return the positions of the candidates that a value may be: the one with this id or prompt.

    Through `names` also those of a category, or the descriptions of people that have a word: all women, all who are
    East Asian. Which of them it was is not known then.
    """
    meant = names.get(value, value)
    exact = [i for i, candidate in enumerate(suite.candidates) if meant in (candidate.id, candidate.text)]
    if exact or value not in names:
        return exact[:1]
    return [
        i
        for i, candidate in enumerate(suite.candidates)
        if meant == candidate.category
        or (candidate.category == "demographic" and meant.lower() in candidate.id.lower().rsplit(" ", 1))
    ]


def _known(suite: Suite) -> str:
    words = ", ".join(candidate.id for candidate in suite.candidates)
    categories = ", ".join(dict.fromkeys(candidate.category for candidate in suite.candidates))
    return f"{words}; or, under `predictions.names`, a category: {categories}"


def require_same_table(table: Path, index: Path) -> None:
    """Refuse counts of another table than the dataset was read from: counts do not say which image is which.

    Raises
    ------
    EncodingError
        If the two files differ.
    """
    if not index.is_file() or digest_file(table) != digest_file(index):
        raise EncodingError(
            "these counts are not those that the dataset was read from",
            where=table,
            found="another table",
            expected=f"the table at {index}: counts do not say which image is which",
            hint="give each table of counts a dataset of its own",
        )
