"""The table of what a mitigation changes: one row a paired effect, with its verdict."""

from __future__ import annotations

import polars as pl

from plumbline.tables.schema import Schema

TRANSFER_SCHEMA: Schema = {
    # what was compared
    "model": pl.String,
    "dataset": pl.String,
    "condition": pl.String,
    "method": pl.String,
    "kind": pl.String,
    "suite": pl.String,
    "attribute": pl.String,
    "event": pl.String,
    "metric": pl.String,
    "definition": pl.String,
    # the difference after - before, on the same images
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "n": pl.Int64,
    "reason": pl.String,
    "value_after": pl.Float64,
    "value_before": pl.Float64,
    "better": pl.String,
    "verdict": pl.String,
}
"""`condition` is the mitigation's id in the audit file, `method` what it is; `attribute` is null for all images.

`kind` is `axis` (a disparity of an outcome over the groups of an attribute), `harm` (a rate of a harmful outcome over
all images), `trident` (rates of the Trident probes) or `cost` (accuracy and retrieval). `better` is `lower` or
`higher`; `verdict` one of `VERDICTS`.
"""

IMPROVED, WORSENED, NO_EVIDENCE, UNDEFINED = "improved", "worsened", "no evidence", "undefined"
VERDICTS = (IMPROVED, WORSENED, NO_EVIDENCE, UNDEFINED)
"""`no evidence`: chance alone may explain the difference (q at or above 1 - confidence); never "no difference"."""
