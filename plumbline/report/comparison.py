"""Published beside measured: wherever an audit covers what a paper printed, both numbers and whether they agree.

At the end the word lists that papers printed, beside those of an audit: their overlap, and the words that are absent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import polars as pl

from plumbline.catalog.published import KEYS, ProtocolOf, differences, published_values, published_words
from plumbline.catalog.schema import ALL_MODELS, Schema
from plumbline.catalog.studies import recognise
from plumbline.errors import MetricError
from plumbline.statistics.rankings import rank_biased_overlap

COMPARISON_SCHEMA: Schema = {
    # the cell of the paper
    "paper": pl.String,
    "table": pl.String,
    "row": pl.String,
    "column": pl.String,
    "status": pl.String,
    # what this audit covers of it
    "checkpoint": pl.String,
    "model": pl.String,
    "address": pl.String,
    "reference_model": pl.String,
    "reference_address": pl.String,
    **dict.fromkeys(KEYS, pl.String),
    # the numbers
    "published": pl.Float64,
    "rounding": pl.Float64,
    "measured": pl.Float64,
    "difference": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "published_n": pl.Int64,
    "unit": pl.String,
    "within": pl.Boolean,
    "other_protocol": pl.String,
    "note": pl.String,
}
"""One row a printed number and a measurement of the same thing, by the same checkpoint on the same dataset.

`paper, table, row, column, status` as in `plumbline.catalog.published.PUBLISHED_SCHEMA`; `model`, `dataset` are the
audit's own ids. `difference` is measured - published. `within`: the interval, widened by the rounding of the printed
number, holds it; where there is no interval, the difference is no larger than the rounding. `difference` and `within`
are null where the printed number is `suspect`, `not_comparable` or `absent`, or nothing could be measured: `note` says
why. They are null too where `other_protocol` says what of the run is not as the paper has it. Rows with a
`reference_model` are effects: model minus reference.
"""

FIT_SCHEMA: Schema = {
    "paper": pl.String,
    "checkpoint": pl.String,
    "model": pl.String,
    "address": pl.String,
    "metric": pl.String,
    "cells": pl.Int64,
    "within": pl.Int64,
    "mean_absolute_difference": pl.Float64,
}
"""One row a paper, checkpoint and metric: how many of the compared numbers agree, and how far off they are."""

UNKNOWN = "unknown scorer"
# Stands for the dataset of numbers that are of a checkpoint's text space alone.
_TEXT = "text"
_COMPARABLE = ("as_printed", "recomputed")
# Columns of the published values that tables of metrics have no counterpart of.
_ALONE = ("factor",)
_METRIC_KEYS = tuple(name for name in KEYS if name not in _ALONE)
_EFFECT_KEYS = ("dataset", "suite", "event", "attribute", "metric", "definition")
_ESTIMATE = ("value", "ci_low", "ci_high", "n", "reason")


def compare_with_published(
    metric_table: pl.DataFrame,
    *,
    encoders: Mapping[str, str],
    datasets: Mapping[str, str],
    effects: pl.DataFrame | None = None,
    published: pl.DataFrame | None = None,
    scorers: Mapping[str, str] | None = None,
    pooled: Sequence[str] = (),
    protocol_of: ProtocolOf | None = None,
) -> pl.DataFrame:
    """Set what an audit measured beside what the papers printed.

    Parameters
    ----------
    metric_table : DataFrame
        In the schema of `plumbline.catalog.schema`.
    encoders : mapping of str to str
        Id of each encoder and generative model of the audit to its address; of an endpoint, the model that it is
        asked for, such as `gpt-4o-2024-05-13`. Addresses of no study's checkpoint are passed over, as are folders.
    datasets : mapping of str to str
        Dataset id of the audit to its reader. Only datasets that hold the real data belong in here: leave out those
        of the planted world. `text`, the dataset of numbers that need no images, is always known.
    effects : DataFrame, optional
        Effects of design factors, in `plumbline.metrics.paired.comparisons.EFFECT_SCHEMA`: compared with the
        differences of Data Matters Most's tables 2 and 4, as recomputed from its table 1.
    published : DataFrame, optional
        In `PUBLISHED_SCHEMA`; by default every published value.
    scorers : mapping of str to str, optional
        Scorer id of the audit to its kind, such as `perspective`: the papers name kinds, an audit file names its
        scorers as it likes, and scores of another kind are another measure. Without one, ids are taken as kinds.
    pooled : sequence of str
        Ids of the models that the rows of `all models` are over. Printed numbers of no single checkpoint are compared
        with these, if every one of them is a study's.
    protocol_of : callable, optional
        How this audit makes the number of a cell, `plumbline.config.reproduction.Run.protocol`; without it every
        number is taken to be made as the paper's.

    Returns
    -------
    DataFrame
        In `COMPARISON_SCHEMA`, in the order of the papers. Empty where nothing is covered.

    Raises
    ------
    MetricError
        If a frame lacks columns.
    """
    _require(metric_table, ("model", *_METRIC_KEYS, *_ESTIMATE, "p"), "the metric table")
    if effects is not None:
        _require(effects, ("first", "second", *_EFFECT_KEYS, *_ESTIMATE), "the table of factor effects")
    if not any(recognise(address) for address in encoders.values()):
        # Reading the papers takes longer than the rest.
        return pl.DataFrame(schema=COMPARISON_SCHEMA)
    printed = published_values() if published is None else published
    encoders = _with_pooled(encoders, pooled)
    table = metric_table if scorers is None else _by_kind_of_scorer(metric_table, scorers)
    parts = [_metric_pairs(printed, table, encoders, datasets)]
    if effects is not None:
        parts.append(_effect_pairs(printed, effects, encoders, datasets))
    joined = pl.concat(parts, how="diagonal")
    ordered = joined.sort("place", "model", "dataset", maintain_order=True)
    return _with_protocols(ordered, protocol_of).select(_judged())


def _with_protocols(cells: pl.DataFrame, protocol_of: ProtocolOf | None) -> pl.DataFrame:
    """Add `other_protocol`: what of the run is not as the paper has it."""
    if protocol_of is None:
        return cells.with_columns(other_protocol=pl.lit(None, pl.String))
    departures = [
        None
        if cell["protocol"] is None or cell["model"] is None or cell["model"] == ALL_MODELS
        else differences(json.loads(cell["protocol"]), protocol_of(cell["model"], cell["own_dataset"], cell))
        for cell in cells.iter_rows(named=True)
    ]
    return cells.with_columns(pl.Series("other_protocol", departures, pl.String))


def _with_pooled(encoders: Mapping[str, str], pooled: Sequence[str]) -> Mapping[str, str]:
    """Add what all models together are, if each of them is a study's checkpoint."""
    together = [encoders.get(name, "") for name in pooled]
    if together and all(recognise(address) for address in together):
        return {**encoders, ALL_MODELS: ", ".join(together)}
    return encoders


def _by_kind_of_scorer(table: pl.DataFrame, scorers: Mapping[str, str]) -> pl.DataFrame:
    """Replace ids of scorers by their kinds; an id without one is of no kind that a paper knows, whatever its name."""
    kinds = pl.col("scorer").replace_strict(dict(scorers), default=UNKNOWN, return_dtype=pl.String)
    return table.with_columns(pl.when(pl.col("scorer").is_not_null()).then(kinds).alias("scorer"))


def checkpoint_fits(comparison: pl.DataFrame) -> pl.DataFrame:
    """Count, for every checkpoint that was run, how many numbers it agrees with.

    Where a paper leaves open which of two checkpoints it ran (CLIP L/14 at 224 or at 336 pixels), both have rows:
    the one with more numbers within and the smaller difference fits the paper better.

    Parameters
    ----------
    comparison : DataFrame
        From `compare_with_published`.

    Returns
    -------
    DataFrame
        In `FIT_SCHEMA`; what is not of one checkpoint, effects and numbers over all models, is left out.
    """
    compared = comparison.filter(pl.col("within").is_not_null(), pl.col("reference_model").is_null())
    compared = compared.drop_nulls("checkpoint")
    by = ["paper", "checkpoint", "model", "address", "metric"]
    fits = compared.group_by(by, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("cells"),
        pl.col("within").sum().cast(pl.Int64),
        pl.col("difference").abs().mean().alias("mean_absolute_difference"),
    )
    return fits.select(list(FIT_SCHEMA))


def _metric_pairs(
    printed: pl.DataFrame, table: pl.DataFrame, encoders: Mapping[str, str], datasets: Mapping[str, str]
) -> pl.DataFrame:
    measured = _located(pl.concat([table, _p_values(table)]), {"model": "checkpoint"}, encoders, datasets)
    # Rows at one rank or of one seed are no summary: papers print summaries.
    for column in ("k", "seed"):
        if column in measured.columns:
            measured = measured.filter(pl.col(column).is_null())
    alone = [pl.lit(None, pl.String).alias(name) for name in ("reference_model", "reference_address")]
    keys = ["checkpoint", *_METRIC_KEYS]
    cells = _placed(printed).filter(pl.col(name).is_null() for name in ("reference_checkpoint", *_ALONE))
    measured = measured.select(*keys, "model", "address", *alone, "own_dataset", *_ESTIMATE)
    return cells.join(measured, on=keys, how="inner", nulls_equal=True)


def _p_values(table: pl.DataFrame) -> pl.DataFrame:
    """Return the p-values of the estimates as rows of their own: papers print them in a column beside."""
    tested = table.filter(pl.col("p").is_not_null() & pl.col("p").is_not_nan(), statistic="estimate")
    none = pl.lit(None, pl.Float64)
    return tested.with_columns(
        statistic=pl.lit("p"), value=pl.col("p"), ci_low=none, ci_high=none, p=none, reason=pl.lit(None, pl.String)
    )


def _effect_pairs(
    printed: pl.DataFrame, effects: pl.DataFrame, encoders: Mapping[str, str], datasets: Mapping[str, str]
) -> pl.DataFrame:
    ends = {"first": "checkpoint", "second": "reference_checkpoint"}
    # Whichever of a pair the audit lists first: the comparison has the paper's sign.
    flipped = effects.rename({"first": "second", "second": "first"}).with_columns(
        value=-pl.col("value"), ci_low=-pl.col("ci_high"), ci_high=-pl.col("ci_low")
    )
    both = pl.concat([effects, flipped.select(effects.columns)])
    measured = _located(both, ends, encoders, datasets)
    keys = ["checkpoint", "reference_checkpoint", *_EFFECT_KEYS]
    columns = ["model", "address", "reference_model", "reference_address", "own_dataset", *_ESTIMATE]
    cells = _placed(printed).filter(pl.col("reference_checkpoint").is_not_null())
    return cells.join(measured.select(*keys, *columns), on=keys, how="inner", nulls_equal=True)


def _located(
    table: pl.DataFrame, ends: Mapping[str, str], encoders: Mapping[str, str], datasets: Mapping[str, str]
) -> pl.DataFrame:
    """Keep the rows of recognised checkpoints on known datasets, and name both as the papers' values do.

    `ends` says which columns hold encoders, and under which name their study checkpoint goes.
    """
    known: dict[str, str | None]
    known = {model: recognised.id for model, address in encoders.items() if (recognised := recognise(address))}
    known |= {ALL_MODELS: None} if ALL_MODELS in encoders else {}
    readers = {_TEXT: _TEXT, **datasets}
    rows = table.filter(pl.col(column).is_in(list(known)) for column in ends)
    rows = rows.filter(pl.col("dataset").is_in(list(readers)))
    for column, name in ends.items():
        prefix = name.removesuffix("checkpoint")
        rows = rows.with_columns(
            pl.col(column).replace_strict(known, return_dtype=pl.String).alias(name),
            pl.col(column).replace_strict(dict(encoders), return_dtype=pl.String).alias(f"{prefix}address"),
            pl.col(column).alias(f"{prefix}model"),
        )
    return rows.with_columns(
        pl.col("dataset").alias("own_dataset"), pl.col("dataset").replace_strict(readers, return_dtype=pl.String)
    )


def _placed(printed: pl.DataFrame) -> pl.DataFrame:
    """Return the published values with their place in the order of the papers, under names that do not clash."""
    renamed = {"value": "published", "n": "published_n", "note": "published_note"}
    return printed.drop("model").rename(renamed).with_row_index("place")


def _judged() -> list[pl.Expr]:
    measured = pl.col("value").fill_nan(None)
    ends = [pl.col("ci_low").fill_nan(None), pl.col("ci_high").fill_nan(None)]
    published, rounding = pl.col("published"), pl.col("rounding")
    comparable = pl.col("status").is_in(_COMPARABLE) & published.is_not_null() & measured.is_not_null()
    comparable &= pl.col("other_protocol").is_null()
    # A hair above the rounding: 0.25 and 0.245 are as near in print as they are not in binary.
    slack = rounding + 1e-9
    inside = (ends[0] - slack <= published) & (published <= ends[1] + slack)
    agrees = pl.coalesce(inside, (measured - published).abs() <= slack)
    other_n = pl.format("published with n = {}, measured with n = {}", "published_n", "n")
    reason = pl.col("reason")
    said_of_measurement = (
        pl.when(measured.is_null())
        .then(pl.format("not measured: {}", reason.fill_null("undefined")))
        .when(reason.is_not_null())
        .then(pl.format("of the measurement: {}", reason))
    )
    other = pl.format("other protocol: {}", "other_protocol")
    notes = [
        other,
        pl.col("published_note"),
        pl.when(pl.col("published_n") != pl.col("n")).then(other_n),
        said_of_measurement,
    ]
    reasons = pl.concat_str(notes, separator="; ", ignore_nulls=True)
    columns = {
        "dataset": pl.col("own_dataset"),
        "measured": measured,
        "difference": pl.when(comparable).then(measured - published),
        "ci_low": ends[0],
        "ci_high": ends[1],
        "within": pl.when(comparable).then(agrees),
        "note": pl.when(reasons != "").then(reasons),
    }
    return [columns.get(name, pl.col(name)).cast(kind).alias(name) for name, kind in COMPARISON_SCHEMA.items()]


def _require(frame: pl.DataFrame, columns: tuple[str, ...], what: str) -> None:
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise MetricError(
            f"{what} lacks columns that a comparison needs",
            found=", ".join(frame.columns) or "no columns",
            expected=", ".join(columns),
            hint=f"add {', '.join(missing)}",
        )


# --- Word lists.

WORD_LISTS: dict[str, pl.DataType] = {
    **dict.fromkeys(("paper", "table", "row", "column", "model", "dataset", "attribute", "group"), pl.String()),
    "printed": pl.Int64(),
    "measured": pl.Int64(),
    "overlap": pl.Float64(),
    "rank_biased_overlap": pl.Float64(),
    "associated": pl.Int64(),
    "absent": pl.List(pl.String),
    "note": pl.String(),
}
"""One row a printed list and a measured one of the same checkpoint and group.

`printed` words, and `measured` ones: those that the judge named, the most associated first. `overlap`: at k, the length
of the printed list: the share of its words among the first k measured. `rank_biased_overlap`: of both whole lists, in
the order in which they stand (Webber et al. 2010, extrapolated, p = 0.9); in [0, 1] like the other. `associated`: how
many printed words are associated with the group here, named by a judge or not; `absent`: those that the judge did not
name, or that are not associated. Without a judge the overlaps are null, and the `note` says so.
"""

_NO_JUDGE = "no judge named stereotypes: compared with the associated words alone"


def compare_word_lists(
    words: pl.DataFrame, *, addresses: Mapping[str, str], datasets: Collection[str], printed: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Set the words that an audit found beside those that the papers printed.

    Parameters
    ----------
    words : DataFrame
        `plumbline.language.words.WORD_ASSOCIATIONS` with a first column `model`.
    addresses : mapping of str to str
        Model -> address; those of no study's checkpoint are passed over.
    datasets : collection of str
        Ids of the datasets that are the real SocialCounterfactuals.
    printed : DataFrame, optional
        In `WORDS_SCHEMA`; by default every published list.

    Returns
    -------
    DataFrame
        In `WORD_LISTS`, in the order of the papers; empty where nothing is covered.
    """
    known = {model: recognised.id for model, address in addresses.items() if (recognised := recognise(address))}
    lists = pl.DataFrame(schema=WORD_LISTS)
    measured = words.filter(pl.col("model").is_in(list(known)), pl.col("dataset").is_in(list(datasets)))
    if measured.is_empty():
        return lists
    checkpoint = pl.col("model").replace_strict(known, return_dtype=pl.String)
    measured = measured.with_columns(checkpoint=checkpoint)
    cells = ["paper", "table", "row", "column", "checkpoint", "attribute", "group"]
    of_papers = (published_words() if printed is None else printed).drop_nulls("checkpoint")
    rows = []
    for key, of_cell in of_papers.group_by(cells, maintain_order=True):
        named = dict(zip(cells, key))
        mine = measured.filter(pl.col(name) == named[name] for name in ("checkpoint", "attribute", "group"))
        words_printed = of_cell.sort("position")["word"].to_list()
        for (model, dataset), listed in mine.group_by("model", "dataset", maintain_order=True):
            place = [named[name] for name in cells if name != "checkpoint"]
            rows.append([*place[:4], model, dataset, *place[4:], *_compared(words_printed, listed)])
    return pl.concat([lists, pl.DataFrame(rows, schema=WORD_LISTS, orient="row")])


def _compared(printed: list[str], found: pl.DataFrame) -> list[object]:
    """Return the columns of one pair of lists."""
    ordered = found.drop_nulls("word").sort(["association", "word"], descending=[True, False])
    associated = ordered["word"].to_list()
    judged = ordered["stereotype"].null_count() < ordered.height
    named = ordered.filter("stereotype")["word"].to_list() if judged else associated
    here = set(named)
    overlaps: list[float | None] = [None, None]
    if judged:
        overlaps = [overlap_at(printed, named, k=len(printed)), rank_biased_overlap(printed, named)]
    absent = [word for word in printed if word not in here]
    common = len(set(printed) & set(associated))
    return [len(printed), len(named), *overlaps, common, absent, None if judged else _NO_JUDGE]


def overlap_at(first: Sequence[str], second: Sequence[str], *, k: int) -> float:
    """Return the share of the first k words of a list that are among the first k of another.

    Raises
    ------
    MetricError
        If k is below 1.
    """
    if k < 1:
        raise MetricError("an overlap is of the first words of two lists", found=f"k = {k}", expected="at least 1")
    return len(set(first[:k]) & set(second[:k])) / k
