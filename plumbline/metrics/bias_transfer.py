"""Bias transfer: what mitigations improve, what they worsen, and which of them only move bias elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from plumbline.metrics.mitigation_effects import MITIGATION_EFFECTS_SCHEMA
from plumbline.metrics.transfer_schema import (
    IMPROVED,
    NO_EVIDENCE,
    TRANSFER_SCHEMA,
    UNDEFINED,
    VERDICTS,
    WORSENED,
)
from plumbline.statistics.multiplicity import add_q_values

_CELL = ["model", "dataset", "condition", "method"]


def bias_transfer(frames: Iterable[pl.DataFrame], *, confidence: float = 0.95) -> pl.DataFrame:
    """Judge the effects of all mitigations on all cells.

    Parameters
    ----------
    frames : iterable of DataFrame
        From `mitigation_effects`.
    confidence : float
        A difference counts where q < 1 - confidence.

    Returns
    -------
    DataFrame
        In `TRANSFER_SCHEMA`: the frames one below the other, with `q` within
        `plumbline.statistics.multiplicity.FAMILIES` and `verdict`: `improved` or `worsened` by the sign of the
        difference against `better`, `no evidence`, and `undefined` where there is no difference or no test of it.
    """
    tables = [pl.DataFrame(schema=MITIGATION_EFFECTS_SCHEMA), *frames]
    judged = add_q_values(pl.concat(tables), of="bias_transfer")
    gain = pl.when(better="higher").then(pl.col("value")).otherwise(-pl.col("value"))
    verdict = (
        pl.when(pl.col("q").is_null() | pl.col("value").is_nan().fill_null(True))
        .then(pl.lit(UNDEFINED))
        .when(pl.col("q") >= 1 - confidence)
        .then(pl.lit(NO_EVIDENCE))
        .when(gain > 0)
        .then(pl.lit(IMPROVED))
        .otherwise(pl.lit(WORSENED))
    )
    return judged.with_columns(verdict=verdict).select(list(TRANSFER_SCHEMA)).cast(pl.Schema(TRANSFER_SCHEMA))


def verdict_counts(table: pl.DataFrame) -> pl.DataFrame:
    """Count the verdicts of a table of `bias_transfer`, by mitigation, cell and kind: a column each of `VERDICTS`."""
    counts = [(pl.col("verdict") == verdict).sum().cast(pl.Int64).alias(verdict) for verdict in VERDICTS]
    return table.group_by([*_CELL, "kind"], maintain_order=True).agg(counts)


def transfers(table: pl.DataFrame) -> pl.DataFrame:
    """Return the mitigations that move bias: that improve an axis of a cell, and worsen another axis or a harm rate.

    An axis is one event seen by one attribute. Its readings may disagree, since a falling rate can lower a difference
    and raise a ratio: one and the same axis that is both improved and worsened is not by itself a transfer.

    Parameters
    ----------
    table : DataFrame
        From `bias_transfer`.

    Returns
    -------
    DataFrame
        One row a mitigation and cell: `model, dataset, condition, method`, the numbers `improved_axes`,
        `worsened_axes` and `worsened_harms`, and in `improved` and `worsened` what they are, with the reading that is
        surest of each: `crime crime by race (smoothed max_skew): 0.41 -> 0.12`. Empty where nothing is moved.
    """
    told = table.filter(pl.col("verdict").is_in([IMPROVED, WORSENED]), pl.col("kind").is_in(["axis", "harm"]))
    rows = [
        dict(zip(_CELL, cell)) | facts
        for cell, own in told.group_by(_CELL, maintain_order=True)
        if (facts := _moved(own))
    ]
    counts = dict.fromkeys(("improved_axes", "worsened_axes", "worsened_harms"), pl.Int64)
    texts = dict.fromkeys(("improved", "worsened"), pl.String)
    return pl.DataFrame(rows, schema={**dict.fromkeys(_CELL, pl.String), **counts, **texts}, orient="row")


def _moved(own: pl.DataFrame) -> dict[str, object] | None:
    """Return the facts of a mitigation of one cell, None where it moves nothing."""
    # The surest reading first, of equally sure ones the largest.
    ordered = own.sort("q", pl.col("value").abs(), descending=[False, True], maintain_order=True)
    told: dict[tuple[str, str], dict[tuple[object, ...], str]] = {}
    for row in ordered.to_dicts():
        what = (row["suite"], row["event"], row["attribute"])
        told.setdefault((row["kind"], row["verdict"]), {}).setdefault(what, _fact(row))
    better, worse = told.get(("axis", IMPROVED), {}), told.get(("axis", WORSENED), {})
    harms = told.get(("harm", WORSENED), {})
    if not better or not (harms or worse.keys() - better.keys()):
        return None
    return {
        "improved_axes": len(better),
        "worsened_axes": len(worse),
        "worsened_harms": len(harms),
        "improved": "; ".join(better.values()),
        "worsened": "; ".join([*worse.values(), *harms.values()]),
    }


def _fact(row: Mapping[str, Any]) -> str:
    by = f" by {row['attribute']}" if row["attribute"] else ""
    change = f"{row['value_before']:.3g} -> {row['value_after']:.3g}"
    return f"{row['suite']} {row['event']}{by} ({row['definition']} {row['metric']}): {change}"
