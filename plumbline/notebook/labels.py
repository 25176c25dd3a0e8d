"""What a caller knows of the images, in whatever table it is in, as the records that metrics read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from plumbline.datasets.records import EXTENDED_SCHEMA, LABEL_COLUMNS
from plumbline.errors import DatasetError

_AUTOMATIC = ("auto_gender", "auto_gender_probability", "auto_gender_margin", "composite")
_LONGEST = 8


def records_of(labels: Any, image_ids: Sequence[str], *, dataset: str, attributes: Sequence[str] = ()) -> pl.DataFrame:
    """Return the records of n images in `EXTENDED_SCHEMA` and the caller's own attributes; what is not known is null.

    Parameters
    ----------
    labels : table or None
        A polars or pandas frame, a mapping of column to values, or a sequence of mappings; n rows in the order of the
        images. Columns are those of records, `gender`, `race`, `age_group` and so on, and `attributes`; others are not
        read.
    image_ids : sequence of str
        Stand where `labels` has no column `image_id`.
    attributes : sequence of str
        Columns of groups of the caller's own, such as `department`.

    Raises
    ------
    DatasetError
        If it is no table, has other rows than there are images, or no column that says anything of a person.
    """
    n = len(image_ids)
    table = pl.DataFrame({"image_id": list(image_ids)}) if labels is None else as_table(labels)
    if table.height != n:
        raise DatasetError(
            "labels and images must be as many, in one order",
            where="labels",
            found=f"{table.height} rows of labels, {n} images",
            expected=f"{n} rows",
        )
    if lacking := [name for name in attributes if name not in table.columns]:
        raise DatasetError(
            "the labels have no such column", where="attributes", found=lacking[0], expected=", ".join(table.columns)
        )
    known = [name for name in (*LABEL_COLUMNS, *_AUTOMATIC, *attributes) if name in table.columns]
    if labels is not None and not known:
        raise DatasetError(
            "no column of the labels is one that people are compared by",
            where="labels",
            found=", ".join(table.columns[:_LONGEST]) or "no column",
            expected=f"one of {', '.join(LABEL_COLUMNS)}",
            hint="rename your columns, such as labels.rename({'sex': 'gender'}), or name them with `attributes`",
        )
    schema = EXTENDED_SCHEMA | {name: pl.String for name in attributes if name not in EXTENDED_SCHEMA}
    given = {name: _texts(table[name], kind) for name, kind in schema.items() if name in table.columns}
    ids = pl.Series("image_id", list(image_ids), dtype=pl.String)
    columns = {"image_id": ids, "path": ids.alias("path"), "dataset": pl.repeat(dataset, n, eager=True)} | given
    return pl.DataFrame(
        [columns.get(name, pl.repeat(None, n, dtype=kind, eager=True)).alias(name) for name, kind in schema.items()]
    )


def as_table(labels: Any) -> pl.DataFrame:
    """Return a table as a polars frame; raises DatasetError where it is none."""
    if isinstance(labels, pl.DataFrame | pl.LazyFrame):
        return labels.lazy().collect()
    try:
        if type(labels).__module__.partition(".")[0] == "pandas":
            return pl.from_pandas(labels.to_frame() if labels.ndim == 1 else labels)
        if isinstance(labels, Mapping):
            return pl.DataFrame({str(name): _listed(values) for name, values in labels.items()}, strict=False)
        return pl.DataFrame(labels, strict=False, infer_schema_length=None)
    except (TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        raise DatasetError(
            "labels must be a table",
            where="labels",
            found=f"{type(labels).__name__}: {error}",
            expected="a polars or pandas frame, a mapping of column to values, or a sequence of mappings",
        ) from error


def _listed(values: Any) -> Any:
    return values if isinstance(values, pl.Series) else list(values)


def _texts(column: pl.Series, kind: type[pl.DataType]) -> pl.Series:
    """Return a column as the records have it: labels are texts, whole numbers among them without a decimal point."""
    if kind == pl.String and column.dtype.is_float():
        filled = column.fill_nan(None)
        whole = filled.drop_nulls().is_finite().all() and (filled.drop_nulls() % 1 == 0).all()
        column = filled.cast(pl.Int64) if whole else filled
    cast = (
        column.cast(kind, strict=False) if column.dtype != pl.Object else pl.Series(column.name, column.to_list(), kind)
    )
    return cast.replace("", None) if kind == pl.String else cast
