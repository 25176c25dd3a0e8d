"""The schemas that several parts share: the metric row (measured, estimate, lineage) and the quarantine row."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

Schema = dict[str, type[pl.DataType]]

Row = dict[str, object]
"""Some columns of a row of a table, by name."""

QUARANTINE_SCHEMA: Schema = {
    "dataset": pl.String,
    "path": pl.String,
    "line": pl.Int64,
    "stage": pl.String,
    "code": pl.String,
    "message": pl.String,
    "found": pl.String,
    "expected": pl.String,
}
"""One row an input that was listed and refused. `path` is the index file where the line names no image."""

ESTIMATE: Schema = {
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "n": pl.Int64,
    "reason": pl.String,
}
"""What a row says of its number, in every table of numbers."""

ESTIMATE_COLUMNS: dict[str, pa.DataType] = {
    # what was measured
    "metric": pa.string(),
    "definition": pa.string(),
    "model": pa.string(),
    "dataset": pa.string(),
    "suite": pa.string(),
    "attribute": pa.string(),
    "group": pa.string(),
    "reference_group": pa.string(),
    "event": pa.string(),
    "probe": pa.string(),
    "k": pa.int64(),
    "occupation": pa.string(),
    "condition": pa.string(),
    "instruction": pa.string(),
    "prompt": pa.string(),
    "seed": pa.int64(),
    "scorer": pa.string(),
    "statistic": pa.string(),
    # the estimate
    "value": pa.float64(),
    "ci_low": pa.float64(),
    "ci_high": pa.float64(),
    "p": pa.float64(),
    "q": pa.float64(),
    "n": pa.int64(),
    "reason": pa.string(),
}

LINEAGE_COLUMNS: dict[str, pa.DataType] = {
    "cell_id": pa.string(),
    "audit_id": pa.string(),
    "dataset_digest": pa.string(),
    "checkpoint_sha256": pa.string(),
    "suite_hash": pa.string(),
    "labeller_sha256": pa.string(),
    "scorer_id": pa.string(),
}

METRIC_SCHEMA = pa.schema(
    [pa.field(name, kind) for name, kind in {**ESTIMATE_COLUMNS, **LINEAGE_COLUMNS}.items()]
)

REQUIRED = ("metric", "definition", "model", "dataset", "condition", "statistic")

_POLARS = {pa.string(): pl.String, pa.int64(): pl.Int64, pa.float64(): pl.Float64}


def polars_schema() -> Schema:
    """Return the metric schema as Polars column types, in order."""
    return {field.name: _POLARS[field.type] for field in METRIC_SCHEMA}


def metric_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Turn rows (dicts with any subset of the schema's columns) into a frame with every column, in order.

    Raises
    ------
    ValueError
        If a row has a column that the schema lacks, or lacks one of `REQUIRED`.
    """
    schema = polars_schema()
    for row in rows:
        unknown = set(row) - set(schema)
        missing = [name for name in REQUIRED if row.get(name) is None]
        if unknown or missing:
            raise ValueError(
                f"metric row {row.get('metric')!r}: unknown columns {sorted(unknown)}, missing {missing}"
            )
    return pl.DataFrame(rows, schema=schema, orient="row") if rows else pl.DataFrame(schema=schema)
