"""Automatic gender labels of records (the extended datasets), and their error rates by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Schema
from plumbline.catalog.suites import GENDERS
from plumbline.datasets.records import EXTENDED_SCHEMA, RECORD_SCHEMA, Declaration
from plumbline.errors import DatasetError, examples

_SUM_TOLERANCE = 1e-4
_AUTOMATIC: Schema = {name: kind for name, kind in EXTENDED_SCHEMA.items() if name not in RECORD_SCHEMA}


def label_probabilities(
    images: NDArray[np.floating[Any]], texts: NDArray[np.floating[Any]], *, logit_scale: float
) -> NDArray[np.float64]:
    """Return the (n, k) softmax over a labeller's scaled cosines.

    Parameters
    ----------
    images, texts : (n, d) and (k, d) float
        Embeddings of any length.
    """
    images = images / np.linalg.norm(images, axis=1, keepdims=True)
    texts = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    logits = logit_scale * (images @ texts.T).astype(np.float64)
    exponent = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponent / exponent.sum(axis=1, keepdims=True))


def extend_records(
    records: pl.DataFrame, probabilities: NDArray[np.float64] | None, *, classes: str | None = None
) -> pl.DataFrame:
    """Add the automatic gender label to each record, and the composite label of an extended dataset.

    Parameters
    ----------
    records : DataFrame
        n rows; any earlier automatic label is replaced.
    probabilities : (n, 2) float64
        Softmax over the labeller's two logits, man before woman, rows as in the records; None where nothing labels
        them, which leaves all four columns null.
    classes : str, optional
        The record column whose labels are the dataset's classes.

    Returns
    -------
    DataFrame
        The records with `auto_gender` (`man` or `woman`, man at an exact tie), `auto_gender_probability` (0.5
        to 1), `auto_gender_margin` (|p(man) - p(woman)|, 0 to 1; 0 means undecided) and `composite` (class and
        automatic label, `Indian_woman`; null without classes, and where the class is a gender itself).

    Raises
    ------
    DatasetError
        If the shape differs, or a row is not a probability distribution.
    """
    if probabilities is None:
        return records.with_columns(pl.lit(None, kind).alias(name) for name, kind in _AUTOMATIC.items())
    values = np.asarray(probabilities, dtype=np.float64)
    if values.shape != (records.height, 2):
        raise DatasetError(
            "the labeller's probabilities do not belong to these records",
            found=f"shape {values.shape}",
            expected=f"shape ({records.height}, 2): man, woman",
        )
    sums_to_one = np.abs(values.sum(axis=1) - 1.0) <= _SUM_TOLERANCE
    wrong = np.flatnonzero(~(sums_to_one & (values >= 0.0).all(axis=1)))
    if wrong.size:
        raise DatasetError(
            "the labeller's probabilities are not probabilities",
            where="rows of the records",
            found=examples(f"row {row}: {values[row].tolist()}" for row in wrong.tolist()),
            expected="two numbers from 0 to 1 that sum to 1",
        )
    labels = np.asarray(GENDERS)[values.argmax(axis=1)]
    extended = records.with_columns(
        pl.Series("auto_gender", labels.tolist(), dtype=pl.String),
        pl.Series("auto_gender_probability", values.max(axis=1), dtype=pl.Float64),
        pl.Series("auto_gender_margin", np.abs(values[:, 0] - values[:, 1]), dtype=pl.Float64),
        pl.lit(None, dtype=pl.String).alias("composite"),
    )
    if classes is None or classes == "gender":
        return extended
    return extended.with_columns(composite_labels(extended[classes], extended["auto_gender"]))


def composite_labels(values: pl.Series | Sequence[str | None], genders: pl.Series | Sequence[str | None]) -> pl.Series:
    """Join a base label and a gender into one label, such as `Indian_woman`; null where either is null.

    Parameters
    ----------
    values, genders : n strings or nulls
        The base attribute and, for the extended datasets of TriProTesting, the automatic gender label.

    Returns
    -------
    Series of n String
        Named `composite`.

    Raises
    ------
    DatasetError
        If the lengths differ.
    """
    if len(values) != len(genders):
        raise DatasetError(
            "labels and genders do not belong together", found=f"{len(values)} and {len(genders)}", expected="as many"
        )
    pair = pl.DataFrame({"value": values, "gender": genders}, schema={"value": pl.String, "gender": pl.String})
    return pair.select(pl.concat_str("value", "gender", separator="_").alias("composite")).to_series()


def label_error_table(extended: pl.DataFrame, *, by: Sequence[str] = ("race", "age_group")) -> pl.DataFrame:
    """Compare the automatic gender label with the dataset's own, overall and within each group.

    Parameters
    ----------
    extended : DataFrame
        From `extend_records`. Rows without a gender of their own count nowhere.
    by : sequence of str
        Columns whose groups are reported; rows without a value there count only overall.

    Returns
    -------
    DataFrame
        A row for `attribute` "overall" (`group` null) and one per column of `by` and group, groups sorted:
        the confusion counts `man_as_man, man_as_woman, woman_as_man, woman_as_woman`, `n`, `errors`, `rate`
        (errors / n, 0 to 1), its Wilson 95 % interval `ci_low, ci_high`, and `reason` where n is 0 and the
        rate is NaN.
    """
    from plumbline.statistics.intervals import wilson

    overall = extended.select(attribute=pl.lit("overall"), group=pl.lit(None, dtype=pl.String), **_confusion())
    grouped = [
        extended.filter(pl.col(name).is_not_null())
        .group_by(pl.col(name).alias("group"))
        .agg(**_confusion())
        .select(pl.lit(name).alias("attribute"), "group", *_confusion())
        .sort("group")
        for name in by
    ]
    errors = pl.col("man_as_woman") + pl.col("woman_as_man")
    table = pl.concat([overall, *grouped]).with_columns(n=pl.sum_horizontal(*_confusion()), errors=errors)
    n, wrong = table["n"].to_numpy(), table["errors"].to_numpy()
    rate = np.divide(wrong, n, out=np.full(n.shape, np.nan), where=n > 0)
    low, high = wilson(wrong, n)
    return table.with_columns(
        pl.Series("rate", rate, dtype=pl.Float64),
        pl.Series("ci_low", low, dtype=pl.Float64),
        pl.Series("ci_high", high, dtype=pl.Float64),
        pl.when(pl.col("n") == 0).then(pl.lit("no image has a gender of its own")).alias("reason"),
    )


def _confusion() -> dict[str, pl.Expr]:
    return {
        f"{true}_as_{given}": ((pl.col("gender") == true) & (pl.col("auto_gender") == given)).sum().cast(pl.Int64)
        for true in GENDERS
        for given in GENDERS
    }


LABEL_SHARES_SCHEMA: Schema = {
    "attribute": pl.String,
    "label": pl.String,
    "n": pl.Int64,
    "share": pl.Float64,
    "expected_low": pl.Float64,
    "expected_high": pl.Float64,
}


def label_shares(
    frame: pl.DataFrame, declaration: Declaration, balance: Mapping[str, tuple[float, float]], *, composite: bool
) -> pl.DataFrame:
    """Return the share of every label of the columns whose balance the audit file declares.

    Parameters
    ----------
    balance : mapping of str to (float, float)
        Column -> the range in which the share of each of its labels is expected.
    composite : bool
        False: plain record columns. True: `COLUMN_gender`, the column joined with the automatic gender label.

    Returns
    -------
    DataFrame
        `attribute, label, n, share, expected_low, expected_high`; a label of the dataset's vocabulary that no row
        has is listed with a share of 0.
    """
    vocabulary = label_vocabulary(declaration)
    tables = [pl.DataFrame(schema=LABEL_SHARES_SCHEMA)]
    for attribute, (low, high) in balance.items():
        if (attribute not in frame.columns) != composite:
            continue
        base = attribute.removesuffix("_gender")
        labels, expected = frame[base], vocabulary.get(base, [])
        if composite:
            labels = composite_labels(labels, frame["auto_gender"])
            expected = [f"{label}_{gender}" for label in expected for gender in GENDERS]
        counts = dict(labels.drop_nulls().value_counts().iter_rows())
        names = sorted({*expected, *counts}) or [f"(no {attribute} labels at all)"]
        total = max(sum(counts.values()), 1)
        rows = [(attribute, name, counts.get(name, 0), counts.get(name, 0) / total, low, high) for name in names]
        tables.append(pl.DataFrame(rows, schema=LABEL_SHARES_SCHEMA, orient="row"))
    return pl.concat(tables)


def label_vocabulary(declaration: Declaration) -> dict[str, list[str]]:
    """Return record column -> every label that the dataset's reader may give; columns without a list are left out."""
    return {r.column: [*r.values.values(), *r.groups] for r in declaration.rules if r.values or r.groups}
