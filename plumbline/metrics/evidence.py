"""What a row of the metric table is evidence of: a difference, no difference beyond a margin, or nothing.

Two columns follow from the whole table: `smallest_detectable`, at the p that the correction required in this audit,
and `equivalence_q`, against the margins of the audit file. `state` reads a row. Tables of changes have the first of
them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import BEFORE
from plumbline.metrics.family import Traits, family_descriptions, traits_by_metric
from plumbline.reasons import find, reason
from plumbline.statistics.multiplicity import CORRECTED_TOGETHER, add_reasons, q_values
from plumbline.statistics.power import COLUMNS, LEVELS, effect_size, required_p, value_at

State = Literal["evidence", "no_evidence", "evidence_of_none"]
"""Evidence of a difference; no evidence of one; evidence of no difference beyond the margin of the audit file."""


def state(row: Mapping[str, Any], *, significance: float = 0.05) -> State | None:
    """Return what a row is evidence of; None where nothing was tested.

    It is evidence of a difference where q (p, without a q) is below the level, whatever the margin; of no difference
    beyond the margin where `equivalence_q` is below it.
    """
    tested = [row[name] for name in ("q", "p") if row[name] is not None and row[name] == row[name]]
    if tested and tested[0] < significance:
        return "evidence"
    excluded = row.get("equivalence_q")
    if excluded is not None and excluded < significance:
        return "evidence_of_none"
    return "no_evidence" if tested else None


def states(table: pl.DataFrame, *, significance: float = 0.05) -> pl.Series:
    """Return the state of every row of a metric table, as a column `evidence`."""
    rows = table.select("p", "q", "equivalence_q").iter_rows(named=True)
    return pl.Series("evidence", [state(row, significance=significance) for row in rows], dtype=pl.String)


# --- The smallest difference that would have been found.


CELL = ["model", "dataset"]


def too_weak(table: pl.DataFrame) -> pl.DataFrame:
    """Return, of models that are at chance for every label of a dataset, the row of the best recognised one."""
    seen = table.filter(
        pl.col("value").is_finite(), metric="zero_shot_accuracy", statistic="estimate", condition=BEFORE
    )
    at_chance = pl.col("reason_codes").map_elements(lambda codes: find(codes, "at_chance") is not None, pl.Boolean)
    weak = seen.filter(at_chance.fill_null(value=False).all().over(CELL))
    return weak.sort("value", descending=True).unique(CELL, keep="first", maintain_order=True).sort(CELL)


def add_power(table: pl.DataFrame, *, confidence: float, significance: float = 0.05) -> pl.DataFrame:
    """Fill `smallest_detectable`, at the p with which the correction would have rejected each row within its family.

    Where an estimate may fall on either side of its null value, `detectable_*` is computed here, from the standard
    error that its interval implies. It is nan at levels that p cannot reach, as with too few sets. `reason` says why a
    value is missing.
    """
    error = (pl.col("ci_high") - pl.col("ci_low")) / (2 * _quantile(confidence))
    of_error = _errs_to_both_sides() & pl.col("p").is_not_nan() & error.is_finite() & (error > 0)
    sides = pl.when(_one_sided()).then(2.0).otherwise(1.0)
    too_few = pl.col("reason_codes").str.contains("few_relabellings", literal=True).fill_null(value=False)
    filled = table.with_columns(
        pl.when(of_error & (too_few | pl.col(name).is_nan()))
        .then(float("nan"))
        .when(of_error)
        .then(error * (sides * level).map_batches(_effect_sizes, return_dtype=pl.Float64))
        .otherwise(pl.col(name))
        .alias(name)
        for name, level in zip(COLUMNS, LEVELS)
    )
    needed = _required(filled, "metric_table", significance)
    return _add_power_reasons(filled.with_columns(smallest_detectable(filled, needed)), significance=significance)


def _add_power_reasons(table: pl.DataFrame, *, significance: float) -> pl.DataFrame:
    """Say of rows that are no evidence, and have no detectable value, why not, where no other reason does."""
    no_evidence = pl.col("p").is_not_nan() & (pl.coalesce("q", "p") >= significance)
    has_reason = pl.col("reason_codes").str.contains_any(["few_relabellings", "p_floor"]).fill_null(value=False)
    missing = {
        "nothing_detectable": pl.col("smallest_detectable").is_nan() & ~has_reason,
        "power_unknown": pl.col("smallest_detectable").is_null(),
    }
    rows = table.with_row_index("row")
    places = {code: rows.filter(no_evidence & where.fill_null(value=False))["row"] for code, where in missing.items()}
    return add_reasons(table, {row: reason(code) for code, of_code in places.items() for row in of_code})


SIGNED = ("sc_weat_effect", "sc_weat_statistic", "weat_effect", "directional_bias", "skew_at_k")
"""Numbers of one group that are 0 where groups are alike: further from it is worse, to either side."""


def is_inverted(metric: str) -> bool:
    """Return whether a metric is largest where there is no difference, as an impact ratio is."""
    traits = _traits().get(metric)
    return traits is not None and _null(traits) == traits.bounds[1]


def smallest_detectable(table: pl.DataFrame, needed: NDArray[np.float64]) -> pl.Expr:
    """Return the column `smallest_detectable` of rows that need these p-values; null where it is not computed."""
    at_levels = np.stack([_floats(table[name]) for name in COLUMNS], axis=-1)
    linear = table.select(_errs_to_both_sides()).to_series().to_numpy()
    sides = table.select(pl.when(_one_sided()).then(2.0).otherwise(1.0)).to_series().to_numpy()
    nulls = {name: _null(each) for name, each in _traits().items()}
    inverted = table["metric"].is_in([name for name in _traits() if is_inverted(name)])
    null = np.nan_to_num(_floats(table["metric"].replace_strict(nulls, default=0.0, return_dtype=pl.Float64)))
    # A level at which nothing is found is one that p cannot reach. How far towards it p can go is not known.
    before = np.array([np.inf, *LEVELS[:-1]])
    reached = ~(np.isnan(at_levels) & (needed[:, None] < before)).any(axis=-1)
    smallest = np.select(
        [linear & ~reached, linear, inverted.to_numpy()],
        [
            np.full(table.height, np.nan),
            at_levels[:, 0] * effect_size(sides * needed) / effect_size(sides * LEVELS[0]),
            value_at(needed, at_levels, parity=1.0),
        ],
        value_at(needed, at_levels - null[:, None]) + null,
    )
    # Beyond a level that is null nothing is known; from one that is nan on, nothing is found.
    first = np.isnan(at_levels).argmax(axis=1)
    null_first = table.select(pl.col(COLUMNS).is_null()).to_numpy()[np.arange(table.height), first]
    known = pl.col("p").is_not_null() & ~pl.Series(null_first & np.isnan(smallest))
    return pl.when(known).then(pl.Series(smallest)).alias("smallest_detectable")


def add_detectable_changes(
    table: pl.DataFrame, *, of: str, confidence: float = 0.95, significance: float = 0.05
) -> pl.DataFrame:
    """Fill `smallest_detectable` of a table of changes: which change, up or down, 80% of such comparisons would find.

    At the p with which the correction would have rejected each row, from the standard error that its interval implies;
    null where there is no interval or no test. Where a test asks more than the interval does, as that of paired answers
    sometimes, it takes a little more to be found.

    Parameters
    ----------
    table : DataFrame
        With `ci_low`, `ci_high` and `p`.
    of : str
        Which of `plumbline.statistics.multiplicity.CORRECTED_TOGETHER` it is.
    """
    error = _floats((table["ci_high"] - table["ci_low"]) / (2 * _quantile(confidence)))
    known = np.isfinite(error) & (error > 0)
    detectable = np.where(known, error * effect_size(_required(table, of, significance)), np.nan)
    return table.with_columns(pl.Series("smallest_detectable", detectable, pl.Float64).fill_nan(None))


def _required(table: pl.DataFrame, of: str, significance: float) -> NDArray[np.float64]:
    """Return the p that each row would have needed within its family; nan where nothing was tested."""
    p, needed = _floats(table["p"]), np.full(table.height, np.nan)
    family = CORRECTED_TOGETHER[of]
    for rows in table.select(family).with_row_index("row").group_by(family).agg("row")["row"]:
        index = rows.to_numpy()
        needed[index] = required_p(p[index], level=significance)
    return needed


def _errs_to_both_sides() -> pl.Expr:
    """Return whether the estimates of a metric err to both sides of their value without any difference.

    All do but those that have this value at the end of their range, such as gaps; so do the gains of mitigations, which
    no family describes.
    """
    traits = _traits().items()
    at_an_end = [name for name, each in traits if not (_is_two_sided(each) or np.isnan(_null(each)))]
    return ~pl.col("metric").is_in(at_an_end)


def _one_sided() -> pl.Expr:
    """Return whether a test asks for one direction only, as the papers' tests of words do."""
    of_words = pl.col("metric").is_in(["sc_weat_effect", "sc_weat_statistic", "weat_effect"])
    return of_words & ~pl.col("definition").is_in(["two_sided", "cluster_t"])


def _effect_sizes(level: pl.Series) -> pl.Series:
    return pl.Series(effect_size(level.to_numpy()))


def _floats(column: pl.Series) -> NDArray[np.float64]:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _traits() -> dict[str, Traits]:
    return traits_by_metric(*family_descriptions())


def _is_two_sided(traits: Traits) -> bool:
    return traits.bounds[0] < 0 < traits.bounds[1]


def value_without_difference(metric: str) -> float | None:
    """Return the value of a metric where no group is treated unlike another: 0, or 1 of a ratio; None where unknown."""
    traits = _traits().get(metric)
    value = _null(traits) if traits and traits.when_identical is not None else np.nan
    return None if np.isnan(value) else float(value)


def _null(traits: Traits) -> float:
    """Return the value where nothing differs, nan where that is undefined; 0 stands for none."""
    return traits.when_identical if isinstance(traits.when_identical, float | int) else 0.0


def _quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))


# --- Equivalence with no difference, within a margin.


def equivalence_metrics() -> tuple[str, ...]:
    """Return the metrics that have a value without any difference, so that a margin around it can be declared."""
    return tuple(name for name, each in _traits().items() if _is_two_sided(each) or each.when_identical in each.bounds)


def add_equivalence(table: pl.DataFrame, margins: Mapping[str, float], *, confidence: float) -> pl.DataFrame:
    """Fill `equivalence_q` of the tested rows whose metric has a margin, corrected over all of them.

    p is that of the hypothesis that the true value lies at the margin or beyond it (two one-sided tests, Schuirmann
    1987): p <= .05 exactly where the 90% interval ends before the margin. Its end follows from that of the row's
    interval, as if the estimate were normal on its scale: the logarithm for ratios and relative gaps. Chance moves a
    disparity away from 0, so that a claim of none is rather missed than made. The correction is that of q: among the
    claims that are made at most 5% are expected to be wrong.

    Parameters
    ----------
    margins : mapping of str to float
        Metric -> the largest value that does not matter (the distance from 0 where a metric has a sign; the smallest
        for a ratio of which 1 is the largest).
    """
    p, tested = np.full(table.height, np.nan), ~np.isnan(_floats(table["p"]))
    value, low, high = (_floats(table[name]) for name in ("value", "ci_low", "ci_high"))
    for metric, margin in margins.items():
        rows, traits = (table["metric"] == metric).to_numpy() & tested, _traits()[metric]
        ends = (low[rows], value[rows], high[rows])
        p[rows] = _beyond(ends, margin, traits, _quantile(confidence))
    return table.with_columns(pl.Series("equivalence_q", q_values(p)).fill_nan(None))


def _beyond(
    ends: tuple[NDArray[np.float64], ...], margin: float, traits: Traits, quantile: float
) -> NDArray[np.float64]:
    """Return p of "at the margin or beyond" for estimates with their intervals, (low, value, high)."""
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        if _is_two_sided(traits):
            low, value, high = ends
            above, below = (margin - value) / (high - value), (value + margin) / (value - low)
            distance = np.minimum(above, below)
        elif traits.when_identical == traits.bounds[1]:
            low, value, _ = map(np.log, ends)
            distance = (value - np.log(margin)) / (value - low)
        else:
            shift = 1.0 - traits.bounds[0]
            _, value, high = (np.log(each + shift) for each in ends)
            distance = (np.log(margin + shift) - value) / (high - value)
        p = ndtr(-distance * quantile)
    return np.where(np.isfinite(distance), p, np.nan)
