"""The tables of a diff: one row a metric, and one row an image whose answer flipped."""

from __future__ import annotations

import polars as pl

from plumbline.tables.schema import ESTIMATE_COLUMNS, Schema, polars_schema

_ESTIMATES = ("value", "ci_low", "ci_high", "p", "q", "n", "reason")
KEYS = tuple(name for name in ESTIMATE_COLUMNS if name not in ("model", *_ESTIMATES))
"""Columns of the metric table that say what a number is of, but for the model."""

DIFF_SCHEMA: Schema = {
    "model_old": pl.String,
    "model_new": pl.String,
    **{name: kind for name, kind in polars_schema().items() if name in KEYS},
    "value_old": pl.Float64,
    "value_new": pl.Float64,
    # the difference new - old
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "n_old": pl.Int64,
    "n_new": pl.Int64,
    "worse": pl.Float64,
    "compared": pl.String,
    "reason": pl.String,
}
"""One row a number of either side; `worse` is how far it moved away from what is fair, null where that is not said."""

PAIRED, INDEPENDENT, ONE_SIDE = "paired", "as if independent", "one side only"
OTHER_PROMPTS = "other prompts"
"""Values of `compared`: by the answers to the same images or sets; from the two intervals alone; not at all, since one
side lacks it, or since its prompts are others than before: then old and new stand beside each other, no more."""

FLIP_SCHEMA: Schema = {
    "dataset": pl.String,
    "model_old": pl.String,
    "model_new": pl.String,
    "suite": pl.String,
    "image_id": pl.String,
    "path": pl.String,
    "text_old": pl.String,
    "text_new": pl.String,
    "category_old": pl.String,
    "category_new": pl.String,
    "margin": pl.Float64,
}
"""One row an image and suite whose top-1 is another one now; `margin`: by how much the new one beats the old one."""
