"""From the values of a user's own table to groups: bins of numbers, crossed attributes, and groups too small to show.

What is done to a column is said by the column map. Rows that get no group in an attribute stay in all others, and are
counted by reason (`UNGROUPED_SCHEMA`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from plumbline.catalog.schema import Schema

AGE_BANDS = (0, 3, 10, 20, 30, 40, 50, 60, 70, 120)
"""FairFace's age groups, for ages in years that the audit file gives no bins for."""

UNMAPPED = "\0"
"""What stands for a value that no group is declared for, until rows are counted; no value of a table holds it."""

UNGROUPED_SCHEMA: Schema = {"attribute": pl.String, "code": pl.String, "rows": pl.Int64}
"""Accepted rows without a group in an attribute, by reason (`UNGROUPED`)."""

SMALL_GROUP = "small_group"

UNGROUPED: dict[str, str] = {
    "missing": "the table holds no value",
    "unmapped": "the value is not among those that `map.values` names",
    "not_a_number": "the value is no number",
    "out_of_range": "the number lies in no bin",
    SMALL_GROUP: "the group has fewer images than `map.min_shown`, or would show one that has",
}
"""Why a row has no group."""


WITHOUT_GROUP_SCHEMA: Schema = UNGROUPED_SCHEMA | {"groups": pl.Int64}
"""The same, with how many groups the attribute still has."""


def with_groups_left(ungrouped: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Return `WITHOUT_GROUP_SCHEMA` of `UNGROUPED_SCHEMA` and the accepted rows, which have a column an attribute."""
    left = {name: records[name].drop_nulls().n_unique() for name in ungrouped["attribute"].unique()}
    return ungrouped.with_columns(groups=pl.col("attribute").replace_strict(left, return_dtype=pl.Int64))


def rows_without_group(ungrouped: pl.DataFrame) -> pl.DataFrame:
    """Return `UNGROUPED_SCHEMA` for a reader: `attribute, rows, why`."""
    return ungrouped.select("attribute", "rows", why=pl.col("code").replace(UNGROUPED))


_NUMBER = re.compile(r"\s*[+-]?([0-9]{1,99}[.]?[0-9]{0,99}|[.][0-9]{1,99})([Ee][+-]?[0-9]{1,3})?\s*", re.ASCII)
"""A number as Python, pandas and people write it, of any precision; no `nan`, no `inf`, no commas."""


def bin_names(edges: Sequence[float]) -> list[str]:
    """Return the name of each bin: `18-29` between whole edges 18 and 30, `0.5 to 1.5` between others.

    A bin holds its lower edge and not its upper one, except the last, which holds both.
    """
    if all(float(edge).is_integer() for edge in edges):
        last = len(edges) - 2
        return [f"{int(low)}-{int(high) - (i < last)}" for i, (low, high) in enumerate(pairwise(edges))]
    return [f"{low:g} to {high:g}" for low, high in pairwise(edges)]


def into_bins(values: pl.Series, edges: Sequence[float]) -> tuple[pl.Series, dict[str, int]]:
    """Return the bin of each number, null where there is none, and how many rows have none, by code.

    Parameters
    ----------
    values : Series of n String
    edges : sequence of float
        Ascending, at least two.
    """
    numbers, unreadable = _numbers(values)
    position = np.searchsorted(np.asarray(edges, dtype=np.float64), numbers, side="right") - 1
    position[numbers == edges[-1]] = len(edges) - 2
    inside = ~np.isnan(numbers) & (position >= 0) & (position < len(edges) - 1)
    names = np.array(bin_names(edges), dtype=object)
    binned = pl.Series(values.name, [names[p] if ok else None for p, ok in zip(position, inside)], dtype=pl.String)
    return binned, {"not_a_number": unreadable, "out_of_range": int((~np.isnan(numbers) & ~inside).sum())}


def into_quantiles(values: pl.Series, number: int) -> tuple[pl.Series, dict[str, int]]:
    """Return the quantile of each number as `1 of 4` (the lowest), null where there is none, and the rows without.

    Equal numbers are in one group. The names hold no number of the table: a limit would be somebody's value.

    Parameters
    ----------
    values : Series of n String
    number : int
        Of groups, at least 2.
    """
    numbers, unreadable = _numbers(values)
    known = ~np.isnan(numbers)
    place = np.zeros(len(numbers), dtype=np.int64)
    if known.any():
        limits = np.quantile(numbers[known], np.arange(1, number) / number)
        place[known] = np.searchsorted(limits, numbers[known], side="left")
    named = [f"{p + 1} of {number}" if ok else None for p, ok in zip(place.tolist(), known.tolist())]
    return pl.Series(values.name, named, dtype=pl.String), {"not_a_number": unreadable}


def _numbers(values: pl.Series) -> tuple[np.ndarray, int]:
    """Return the numbers, nan where a value is none, and how many values that are there are none."""
    texts = values.to_list()
    numbers = np.array([float(text) if text and _NUMBER.fullmatch(text) else np.nan for text in texts])
    numbers[np.isinf(numbers)] = np.nan  # such as 1e999
    return numbers, int(np.isnan(numbers).sum()) - values.null_count()


def crossed_name(attributes: Sequence[str]) -> str:
    """Return the record column of crossed attributes: `gender_race` for these two, `disability × gender` for others."""
    return "gender_race" if set(attributes) == {"gender", "race"} else " × ".join(attributes)


def cross(records: pl.DataFrame, attributes: Sequence[str]) -> pl.Series:
    """Join the labels of several attributes: `deaf_woman`; null where one is null. Race stands before gender."""
    name = crossed_name(attributes)
    order = ("race", "gender") if name == "gender_race" else attributes
    return records.select(pl.concat_str(*order, separator="_").alias(name)).to_series()


# --- Groups that are too small to be shown


def without_small_groups(
    records: pl.DataFrame, attributes: Sequence[str], crosses: Mapping[str, Sequence[str]], *, least: int
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Remove the labels of groups of fewer than some images, and what would let them be worked out.

    A group that is left out can be told from a total less the groups that are shown. Where the rows left out of an
    attribute are fewer than `least`, those without any label included, the next smallest group is left out too
    (complementary suppression); of crossed attributes the same holds within each group of each of them, and no small
    group may follow from several totals together.

    Parameters
    ----------
    records : DataFrame
    attributes : sequence of str
        Columns of groups.
    crosses : mapping of str to sequence of str
        Column of a cross -> the columns that it joins.
    least : int
        Images of a group that is shown.

    Returns
    -------
    DataFrame, dict of str to int
        The records, and by attribute how many rows lost their label.
    """
    lost: dict[str, int] = {}
    for name in attributes:
        small = _hidden(records[name].to_list(), [("all",)] * records.height, least)
        records, lost[name] = _emptied(records, name, small)
    for name, parts in crosses.items():
        # Labels that were removed above are removed from the cross.
        records = records.with_columns(cross(records, parts))
        labels = records.select(parts).iter_rows()
        margins = [tuple(f"{part}: {label}" for part, label in zip(parts, row) if label is not None) for row in labels]
        small = _hidden(records[name].to_list(), margins, least)
        records, lost[name] = _emptied(records, name, small)
    return records, lost


def _emptied(records: pl.DataFrame, name: str, hidden: set[str]) -> tuple[pl.DataFrame, int]:
    if not hidden:
        return records, 0
    gone = records[name].is_in(sorted(hidden)).fill_null(False)
    return records.with_columns(pl.when(~gone).then(pl.col(name)).alias(name)), int(gone.sum())


def _hidden(groups: Sequence[str | None], margins: Sequence[tuple[str, ...]], least: int) -> set[str]:
    """Return the groups to leave out, given the group of each row and the totals that the row is counted in."""
    sizes: Counter[str] = Counter(group for group in groups if group is not None)
    members: defaultdict[str, set[str]] = defaultdict(set)
    without_group: Counter[str] = Counter()
    for group, totals in zip(groups, margins):
        for total in totals:
            if group is None:
                without_group[total] += 1
            else:
                members[total].add(group)
    small = {group for group, size in sizes.items() if size < least}
    hidden, changed = set(small), bool(small)
    while changed:
        changed = False
        told = _told(hidden, members, without_group)
        # What is shown beside a larger group that follows may let a small one follow too.
        beside = {group for cells in members.values() if cells & told for group in cells - hidden}
        for total, cells in sorted(members.items()):
            left_out = (cells & hidden) - (told - small)
            rows = without_group[total] + sum(sizes[group] for group in left_out)
            follows = rows < least or left_out & told
            if left_out and follows and (shown := cells - hidden or beside - hidden):
                hidden.add(min(shown, key=lambda group: (sizes[group], group)))
                changed = True
                break
    return hidden


def _told(hidden: set[str], members: Mapping[str, set[str]], without_group: Mapping[str, int]) -> set[str]:
    """Return the groups left out whose sizes follow from the totals and the groups that are shown.

    Parameters
    ----------
    members : mapping of str to set of str
        Total -> the groups that it sums up.
    without_group : mapping of str to int
        Total -> its rows without a group: nobody is told how many.
    """
    unknown = [*sorted(hidden), *sorted(total for total in members if without_group[total])]
    if not unknown:
        return set()
    totals = [[group in members[total] or group == total for group in unknown] for total in sorted(members)]
    _, spread, spanned = np.linalg.svd(np.array(totals, dtype=np.float64), full_matrices=False)
    # What follows lies in what the totals span: its projection is all of it.
    within = (spanned[spread > 1e-9] ** 2).sum(axis=0) > 1 - 1e-9
    return {name for name, known in zip(unknown, within.tolist()) if known} & hidden
