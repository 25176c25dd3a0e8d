"""What a dataset's labels are like: their balance against the declared range, and errors of the automatic ones."""

from __future__ import annotations

import math

import polars as pl

from plumbline.report.charts.chart import BLUE, DIAMOND, VERMILION, Chart
from plumbline.report.charts.dots import Dot, Rows, Series, dots
from plumbline.report.inputs import DatasetSummary
from plumbline.report.numbers import NO_INTERVAL, count, percent, percent_interval
from plumbline.report.rows import Row, defined, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_title

OVERALL = "overall"
_INSIDE, _OUTSIDE = "share, as declared", "share, outside the declared range"


def is_outside(row: Row) -> bool:
    """Return whether a label's share lies outside its declared range; an undefined share does not."""
    low, high = row["expected_low"], row["expected_high"]
    if not defined(row["share"]):
        return False
    return (defined(low) and row["share"] < low) or (defined(high) and row["share"] > high)


def balance(dataset: DatasetSummary) -> Chart | None:
    """Draw each label's share of the accepted images, before the range that the audit file declares for it."""
    shares = dataset.label_shares
    attributes = in_order(shares["attribute"], ("race", "gender"))
    return dots(
        f"balance-{dataset.id}",
        f"Label balance, {dataset.id}",
        "Each dot is the share of accepted images with a label; the pale band is its declared range.",
        marks=[_share(row) for row in shares.to_dicts()],
        rows=Rows(
            tuple(
                (attribute_title(a), tuple(group_title(row["label"]) for row in where(shares, attribute=a).to_dicts()))
                for a in attributes
            )
        ),
        series=(Series(_INSIDE, BLUE), Series(_OUTSIDE, VERMILION, DIAMOND)),
        unit="share",
        axis="share of accepted images (band: the declared range)",
        overlaid=True,
    )


def _share(row: Row) -> Dot:
    declared = percent_interval(row["expected_low"], row["expected_high"])
    ends = [row["expected_low"], row["expected_high"]]
    return Dot(
        row=group_title(row["label"]),
        heading=attribute_title(row["attribute"]),
        series=_OUTSIDE if is_outside(row) else _INSIDE,
        value=or_nan(row["share"]),
        span=(ends[0], ends[1]) if all(map(defined, ends)) else None,
        tip={
            "of": group_title(row["label"]),
            "value": percent(row["share"]),
            "declared": declared.replace(NO_INTERVAL, "nothing"),
            "n": count(row["n"]),
        },
    )


def label_errors(dataset: DatasetSummary) -> Chart | None:
    """Draw the error rate of the automatic gender labels by group, with intervals; the line is the overall rate."""
    errors = dataset.label_errors
    if not errors["rate"].is_finite().any():  # without a labeller there are no automatic labels
        return None
    names = [name for name in in_order(errors["group_by"], ("race", "gender")) if name != OVERALL]
    return dots(
        f"label-error-{dataset.id}",
        f"Automatic-label error by group, {dataset.id}",
        "Each dot is the share of a group's images with a wrong automatic gender label, with its interval.",
        marks=[
            Dot(
                row=group_title(row["group"]),
                heading=attribute_title(row["group_by"]),
                value=or_nan(row["rate"]),
                low=or_nan(row["ci_low"]),
                high=or_nan(row["ci_high"]),
                tip={
                    "of": group_title(row["group"]),
                    "value": f"{percent(row['rate'])} ({count(row['errors'])} wrong)",
                    "interval": percent_interval(row["ci_low"], row["ci_high"]),
                    "n": count(row["n"]),
                },
            )
            for row in errors.to_dicts()
        ],
        rows=Rows(
            tuple(
                (attribute_title(a), tuple(group_title(row["group"]) for row in where(errors, group_by=a).to_dicts()))
                for a in names
            )
        ),
        unit="share",
        line=_overall_rate(errors),
        axis="share of images whose automatic gender label is wrong (line: all images)",
    )


def _overall_rate(errors: pl.DataFrame) -> float | None:
    """Return the error rate over all images: the row `overall`, else the grouping that covers most images."""
    counts = errors.group_by("group_by").agg(pl.col("errors").sum(), pl.col("n").sum())
    counts = counts.sort(pl.col("group_by") == OVERALL, "n", "group_by", descending=[True, True, False])
    wrong, images = (counts["errors"][0], counts["n"][0]) if counts.height else (math.nan, 0)
    return float(wrong / images) if images else None
