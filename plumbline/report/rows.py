"""Picking rows of the metric table by what they measure."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from plumbline.catalog.schema import polars_schema
from plumbline.errors import MetricError

Row = dict[str, Any]


def checked(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table after checking that it has the columns of the metric schema.

    Raises
    ------
    MetricError
        If a column is missing.
    """
    missing = [name for name in polars_schema() if name not in table.columns]
    if missing:
        raise MetricError(
            "the metric table lacks columns of the schema",
            found=", ".join(table.columns) or "no columns",
            expected="the columns of plumbline.catalog.schema",
            hint=f"build it with metric_frame; missing: {', '.join(missing)}",
        )
    return table


def where(table: pl.DataFrame, **conditions: str | tuple[str, ...] | None) -> pl.DataFrame:
    """Return the rows in which every named column equals its value (a tuple: is one of; None: is null)."""
    metric = conditions.get("metric")
    if table.height > _LARGE and isinstance(metric, str):
        table = _of_metric(table, metric)
    tests = []
    for column, wanted in conditions.items():
        if wanted is None:
            tests.append(pl.col(column).is_null())
        elif isinstance(wanted, tuple):
            tests.append(pl.col(column).is_in(list(wanted)))
        else:
            tests.append(pl.col(column) == wanted)
    return table.filter(*tests)


_LARGE, _MOST_TABLES = 5_000, 4
_by_metric: dict[int, tuple[pl.DataFrame, dict[tuple[Any, ...], pl.DataFrame]]] = {}


def _of_metric(table: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return the rows of one metric of a large table, which is cut up once: a report asks it a thousand times."""
    kept = _by_metric.get(id(table))
    if kept is None:
        while len(_by_metric) >= _MOST_TABLES:
            _by_metric.pop(next(iter(_by_metric), 0), None)
        # The table is kept beside its parts: its id is its own as long as it is there.
        kept = table, table.partition_by("metric", as_dict=True, maintain_order=True)
        _by_metric[id(table)] = kept
    return kept[1].get((metric,), table.clear())


def first(table: pl.DataFrame, **conditions: str | tuple[str, ...] | None) -> Row | None:
    """Return the first matching row as a dict, or None."""
    rows = where(table, **conditions).head(1).to_dicts()
    return rows[0] if rows else None


def by(table: pl.DataFrame, *columns: str) -> dict[tuple[Any, ...], Row]:
    """Return the rows as dicts, keyed by the values of `columns`."""
    return {tuple(row[name] for name in columns): row for row in table.to_dicts()}


def in_order(present: pl.Series, order: tuple[str, ...]) -> list[str]:
    """Return the distinct non-null values of a column: first those of `order`, then the rest by name."""
    names = set(present.drop_nulls().unique().to_list())
    return [name for name in order if name in names] + sorted(names - set(order))


def largest_first(rows: pl.DataFrame, models: tuple[str, ...]) -> list[str]:
    """Return the models of some rows, the one with the value furthest from 0 first; equal ones as in `models`."""
    largest = {
        model: max((abs(value) for value in where(rows, model=model)["value"] if defined(value)), default=0.0)
        for model in in_order(rows["model"], models)
    }
    return sorted(largest, key=lambda model: -largest[model])


def defined(value: float | None) -> bool:
    """Return whether a value is a finite number."""
    return value is not None and math.isfinite(value)


def or_nan(value: float | None) -> float:
    """Return a value as a float, NaN for none."""
    return math.nan if value is None else float(value)


def reason_of(*rows: Row) -> str:
    """Return why a number is undefined: the first reason that one of some rows gives."""
    return next((str(row["reason"]) for row in rows if row["reason"]), "no reason was recorded")


def significance_level(row: Row) -> float | None:
    """Return the q-value of a row, its p-value where it has no q, None where it has neither."""
    for name in ("q", "p"):
        if defined(row[name]):
            return float(row[name])
    return None
