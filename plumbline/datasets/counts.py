"""Printed counts as a dataset: a table with a row a group and a column a candidate, and no image."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from plumbline.datasets.folder import ColumnMap, MappedFolder, require_mapped, table_rows
from plumbline.datasets.indexes import Row, dataset_root, index_file
from plumbline.datasets.records import Entry, Refusal, printable
from plumbline.errors import DatasetError, examples

_WHOLE = re.compile(r"([0-9]{1,12})(\.0+)?", re.ASCII)
_MOST_IMAGES = 20_000_000


class CountedRow(NamedTuple):
    """One group of a table of counts: its line, the values that name the group, and the images by candidate."""

    line: int
    group: Mapping[str, str]
    counts: Mapping[str, int]


def counted_path(line: int, candidate: str, number: int) -> str:
    """Return what stands for the path of an image that was only counted."""
    return f"{line}/{candidate}/{number}"


def counted_as(path: str) -> str:
    """Return the candidate that the image of such a path was counted under."""
    return path.partition("/")[2].rpartition("/")[0]


def candidate_columns(column_map: ColumnMap, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table of counts that hold counts: all that the map does not name."""
    return tuple(column for column in columns if column not in column_map.named.values())


def read_counts(path: Path, column_map: ColumnMap) -> list[CountedRow]:
    """Read a table of counts, group x candidate.

    Raises
    ------
    DatasetError
        If a mapped column is not there, a row cannot be read, a count is no whole number from 0, a group stands in two
        rows, a row does not add up to its total, or there is nothing to count: with file, row, column and how many
        there are of the kind. One wrong cell refuses the table: nobody could say which images it was about.
    """
    name = column_map.index
    columns = require_mapped(column_map, path)
    candidates, groups = candidate_columns(column_map, columns), list(column_map.columns.values())
    if not candidates:
        raise DatasetError(
            "the table has no column of counts", where=name, found=", ".join(columns), expected="one a candidate"
        )
    if twice := sorted({column for column in columns if columns.count(column) > 1}):
        raise DatasetError(
            "a column of the table of counts stands there twice",
            where=name,
            found=", ".join(twice),
            expected="each once",
        )
    total = [column_map.total] if column_map.total else []
    rows = list(table_rows(path, name=name, columns=[*groups, *total, *candidates]))
    refused = [row for row in rows if isinstance(row, Refusal)]
    if refused:
        raise DatasetError(
            f"{len(refused)} of {len(rows)} rows of the table of counts cannot be read: {refused[0].message}",
            where=f"{name}, line {refused[0].line}",
            found=examples(f"line {row.line}: {row.found}" for row in refused),
            expected=refused[0].expected,
        )
    wrong: list[str] = []
    counted: list[CountedRow] = []
    contradicting: list[tuple[CountedRow, int]] = []
    again: list[tuple[CountedRow, int]] = []
    first_line: dict[tuple[str, ...], int] = {}
    for row in rows:
        if not isinstance(row, Row):
            continue
        numbers = {column: _WHOLE.fullmatch(row.values[column].strip()) for column in (*candidates, *total)}
        bad = [column for column, number in numbers.items() if number is None]
        wrong += [f"line {row.line}, column `{column}`: {row.values[column]!r}" for column in bad]
        if bad:
            continue
        of = {column: int(number[1]) for column, number in numbers.items() if number is not None}
        group = {column: row.values[column] for column in groups}
        counted.append(CountedRow(row.line, group, {column: of[column] for column in candidates}))
        if total and sum(counted[-1].counts.values()) != of[total[0]]:
            contradicting.append((counted[-1], of[total[0]]))
        if (earlier := first_line.setdefault(tuple(group.values()), row.line)) != row.line:
            again.append((counted[-1], earlier))
    if wrong:
        raise DatasetError(
            f"{len(wrong)} of {len(rows) * len(numbers)} counts are no numbers of images",
            where=name,
            found=printable(examples(wrong)),
            expected="whole numbers from 0, without separators",
            hint="write the counts themselves: shares, percentages and blanks do not say how many images there were",
        )
    if contradicting:
        one, printed_total = contradicting[0]
        sums = [
            f"line {row.line}: {' + '.join(map(str, row.counts.values()))} = {sum(row.counts.values())}, not {printed}"
            for row, printed in contradicting
        ]
        raise DatasetError(
            f"the counts of {len(contradicting)} of {len(rows)} rows do not add up to their total",
            where=f"{name}, line {one.line}, column `{total[0]}`",
            found=examples(sums),
            expected=printed_total if len(sums) == 1 else "sums that are the totals",
            hint="correct the table from its source; a row says nothing while it contradicts itself",
        )
    if again:
        one, _ = again[0]
        raise DatasetError(
            f"{len(again)} of {len(rows)} rows of the table of counts are of a group that an earlier row is of",
            where=f"{name}, line {one.line}, column `{', '.join(groups)}`",
            found=printable(
                examples(
                    f"line {row.line}: {', '.join(row.group.values())}, as in line {first}" for row, first in again
                )
            ),
            expected="one row a group",
        )
    images = sum(sum(row.counts.values()) for row in counted)
    if not 0 < images <= _MOST_IMAGES:
        raise DatasetError(
            "the table counts no image" if not images else "the table counts too many images",
            where=name,
            found=f"{images:,} images in {len(counted)} rows",
            expected=f"1 to {_MOST_IMAGES:,}",
        )
    return counted


class CountTable(MappedFolder):
    """Reader of printed counts: every image that was counted is an entry with the labels of its row, and no file.

    What stands for a path is its line, the candidate that it was counted under, and its number: `2/thief/17`. Which
    image is which is not known, so that only the encoder whose counts they are can be audited on them.
    """

    has_images = False
    smallest_shown = 1
    keeps_unknown = False

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry an image.

        Raises
        ------
        DatasetError
            As `read_counts`, or if a column holds no word that it may hold.
        """
        folder = dataset_root(root)
        self.index_files(folder)
        path, name = index_file(folder, self._map.index), self._map.index
        rows = read_counts(path, self._map)
        self._require_known_words([row.group for row in rows])
        return [
            Entry(counted_path(row.line, candidate, number), None, row.group, name, row.line)
            for row in rows
            for candidate, count in row.counts.items()
            for number in range(1, count + 1)
        ]
