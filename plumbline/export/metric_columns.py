"""The metric table in the columns of LAION's CLIP_benchmark, then its own."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from plumbline.tables.row_identity import row_ids

CLIP_BENCHMARK = ("dataset", "model", "pretrained", "task", "language", "model_fullname")
"""What `clip_benchmark build` writes beside its metrics. Those are columns there (`acc1`, `mean_per_class_recall`,
`image_retrieval_recall@5`) and one row a number here: `metric` and `value`."""
LANGUAGE = "en"
_TASKS = {"generation": "captioning"}
_TASK = "zeroshot_classification"


def exported_table(metric_table: pl.DataFrame, addresses: Mapping[str, str]) -> pl.DataFrame:
    """Return the metric table with CLIP_benchmark's columns first and the name of each row last.

    `model` is the id of the audit file, `pretrained` its address, `model_fullname` the two, as CLIP_benchmark joins
    them.
    `task` is `captioning` of models that answer in words, else `zeroshot_classification`: images against texts.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.tables.schema`.
    addresses : mapping of str to str
        Model -> address of the checkpoint. Rows over several models have none.
    """
    pretrained = pl.col("model").replace_strict(dict(addresses), default=None, return_dtype=pl.String)
    task = pl.col("suite").replace_strict(_TASKS, default=_TASK, return_dtype=pl.String)
    own = [name for name in metric_table.columns if name not in CLIP_BENCHMARK]
    return metric_table.with_columns(
        pretrained.alias("pretrained"),
        task.alias("task"),
        pl.lit(LANGUAGE).alias("language"),
        pl.concat_str("model", pretrained, separator=" ", ignore_nulls=True).alias("model_fullname"),
        row_ids(metric_table),
    ).select(*CLIP_BENCHMARK, *own, "row_id")
