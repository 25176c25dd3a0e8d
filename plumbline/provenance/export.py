"""The metric table in the columns of LAION's CLIP_benchmark, then its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import yaml

from plumbline.catalog.schema import IDENTIFYING, Schema, row_ids
from plumbline.catalog.suites import MIXED_SUITES, Suite
from plumbline.digests import digest_file
from plumbline.metrics.disparities import FOUR_FIFTHS
from plumbline.metrics.registry import METRICS
from plumbline.report.numbers import interval, number

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

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
        Columns of `plumbline.catalog.schema`.
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


# --- A table of selection rates and impact ratios of the kind that New York City's Local Law 144 asks
# for.
#
# The law and its rules (6 RCNY § 5-301) are about tools that help to decide on people in employment: for
# sex, for race or ethnicity and for both together, they ask for the selection rate of each category and
# its impact ratio, which is that rate over the one of the most selected category. Here no one is hired.
# What stands in for being selected is that an image was NOT given one of the harmful labels of a suite.

SMALLEST_SHARE = 0.02
CATEGORIES = {"gender": "sex", "race": "race/ethnicity", "gender_race": "intersectional"}
IMPACT_SCHEMA: Schema = {
    "model": pl.String,
    "dataset": pl.String,
    "suite": pl.String,
    "event": pl.String,
    "categories": pl.String,
    "category": pl.String,
    "images": pl.Int64,
    "share_of_images": pl.Float64,
    "selected": pl.Int64,
    "selection_rate": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "impact_ratio": pl.Float64,
    "unlabelled": pl.Int64,
    "note": pl.String,
    "row": pl.String,
}
STATEMENT = """\
This table has the form that New York City's Local Law 144 of 2021 and its rules (6 RCNY § 5-301) ask of a bias audit:
for sex, for race/ethnicity and for both together, the selection rate of each category and its impact ratio, the rate of
the category over the rate of the most selected one.

**It is not a bias audit of an automated employment decision tool.** No one was hired, promoted or screened; the images
are those of a research dataset, or drawn; labels are those of the dataset, and gender is binary in it. No independent
auditor in the sense of the law had a part in it.

What is counted: every image that the suite keeps and that has a label. It is "selected" when the model did NOT give it
a label of the event that is named, such as `crime`: the favourable outcome. So a selection rate is one less the outcome
proportion of the metric table, and its interval one less that of the proportion. The impact ratio itself has no
interval here: which category is the most selected one is found from the same images. `row` names the metric row of each
rate, for `plumbline explain`.

Categories with less than 2% of the labelled images are left out of the impact ratios, as § 5-301(d) allows, and are
neither compared nor taken as the most selected category; their rates are shown. `unlabelled` counts images without such
a label, which are in no category. Below 0.8 stands the four-fifths rule's usual mark of adverse impact (29 CFR
1607.4(D)), whatever chance there is in it.
"""


def impact_ratio_table(metric_table: pl.DataFrame, suites: dict[str, Suite]) -> pl.DataFrame:
    """Return selection rates and impact ratios of every model, dataset and event of the outcome suites.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.catalog.schema`.
    suites : dict of str to Suite
        The outcome suites; all their events are harmful.

    Returns
    -------
    DataFrame
        Columns of `IMPACT_SCHEMA`.
    """
    harmful = {(suite.id, event) for suite in suites.values() for event in suite.events}
    rates = metric_table.filter(
        pl.col("metric") == "outcome_proportion",
        pl.col("definition") == "top1",
        pl.col("condition") == "before",
        pl.col("attribute").is_in(list(CATEGORIES)),
    )
    everyone = metric_table.filter(pl.col("metric") == "harm_rate", pl.col("condition") == "before")
    asked = {(r["model"], r["dataset"], r["suite"], r["event"]): r["n"] for r in everyone.iter_rows(named=True)}
    parts = [pl.DataFrame(schema=IMPACT_SCHEMA)]
    keys = ["model", "dataset", "suite", "event", "attribute"]
    for key, own in rates.group_by(keys, maintain_order=True):
        if (key[2], key[3]) in harmful:
            parts.append(_table(own, unlabelled=asked.get(key[:4], 0) - int(own["n"].sum())))
    order = pl.col("categories").replace_strict({name: i for i, name in enumerate(CATEGORIES.values())})
    return pl.concat(parts).sort("dataset", "model", "suite", "event", order, "category")


def _table(own: pl.DataFrame, *, unlabelled: int) -> pl.DataFrame:
    total = int(own["n"].sum())
    rows = []
    for name, row in zip(row_ids(own), own.iter_rows(named=True)):
        rate = 1 - row["value"] if row["n"] and row["value"] is not None else math.nan
        rows.append(
            {
                **{column: row[column] for column in ("model", "dataset", "suite", "event")},
                "categories": CATEGORIES[row["attribute"]],
                "category": row["group"],
                "images": row["n"],
                "share_of_images": row["n"] / total if total else math.nan,
                "selected": round(rate * row["n"]) if row["n"] else 0,
                "selection_rate": rate,
                "ci_low": 1 - row["ci_high"],
                "ci_high": 1 - row["ci_low"],
                "unlabelled": unlabelled,
                "row": name,
            }
        )
    compared = [r["selection_rate"] for r in rows if r["share_of_images"] >= SMALLEST_SHARE and r["images"]]
    best = max(compared, default=math.nan)
    for row in rows:
        row["impact_ratio"], row["note"] = _ratio(row, best)
    return pl.DataFrame(rows, schema=IMPACT_SCHEMA)


def _ratio(row: Mapping[str, Any], best: float) -> tuple[float, str | None]:
    """Return an impact ratio and the note on it; where the ratio is undefined, why."""
    if not row["images"]:
        return math.nan, "no images"
    if row["share_of_images"] < SMALLEST_SHARE:
        return math.nan, "fewer than 2% of the images: left out of the impact ratios (6 RCNY § 5-301(d))"
    if not best > 0:
        return math.nan, "no category was ever selected"
    ratio = row["selection_rate"] / best
    return ratio, "below four fifths" if ratio < FOUR_FIFTHS - 1e-12 else None


def impact_ratio_page(table: pl.DataFrame) -> str:
    """Return the table as Markdown, with what it is and what it is not."""
    lines = ["# Selection rates and impact ratios", "", STATEMENT]
    if table.is_empty():
        return "\n".join([*lines, "No outcome suite was asked of images with these labels."])
    heads = ("Category", "Images", "Selected", "Selection rate", "Interval", "Impact ratio", "Note")
    keys = ["dataset", "model", "suite", "event", "categories"]
    for key, own in table.group_by(keys, maintain_order=True):
        dataset, model, suite, event, categories = key
        lines += ["", f"## {model} on {dataset}: not given `{event}` ({suite}), by {categories}", ""]
        lines += [_markdown_row(*heads), "|---|---:|---:|---:|---|---:|---|"]
        lines += [_line(row) for row in own.iter_rows(named=True)]
        lines += ["", f"Images without such a label: {own['unlabelled'][0]:,}."]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, object]) -> str:
    def printed(name: str) -> str:
        value = row[name]
        return f"{value:.3f}" if isinstance(value, float) and math.isfinite(value) else "–"

    return _markdown_row(
        _escaped(row["category"], "\\`*_[]<>|#!"), f"{row['images']:,}", f"{row['selected']:,}",
        printed("selection_rate"), f"{printed('ci_low')} – {printed('ci_high')}", printed("impact_ratio"),
        str(row["note"] or ""),
    )  # fmt: skip


def _escaped(text: object, special: str) -> str:
    return "".join(f"\\{c}" if c in special else c for c in str(text))


def _markdown_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


# --- A section for the model card of a checkpoint on the Hugging Face Hub, with its numbers as
# `EvalResult`s.

_CARD_TASKS = {"generation": ("image-text-to-text", "Description of pictured people")}
_CARD_TASK = ("zero-shot-image-classification", "Zero-shot choice among texts")
_TOLD = ("metric", "suite", "event", "attribute", "group", "prompt", "instruction", "scorer", "statistic")
_OF_LANGUAGE = {"max_toxicity": "paper", "max_insult": "paper", "refusal_rate_gap": "paper", "competence_gap": "paper"}
_HEADLINES = {**{t.name: t.headline for t in METRICS.values() if t.headline}, **_OF_LANGUAGE}
_GROUPED = ("outcome_proportion", "probe_rate", "class_accuracy", "accuracy", "macro_accuracy")


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
        ~pl.col("suite").is_in(MIXED_SUITES) | pl.col("suite").is_null(),
    )


def eval_results(rows: pl.DataFrame) -> list[EvalResult]:
    """Return metric rows as the hub's evaluation results: interval, q and n stand in the arguments of each metric."""
    from huggingface_hub import EvalResult

    found = []
    for name, row in zip(row_ids(rows), rows.iter_rows(named=True)):
        task, task_name = _CARD_TASKS.get(row["suite"], _CARD_TASK)
        about = {key: row[key] for key in (*IDENTIFYING, "n", "ci_low", "ci_high", "p", "q")}
        known = {key: value for key, value in about.items() if _is_known(value) and key not in ("model", "dataset")}
        found.append(
            EvalResult(
                task_type=task,
                task_name=task_name,
                dataset_type=row["dataset"],
                dataset_name=row["dataset"],
                dataset_args={"content_digest": row["dataset_digest"]},
                metric_type=row["metric"],
                metric_name=_measured(row),
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
    lines += [_card_line(row) for row in rows.iter_rows(named=True)]
    return "\n".join(lines) + "\n"


def _card_line(row: Mapping[str, Any]) -> str:
    q = f"{row['q']:.3g}" if _is_known(row["q"]) else "–"
    n = "–" if row["n"] is None else f"{row['n']:,}"
    cells = (
        row["dataset"], _measured(row), number(row["value"]), interval(row["ci_low"], row["ci_high"]), q, n
    )  # fmt: skip
    return _markdown_row(*(_escaped(cell, "\\`*[]<>|") for cell in cells))


def _measured(row: Mapping[str, Any]) -> str:
    return ", ".join(str(row[key]) for key in _TOLD if row[key] not in (None, "estimate"))


# --- Provenance as an in-toto statement: what the files of a bundle are, and what they were made from.

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:plumbline:audit:1"
BUILDER = "urn:plumbline"


@dataclass(frozen=True)
class Material:
    """Something that an audit was made from.

    Attributes
    ----------
    name : str
        Such as `dataset/fairface`.
    digests : mapping of str to str
        Algorithm -> digest. `sha256` is that of one file, as `sha256sum` prints it; digests over several files or texts
        are Plumbline's own and say so: `plumblineFolder`, `plumblinePrompts`, `plumblineCheckpoint`.
    notes : mapping
        Annotations.
    """

    name: str
    digests: Mapping[str, str]
    notes: Mapping[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """Return it as a resource descriptor."""
        descriptor: dict[str, Any] = {"name": self.name, "digest": dict(self.digests)}
        return descriptor | ({"annotations": dict(self.notes)} if self.notes else {})


def provenance_statement(
    folder: Path,
    files: Sequence[str],
    materials: Iterable[Material],
    *,
    audit_id: str,
    version: str,
    settings: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    made_at: str,
) -> dict[str, Any]:
    """Return the statement about the files of a folder.

    Parameters
    ----------
    files : sequence of str
        Relative paths, the subjects.
    settings : mapping
        The audit file.
    runs : sequence of mapping
        Rows of `provenance`: which Dagster and MLflow runs made each cell.
    made_at : str
        When the audit ended.
    """
    subjects = [{"name": name, "digest": {"sha256": digest_file(folder / name)}} for name in sorted(files)]
    ordered = sorted(materials, key=lambda material: material.name)
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"audit": dict(settings)},
                "internalParameters": {"audit_id": audit_id},
                "resolvedDependencies": [material.described for material in ordered],
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"plumbline": version}},
                "metadata": {"invocationId": audit_id, "finishedOn": made_at},
                "byproducts": [
                    {"name": f"cell/{run['dataset']}|{run['model']}", "annotations": dict(run)} for run in runs
                ],
            },
        },
    }
