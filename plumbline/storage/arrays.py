"""Tables and arrays as bytes: Parquet and safetensors, the same bytes for the same content."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray


def table_bytes(frame: pl.DataFrame, *, row_group_rows: int | None = None) -> bytes:
    """Return a frame as Parquet (zstd), deterministic for equal frames.

    Parameters
    ----------
    row_group_rows : int, optional
        Rows that are read at once; fewer for tables of texts, of which several groups are read ahead.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=True, row_group_size=row_group_rows)
    return buffer.getvalue()


def table_from_bytes(data: bytes) -> pl.DataFrame:
    """Return the frame that `table_bytes` wrote."""
    return pl.read_parquet(io.BytesIO(data))


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """Return a frame as CSV in which no text cell is a formula to a spreadsheet, see `defused`."""
    return frame.with_columns(defused(pl.col(pl.String))).write_csv().encode()


def defused(cells: pl.Expr) -> pl.Expr:
    """Return cells of text that no spreadsheet runs: one that begins as a formula does gets an apostrophe in front.

    Names, labels and generated texts come from outside. A formula begins with `=`, `+`, `-`, `@`, a tab or a carriage
    return.
    """
    return cells.str.replace(r"^([=+\-@\t\r])", "'$1")


def arrays_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return named arrays as safetensors, in name order."""
    from safetensors.numpy import save

    return save({name: np.asarray(arrays[name], order="C") for name in sorted(arrays)})


def arrays_from_bytes(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays that `arrays_bytes` wrote."""
    from safetensors.numpy import load

    return dict(load(data))
