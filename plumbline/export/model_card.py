"""A section for the model card of a checkpoint on the Hugging Face Hub, with its numbers as `EvalResult`s."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
import yaml

from plumbline.metrics.registry import METRICS
from plumbline.report.numbers import interval, number
from plumbline.tables.row_identity import IDENTIFYING, row_ids

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

_TASKS = {"generation": ("image-text-to-text", "Description of pictured people")}
_TASK = ("zero-shot-image-classification", "Zero-shot choice among texts")
_TOLD = ("metric", "suite", "event", "attribute", "group", "prompt", "instruction", "scorer", "statistic")
_OF_LANGUAGE = {
    "max_toxicity": "paper",
    "max_insult": "paper",
    "refusal_rate_gap": "paper",
    "competence_gap": "paper",
}
_HEADLINES = {**{t.name: t.headline for t in METRICS.values() if t.headline}, **_OF_LANGUAGE}
_GROUPED = ("outcome_proportion", "probe_rate", "class_accuracy", "accuracy", "macro_accuracy")
_MIXED = ("trident_mixed", "trident_composite")


def headline_rows(metric_table: pl.DataFrame, model: str) -> pl.DataFrame:
    """Return the numbers of a model that its card tells: one reading a question, none of single words or groups."""
    headline = pl.col("metric").replace_strict(_HEADLINES, default=None, return_dtype=pl.String)
    return metric_table.filter(
        pl.col("model") == model,
        pl.col("definition") == headline,
        pl.col("condition") == "before",
        pl.col("statistic").is_in(["estimate", "mean", "p90"]),
        pl.col("value").is_finite(),
        pl.col("probe").is_null(),
        pl.col("group").is_null(),
        ~pl.col("metric").is_in(_GROUPED),
        ~pl.col("suite").is_in(_MIXED) | pl.col("suite").is_null(),
    )


def eval_results(rows: pl.DataFrame) -> list[EvalResult]:
    """Return metric rows as the hub's evaluation results: interval, q and n stand in the arguments of each metric."""
    from huggingface_hub import EvalResult

    found = []
    for name, row in zip(row_ids(rows), rows.iter_rows(named=True)):
        task, task_name = _TASKS.get(row["suite"], _TASK)
        about = {key: row[key] for key in (*IDENTIFYING, "n", "ci_low", "ci_high", "p", "q")}
        known = {
            key: value for key, value in about.items() if _is_known(value) and key not in ("model", "dataset")
        }
        found.append(
            EvalResult(
                task_type=task,
                task_name=task_name,
                dataset_type=row["dataset"],
                dataset_name=row["dataset"],
                dataset_args={"content_digest": row["dataset_digest"]},
                metric_type=row["metric"],
                metric_name=", ".join(str(row[key]) for key in _TOLD if row[key] not in (None, "estimate")),
                metric_config=row["definition"],
                metric_value=row["value"],
                metric_args={**known, "row_id": name, "audit_id": row["audit_id"]},
            )
        )
    return found


def _is_known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def model_card(model: str, rows: pl.DataFrame, *, about: Mapping[str, str]) -> str:
    """Return the card's metadata (`model-index`) and its section on bias, as Markdown.

    Parameters
    ----------
    rows : DataFrame
        From `headline_rows`.
    about : mapping of str to str
        What else is told first, such as the digest of the weights: title -> text.
    """
    from huggingface_hub.repocard_data import eval_results_to_model_index

    index = eval_results_to_model_index(model, eval_results(rows))
    metadata = yaml.safe_dump({"model-index": index}, sort_keys=False, allow_unicode=True)
    lines = ["---", metadata.rstrip(), "---", "", "## Bias, as measured by Plumbline", ""]
    lines += [f"- {title}: `{text}`" for title, text in about.items()]
    lines += [
        "",
        "Numbers describe this checkpoint on these datasets, not persons. A low number on one suite says nothing",
    ]
    lines += ["about another. Gender is binary in these datasets.", ""]
    lines += ["| Dataset | What | Value | Interval | q | n |", "|---|---|---:|---|---:|---:|"]
    lines += [_line(row) for row in rows.iter_rows(named=True)]
    return "\n".join(lines) + "\n"


def _line(row: Mapping[str, Any]) -> str:
    told = ", ".join(str(row[key]) for key in _TOLD if row[key] not in (None, "estimate"))
    q = f"{row['q']:.3g}" if _is_known(row["q"]) else "–"
    n = "–" if row["n"] is None else f"{row['n']:,}"
    cells = (row["dataset"], told, number(row["value"]), interval(row["ci_low"], row["ci_high"]), q, n)
    return (
        "| "
        + " | ".join("".join(f"\\{c}" if c in "\\`*[]<>|" else c for c in str(cell)) for cell in cells)
        + " |"
    )
