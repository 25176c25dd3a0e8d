"""The schemas that several parts share: the metric row (measured, estimate, lineage) and the quarantine row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import polars as pl

from plumbline.digests import digest_json
from plumbline.reasons import encode, in_words, joined

Schema = dict[str, type[pl.DataType]]

Row = dict[str, object]
"""Some columns of a row of a table, by name."""

MOST_DRAWS = 1_000_000
"""Of a bootstrap or test: all draws of a statistic are held at once, and a p cannot be smaller than one in these."""

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
"""One row per input that was listed and refused. `path` is the index file where the line names no image."""

ESTIMATE: Schema = {
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "n": pl.Int64,
    "reason": pl.String,
}
"""The columns of an estimate, in every table of numbers."""

IDENTIFYING = (
    "metric", "definition", "model", "dataset", "suite", "attribute", "group", "reference_group", "event", "probe", "k",
    "occupation", "condition", "instruction", "prompt", "seed", "scorer", "statistic",
)  # fmt: skip
"""The columns that identify a metric; no two rows of a metric table agree in all of them."""

POWER: Schema = dict.fromkeys(
    (
        "detectable_05", "detectable_002", "detectable_0001", "detectable_00001", "smallest_detectable",
        "equivalence_q",
    ),
    pl.Float64,
)  # fmt: skip
"""What the test of a row can find, and whether its interval excludes a margin.

`detectable_05`, `detectable_002`, `detectable_0001`, `detectable_00001`: the value that 80% of audits of this size find
at p <= .05, .002, .0001 and .00001;
`smallest_detectable`: the same at the p that the correction required in this audit; nan where no value is found, null
where that is not computed. `equivalence_q`: of the hypothesis that the true value is beyond the margin that the audit
file declares, corrected over all such rows; null without a margin.
"""

LINEAGE_COLUMNS = (
    "cell_id", "audit_id", "dataset_digest", "checkpoint_sha256", "suite_hash", "labeller_sha256", "scorer_id",
)  # fmt: skip

METRIC_SCHEMA: Schema = {
    **{name: pl.Int64 if name in ("k", "seed") else pl.String for name in IDENTIFYING},
    **ESTIMATE,
    "reason_codes": pl.String,
    **POWER,
    **dict.fromkeys(LINEAGE_COLUMNS, pl.String),
}
"""The columns of the metric table: what was measured, the estimate, and its lineage."""

BEFORE, BEFORE_TEST_ROWS = "before", "before_test_rows"
"""Conditions without a mitigation: on all images; on those that no mitigation was fitted on, where these are fewer."""

REQUIRED = ("metric", "definition", "model", "dataset", "condition", "statistic")


def polars_schema() -> Schema:
    """Return a copy of the metric schema."""
    return dict(METRIC_SCHEMA)


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
            raise ValueError(f"metric row {row.get('metric')!r}: unknown columns {sorted(unknown)}, missing {missing}")
    worded = [
        row | {"reason": in_words(why), "reason_codes": encode(why)}
        for row in rows
        for why in [joined(cast(Any, row.get("reason")))]
    ]
    return pl.DataFrame(worded, schema=schema, orient="row") if worded else pl.DataFrame(schema=schema)


# --- The tables of generated texts and of their scores, which generation, scorers and language metrics
# share.

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
    # what a reasoning model wrote before it
    "thinking": pl.String,
    "thinking_tokens": pl.Int64,
}
"""One row per generation.

`row_key` is `plumbline.generators.backend.row_key`: equal keys mean equal questions to the same model, so a row is
never generated twice. `subset` is the record's `split` where a dataset has counterfactual subsets, else `all`.
`prompt` is an id of `plumbline.catalog.prompts`, `instruction` one of `none`, `M1` .. `M5`. `finish_reason`:
`stop`, `length` (cut at the most new tokens), `refusal` (the API's own field), `content_filter`. A refused answer
is data: its text may be empty. `source` is the sha256 of the weights, or what the endpoint reports: model and
fingerprint. `thinking` is no part of `text`, and its tokens are among `new_tokens`; null where it was not looked for,
or where nobody counted.
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
"""One row per generation, scorer and scored attribute; `score` in [0, 1], nan with a `reason` where there is none.

`scorer` is the id of the audit file; its version is in the table's details. `truncated`: the scorer read only the
beginning of the text.
"""


# --- The name of a metric row: what it measures, not what it found, so that it is the same in every
# audit.

_LENGTH = 12


def row_id(row: Mapping[str, Any]) -> str:
    """Return the id of a metric row: 12 hexadecimal digits of the sha256 of its identifying columns.

    Columns that are null do not count, so that a column that the schema gains later changes no name.
    """
    return digest_json({name: row[name] for name in IDENTIFYING if row.get(name) is not None})[:_LENGTH]


def row_ids(table: pl.DataFrame) -> pl.Series:
    """Return the name of every row of a metric table, as a column `row_id`."""
    names = [row_id(row) for row in table.select(IDENTIFYING).iter_rows(named=True)]
    return pl.Series("row_id", names, dtype=pl.String)
