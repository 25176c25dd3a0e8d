"""Two metric tables side by side: old, new, and how sure the difference is."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from plumbline.diff.direction import worse
from plumbline.diff.schema import DIFF_SCHEMA, INDEPENDENT, KEYS, ONE_SIDE, OTHER_PROMPTS, PAIRED
from plumbline.statistics.multiplicity import add_q_values
from plumbline.tables.schema import Row

_CARRIED = ("value", "ci_low", "ci_high", "n", "reason", "suite_hash")

# Of generative models one hash is of all prompts that there are: it says nothing of the prompt of one row.
_ANSWERS = "generation"


def table_differences(
    old: pl.DataFrame, new: pl.DataFrame, paired: Sequence[Row] = (), *, models: tuple[str, str]
) -> pl.DataFrame:
    """Return every number of two tables side by side, with their difference new - old.

    Parameters
    ----------
    old, new : DataFrame
        Rows of the metric table, each of one model on one dataset.
    paired : sequence of dict
        What was compared on the same images or sets, see `plumbline.diff.cells`; it stands for the tables' own rows,
        unless the number is undefined in one of them, or is of other prompts.
    models : (str, str)
        Old and new.

    Returns
    -------
    DataFrame
        In `DIFF_SCHEMA`, without q. Without a paired comparison the interval is made of both intervals as if they were
        independent (Zou & Donner 2008, "Construction of confidence limits about effect measures", equation 2): too
        wide rather than too narrow where the sides are of the same images. It has no p. A number that one side lacks
        is kept, with the reason. A number of a suite whose prompts changed has no difference: a candidate more or less
        changes what the others win, whatever the model does.
    """
    found = pl.DataFrame(list(paired), schema=_PAIRED_SCHEMA, orient="row")
    together = _side_by_side(old, new, models)
    unlike = pl.concat(
        [
            *(side.filter(pl.col("value").is_nan()).select(KEYS) for side in (old, new)),
            together.filter(pl.col("compared") == OTHER_PROMPTS).select(KEYS),
        ]
    )
    found = found.join(unlike, on=list(KEYS), how="anti", nulls_equal=True)
    of_pairs = found.with_columns(n_old="n", n_new="n", compared=pl.lit(PAIRED))
    apart = together.join(found, on=list(KEYS), how="anti", nulls_equal=True)
    frames = [frame.pipe(_as_diff) for frame in (of_pairs, apart)]
    return pl.concat(frames).sort("model_new", "model_old", *KEYS, nulls_last=True)


def with_q(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Join the differences of all cells and fill `q`, within the families of `plumbline.statistics.multiplicity`."""
    table = pl.concat([pl.DataFrame(schema=DIFF_SCHEMA), *frames])
    return add_q_values(table, of="audit_diff").cast(pl.Schema(DIFF_SCHEMA))


_PAIRED_SCHEMA = {
    name: kind for name, kind in DIFF_SCHEMA.items() if name not in ("q", "worse", "compared")
} | {"n": pl.Int64}


def _side_by_side(old: pl.DataFrame, new: pl.DataFrame, models: tuple[str, str]) -> pl.DataFrame:
    sides = [
        side.select(
            *KEYS, *(pl.col(each).alias(f"{each}_{name}") for each in _CARRIED), pl.lit(True).alias(name)
        )
        for name, side in (("old", old), ("new", new))
    ]
    both = sides[0].join(sides[1], on=list(KEYS), how="full", coalesce=True, nulls_equal=True)
    value = {name: pl.col(f"value_{name}") for name in ("old", "new")}
    low = {name: value[name] - pl.col(f"ci_low_{name}") for name in value}
    high = {name: pl.col(f"ci_high_{name}") - value[name] for name in value}
    difference = value["new"] - value["old"]
    bounded = difference.is_not_nan() & (low["old"] + high["new"]).is_not_nan()
    lacking = (
        pl.when(pl.col("old").is_null())
        .then(pl.lit("not in the old one"))
        .when(pl.col("new").is_null())
        .then(pl.lit("not in the new one"))
    )
    independent = pl.when(bounded).then(
        pl.lit("interval from both intervals, as if the sides were independent")
    )
    said = (pl.format("{}: {}", pl.lit(name), pl.col(f"reason_{name}")) for name in value)
    told = both.with_columns(
        model_old=pl.lit(models[0]),
        model_new=pl.lit(models[1]),
        value=difference,
        ci_low=difference - (low["new"] ** 2 + high["old"] ** 2).sqrt(),
        ci_high=difference + (high["new"] ** 2 + low["old"] ** 2).sqrt(),
        compared=pl.when(lacking.is_not_null()).then(pl.lit(ONE_SIDE)).otherwise(pl.lit(INDEPENDENT)),
        reason=pl.concat_str([lacking, independent, *said], separator="; ", ignore_nulls=True),
    )
    # Two checkpoints are each asked in the wording of their family.
    return _without_other_prompts(told) if models[0] == models[1] else told


def _without_other_prompts(told: pl.DataFrame) -> pl.DataFrame:
    """Take the difference from what was asked with other prompts."""
    changed = (pl.col("suite_hash_old") != pl.col("suite_hash_new")) & (pl.col("suite") != _ANSWERS)
    other = changed.fill_null(value=False)
    reason = pl.lit("its prompts are others than before")
    return told.with_columns(
        *(
            pl.when(~other).then(name).otherwise(float("nan")).alias(name)
            for name in ("value", "ci_low", "ci_high")
        ),
        compared=pl.when(other).then(pl.lit(OTHER_PROMPTS)).otherwise("compared"),
        reason=pl.when(other).then(reason).otherwise("reason"),
    )


def _as_diff(frame: pl.DataFrame) -> pl.DataFrame:
    """Complete the columns of `DIFF_SCHEMA`; undefined numbers are nan."""
    lacking = [pl.lit(None).alias(name) for name in DIFF_SCHEMA if name not in frame.columns]
    comparable = pl.col("compared") != OTHER_PROMPTS
    away = pl.when(comparable).then(worse(pl.col("value_old"), pl.col("value_new")))
    told = frame.with_columns(lacking).with_columns(worse=away)
    return told.select(pl.col(name).cast(kind) for name, kind in DIFF_SCHEMA.items())
