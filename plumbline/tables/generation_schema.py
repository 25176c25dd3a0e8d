"""The tables of generated texts and of their scores, which generation, scorers and language metrics share."""

from __future__ import annotations

import polars as pl

from plumbline.tables.schema import Schema

NO_INSTRUCTION = "none"
"""Stands in the column `instruction` for a prompt as it is; in metric rows it is null."""

ALL_MODELS = "all models"
"""Stands in the column `model` of metric rows that are over every generative model at once; no id has a space."""

GENERATION_SCHEMA: Schema = {
    "row_key": pl.String,
    # what was asked
    "model": pl.String,
    "dataset": pl.String,
    "subset": pl.String,
    "image_id": pl.String,
    "set_id": pl.String,
    "prompt": pl.String,
    "instruction": pl.String,
    "seed": pl.Int64,
    # what was answered
    "text": pl.String,
    "finish_reason": pl.String,
    "prompt_tokens": pl.Int64,
    "new_tokens": pl.Int64,
    "source": pl.String,
}
"""One row a generation.

`row_key` is `plumbline.lvlm.backend.row_key`: equal keys mean equal questions to the same model, so a row is never
generated twice. `subset` is the record's `split` where a dataset has counterfactual subsets, else `all`. `prompt` is an
id of `plumbline.tables.generation_prompts`, `instruction` one of `none`, `M1` .. `M5`. `finish_reason`: `stop`,
`length` (cut at the most new tokens), `refusal` (the API's own field), `content_filter`. A refused answer is data: its
text may be empty. `source` is the sha256 of the weights, or what the endpoint reports: model and fingerprint.
"""

FINISH_REASONS = ("stop", "length", "refusal", "content_filter")

SCORED_ATTRIBUTES = ("toxicity", "insult", "identity_attack", "flirtation")
"""What scorers score; one that lacks some leaves their rows out."""

SCORE_SCHEMA: Schema = {
    "row_key": pl.String,
    "scorer": pl.String,
    "attribute": pl.String,
    "score": pl.Float64,
    "truncated": pl.Boolean,
    "reason": pl.String,
}
"""One row a generation, scorer and scored attribute; `score` in [0, 1], nan with a `reason` where there is none.

`scorer` is the id of the audit file; its version is in the table's details. `truncated`: the scorer read only the
beginning of the text.
"""
