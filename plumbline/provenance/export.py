"""The metric table in the columns of LAION's CLIP_benchmark and its own; the bill of what an audit was made with."""

from __future__ import annotations

import math
import platform
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import yaml

from plumbline.catalog.schema import BEFORE, IDENTIFYING, Schema, row_ids
from plumbline.catalog.suites import Suite
from plumbline.digests import digest_file
from plumbline.metrics.disparities import FOUR_FIFTHS
from plumbline.metrics.evidence import CELL, states, too_weak
from plumbline.metrics.own import GAP, VALUE
from plumbline.report.disparity import SMOOTHED
from plumbline.report.numbers import interval, number
from plumbline.report.reading import Reading
from plumbline.report.rows import where
from plumbline.report.scorecard import NOTHING, scorecard
from plumbline.visible import as_code, escaped

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

CLIP_BENCHMARK = ("dataset", "model", "pretrained", "task", "language", "model_fullname")
"""What `clip_benchmark build` writes beside its metrics. Those are columns there (`acc1`, `mean_per_class_recall`,
`image_retrieval_recall@5`) and one row a number here: `metric` and `value`."""
LANGUAGE = "en"
_TASKS = {"generation": "captioning"}
_TASK = "zeroshot_classification"


def exported_table(metric_table: pl.DataFrame, addresses: Mapping[str, str]) -> pl.DataFrame:
    """Return the metric table with CLIP_benchmark's columns first, what each row is evidence of and its name last.

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
    columns = [name for name in metric_table.columns if name not in CLIP_BENCHMARK]
    return metric_table.with_columns(
        pretrained.alias("pretrained"),
        task.alias("task"),
        pl.lit(LANGUAGE).alias("language"),
        pl.concat_str("model", pretrained, separator=" ", ignore_nulls=True).alias("model_fullname"),
        states(metric_table),
        row_ids(metric_table),
    ).select(*CLIP_BENCHMARK, *columns, "evidence", "row_id")


# --- A table of selection rates and impact ratios of the kind that New York City's Local Law 144 asks for.
#
# The law and its rules (6 RCNY § 5-301) are about tools that help to decide on people in employment: for sex, for race
# or ethnicity and for both together, they ask for the selection rate of each category and its impact ratio, which is
# that rate over the one of the most selected category. Here no one is hired. What stands in for being selected is that
# an image was NOT given one of the harmful labels of a suite.

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
    cell = ["model", "dataset", "suite", "event"]
    harmful = [(suite.id, event) for suite in suites.values() for event in suite.events]
    before = metric_table.with_columns(row=row_ids(metric_table)).filter(pl.col("condition") == "before")
    everyone = before.filter(pl.col("metric") == "harm_rate").select(*cell, everyone="n")
    rates = (
        before.filter(
            pl.col("metric") == "outcome_proportion",
            pl.col("definition") == "top1",
            pl.col("attribute").is_in(list(CATEGORIES)),
        )
        .join(pl.DataFrame(harmful, schema=["suite", "event"], orient="row"), on=["suite", "event"], how="semi")
        .join(everyone, on=cell, how="left")
    )
    labelled, seen = pl.col("n").sum().over(*cell, "attribute"), pl.col("n") > 0
    table = rates.select(
        *cell,
        "row",
        categories=pl.col("attribute").replace_strict(CATEGORIES, return_dtype=pl.String),
        category="group",
        images="n",
        share_of_images=pl.col("n") / labelled,
        selection_rate=pl.when(seen).then(1 - pl.col("value")).fill_null(math.nan),
        ci_low=1 - pl.col("ci_high"),
        ci_high=1 - pl.col("ci_low"),
        unlabelled=pl.col("everyone").fill_null(0) - labelled,
    )
    small, empty = pl.col("share_of_images") < SMALLEST_SHARE, pl.col("images") == 0
    best = pl.when(~small & ~empty).then("selection_rate").max().over(*cell, "categories")
    never = ~(best > 0).fill_null(value=False)
    ratio = pl.when(~small & ~empty & ~never).then(pl.col("selection_rate") / best).otherwise(math.nan)
    at_chance = pl.struct(CELL).is_in(too_weak(before).select(pl.struct(CELL)).to_series().implode())
    order = pl.col("categories").replace_strict({name: i for i, name in enumerate(CATEGORIES.values())})
    return (
        table.with_columns(
            selected=(pl.col("selection_rate") * pl.col("images")).round().fill_nan(0),
            impact_ratio=ratio,
            note=pl.when(empty)
            .then(pl.lit("no images"))
            .when(small)
            .then(pl.lit("fewer than 2% of the images: left out of the impact ratios (6 RCNY § 5-301(d))"))
            .when(never)
            .then(pl.lit("no category was ever selected"))
            .otherwise(
                pl.concat_str(
                    pl.when(ratio < FOUR_FIFTHS - 1e-12).then(pl.lit("below four fifths")),
                    pl.when(at_chance).then(pl.lit("model no better than chance here: too weak to interpret")),
                    separator="; ",
                    ignore_nulls=True,
                ).replace("", None)
            ),
        )
        .sort("dataset", "model", "suite", "event", order, "category")
        .select(pl.col(name).cast(kind) for name, kind in IMPACT_SCHEMA.items())
    )


def impact_ratio_page(table: pl.DataFrame) -> str:
    """Return the table as a Markdown page that states its scope and limits."""
    groups = table.group_by("dataset", "model", "suite", "event", "categories", maintain_order=True)
    return _rendered("impact_ratios", tables=[(key, rows.to_dicts()) for key, rows in groups])


def _rendered(template: str, **values: Any) -> str:
    """Return a page in Markdown."""
    from jinja2 import Environment, StrictUndefined

    source = (files("plumbline.provenance") / "templates" / f"{template}.md.jinja").read_text("utf-8")
    # Nothing is escaped for HTML: the page is Markdown.
    environment = Environment(  # noqa: S701
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"escaped": escaped, "code": as_code, "rounded": _rounded}
    return environment.from_string(source).render(values)


def _rounded(value: float | None) -> str:
    return f"{value:.3f}" if _is_known(value) else "–"


# --- A section for the model card of a checkpoint on the Hugging Face Hub, with its numbers as `EvalResult`s.

_CARD_TASKS = {"generation": ("image-text-to-text", "Description of pictured people")}
_CARD_TASK = ("zero-shot-image-classification", "Zero-shot choice among texts")
_MEASURED = ("metric", "suite", "event", "attribute", "group", "prompt", "instruction", "scorer", "statistic")


def headline_rows(metric_table: pl.DataFrame, reading: Reading) -> dict[str, pl.DataFrame]:
    """Return model -> the numbers on its card: what the scorecard shows of it, dataset by dataset, in its order.

    The models of a dataset stand side by side, as in the scorecard, so that a measure has one definition for all.
    """
    before = metric_table.filter(pl.col("condition") == BEFORE)
    tables = {model: [metric_table.clear()] for model in metric_table["model"].unique(maintain_order=True)}
    for _, of_dataset in before.group_by("dataset", maintain_order=True):
        card = scorecard(of_dataset, reading).filter(~pl.col("state").is_in([*NOTHING, "undefined", "not_asked"]))
        answering = where(of_dataset, metric=tuple(set(card["metric"])))
        named = answering.with_columns(row_ids(answering)).filter(pl.col("value").is_finite())
        shown = card.select(row_id="row").join(named, on="row_id", maintain_order="left").drop("row_id")
        for (model,), rows in shown.group_by("model", maintain_order=True):
            tables[str(model)].append(rows)
    return {model: pl.concat([each.select(metric_table.columns) for each in parts]) for model, parts in tables.items()}


def eval_results(rows: pl.DataFrame) -> list[EvalResult]:
    """Return metric rows as the hub's evaluation results: interval, q and n are in the arguments of each metric."""
    from huggingface_hub import EvalResult

    results = []
    for name, row in zip(row_ids(rows), rows.iter_rows(named=True)):
        task, task_name = _CARD_TASKS.get(row["suite"], _CARD_TASK)
        about = {key: row[key] for key in (*IDENTIFYING, "n", "ci_low", "ci_high", "p", "q")}
        known = {key: value for key, value in about.items() if _is_known(value) and key not in ("model", "dataset")}
        results.append(
            EvalResult(
                task_type=task,
                task_name=task_name,
                dataset_type=row["dataset"],
                dataset_name=row["dataset"],
                dataset_args={"content_digest": row["dataset_digest"]},
                metric_type=row["metric"],
                metric_name=measured(row),
                metric_config=row["definition"],
                metric_value=row["value"],
                metric_args={**known, "row_id": name, "audit_id": row["audit_id"]},
            )
        )
    return results


def _is_known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def model_card(model: str, rows: pl.DataFrame, *, about: Mapping[str, str], said: Sequence[str] = ()) -> str:
    """Return the card's metadata (`model-index`) and its section on bias, as Markdown.

    Without a number there is no metadata, and the section says so.

    Parameters
    ----------
    rows : DataFrame
        From `headline_rows`.
    about : mapping of str to str
        What comes first, such as the digest of the weights: title -> text.
    said : sequence of str
        What the scorecard says of the model, in sentences.
    """
    from huggingface_hub.repocard_data import eval_results_to_model_index

    metadata = ""
    if rows.height:
        index = eval_results_to_model_index(model, eval_results(rows))
        metadata = yaml.safe_dump({"model-index": index}, sort_keys=False, allow_unicode=True)
    table = {"rows": rows.to_dicts(), "measured": measured, "number": number, "interval": interval}
    return _rendered("model_card", metadata=metadata, about=about, said=said, **table)


def measured(row: Mapping[str, Any]) -> str:
    """Return what a metric row measures, in the words of its columns; a metric of one's own has the name given it.

    A smoothed skew is called so: its number says nothing beside one that is not.
    """
    named = {**row, "metric": row["definition"]} if row["metric"] in (GAP, VALUE) else row
    parts = [str(named[key]) for key in _MEASURED if named[key] not in (None, "estimate")]
    return ", ".join(parts + [SMOOTHED] * (row["definition"] == SMOOTHED))


# --- Provenance as an in-toto statement: the files of a bundle and their materials.

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:plumbline:audit:1"
BUILDER = "urn:plumbline"


@dataclass(frozen=True)
class Material:
    """An input of an audit.

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


# --- The bill of materials: what an audit was made with.

SPECIFICATION = "1.6"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KINDS = {"checkpoint": "machine-learning-model", "answers": "machine-learning-model", "dataset": "data"}


INTERPRETERS = ("CPython", "PyPy")


def installed() -> dict[str, str]:
    """Return the distributions of this environment and Python itself, name -> version."""
    described = [each.metadata for each in distributions()]  # parsed anew whenever it is asked for
    versions = {re.sub(r"[-_.]+", "-", each["Name"]).lower(): each["Version"] for each in described if each["Name"]}
    return {platform.python_implementation(): platform.python_version(), **dict(sorted(versions.items()))}


def bill_of_materials(
    software: Mapping[str, str], materials: Iterable[Material], *, audit_id: str, version: str, made_at: str
) -> dict[str, Any]:
    """Return the software, the models and the datasets of an audit; the same audit gives the same bill.

    Parameters
    ----------
    software : mapping of str to str
        From `installed`, when the audit ended.
    materials : iterable of Material
        Those named `checkpoint/`, `answers/` and `dataset/` are listed, with their digests.
    audit_id, version, made_at : str
        Of the audit; `version` is Plumbline's own.
    """
    components: list[dict[str, Any]] = []
    for name, release in software.items():
        if name in INTERPRETERS:
            components.append({"type": "platform", "bom-ref": name, "name": name, "version": release})
        elif name != "plumbline":
            address = f"pkg:pypi/{name}@{release.replace('+', '%2B')}"
            components.append(
                {"type": "library", "bom-ref": address, "name": name, "version": release, "purl": address}
            )
    components += [
        _component(material)
        for material in sorted(materials, key=lambda each: each.name)
        if material.name.partition("/")[0] in _KINDS
    ]
    program = f"pkg:pypi/plumbline@{version.replace('+', '%2B')}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'urn:plumbline:{audit_id}')}",
        "version": 1,
        "metadata": {
            "timestamp": made_at,
            "component": {
                "type": "application", "bom-ref": program, "name": "plumbline", "version": version, "purl": program,
            },
            "properties": [{"name": "plumbline:audit_id", "value": audit_id}],
        },
        "components": components,
        "dependencies": [{"ref": program, "dependsOn": [each["bom-ref"] for each in components]}],
    }  # fmt: skip


def _component(material: Material) -> dict[str, Any]:
    kind, _, name = material.name.partition("/")
    component: dict[str, Any] = {"type": _KINDS[kind], "bom-ref": material.name, "name": name}
    weights = material.digests.get("sha256", "")
    if _SHA256.fullmatch(weights):
        component["hashes"] = [{"alg": "SHA-256", "content": weights}]
    others = [(f"plumbline:{key}", digest) for key, digest in material.digests.items() if key != "sha256"]
    others += [(f"plumbline:{key}", value) for key, value in material.notes.items() if isinstance(value, str)]
    return component | ({"properties": [{"name": key, "value": value} for key, value in others]} if others else {})
