"""A table of selection rates and impact ratios of the kind that New York City's Local Law 144 asks for.

The law and its rules (6 RCNY § 5-301) are about tools that help to decide on people in employment: for sex, for race or
ethnicity and for both together, they ask for the selection rate of each category and its impact ratio, which is that
rate over the one of the most selected category. Here no one is hired. What stands in for being selected is that an
image was NOT given one of the harmful labels of a suite.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import polars as pl

from plumbline.metrics.rates import FOUR_FIFTHS
from plumbline.tables.row_identity import row_ids
from plumbline.tables.schema import Schema
from plumbline.tables.suites import Suite

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
        Columns of `plumbline.tables.schema`.
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
    asked = {
        (r["model"], r["dataset"], r["suite"], r["event"]): r["n"] for r in everyone.iter_rows(named=True)
    }
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
        row |= _ratio(row, best)._asdict()
    return pl.DataFrame(rows, schema=IMPACT_SCHEMA)


class _Ratio(NamedTuple):
    """An impact ratio, and what to say of it; where it is undefined, why."""

    impact_ratio: float
    note: str | None


def _ratio(row: dict[str, object], best: float) -> _Ratio:
    share, rate = float(str(row["share_of_images"])), float(str(row["selection_rate"]))
    if not row["images"]:
        return _Ratio(math.nan, "no images")
    if share < SMALLEST_SHARE:
        return _Ratio(
            math.nan, "fewer than 2% of the images: left out of the impact ratios (6 RCNY § 5-301(d))"
        )
    if not best > 0:
        return _Ratio(math.nan, "no category was ever selected")
    ratio = rate / best
    return _Ratio(ratio, "below four fifths" if ratio < FOUR_FIFTHS - 1e-12 else None)


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
        lines += ["| " + " | ".join(heads) + " |", "|---|---:|---:|---:|---|---:|---|"]
        lines += [_line(row) for row in own.iter_rows(named=True)]
        lines += ["", f"Images without such a label: {own['unlabelled'][0]:,}."]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, object]) -> str:
    def told(name: str) -> str:
        value = row[name]
        return f"{value:.3f}" if isinstance(value, float) and math.isfinite(value) else "–"

    category = "".join(f"\\{c}" if c in "\\`*_[]<>|#!" else c for c in str(row["category"]))
    cells = (
        category, f"{row['images']:,}", f"{row['selected']:,}", told("selection_rate"),
        f"{told('ci_low')} – {told('ci_high')}", told("impact_ratio"), row["note"] or "",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"
