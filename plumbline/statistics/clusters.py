"""Images that come in sets: the unit of resampling is then the set, since its images are not independent.

The images of a counterfactual set, or of a CausalFace seed, show one person with something changed.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.statistics.unit_draws import times_drawn

_AT_ONCE = 2_000_000
FEW_SETS = 20
"""Fewer sets than this give intervals that are themselves uncertain (Cameron, Gelbach & Miller 2008): it is said."""


def cluster_codes(records: pl.DataFrame) -> NDArray[np.int64] | None:
    """Return each image's set as a code, or None where no set has two images.

    Parameters
    ----------
    records : DataFrame
        With a column `set_id` where the dataset has sets; an image without one is a set of its own.

    Returns
    -------
    (n,) int64 or None
        0 .. sets - 1, in the order of their names.
    """
    if "set_id" not in records.columns:
        return None
    sets = records["set_id"].cast(pl.String)
    known = sets.drop_nulls()
    if known.n_unique() == len(known):
        return None
    row = pl.int_range(pl.len()).cast(pl.String)
    name = pl.when(sets.is_null()).then("alone " + row).otherwise("set " + sets)
    return sets.to_frame().select(name.rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()


def few_sets_reason(clusters: NDArray[np.int64] | None) -> str | None:
    """Say that there are too few sets for their resampling to be trusted."""
    if clusters is None:
        return None
    return few_sets(len(np.unique(clusters)))


def few_sets(sets: int) -> str | None:
    """Say that an interval comes from few sets."""
    return f"interval from only {sets} sets" if sets < FEW_SETS else None


def resample_sets(
    tables: NDArray[np.int64], *, resamples: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw bootstrap replicates of a table of counts by drawing whole sets with replacement.

    A replicate is the sum of the drawn sets' own tables, so counting how often each set is drawn and one matrix
    product give what gathering all images of the drawn sets would.

    Parameters
    ----------
    tables : (s, ..., g, c) int
        Counts of each set.
    resamples : int
        Replicates, at least 1.

    Returns
    -------
    (resamples, ..., g, c) int64
        Group sizes vary, as the sets that are drawn do.

    Raises
    ------
    MetricError
        If there is no set, or `resamples` is below 1.
    """
    sets = len(tables)
    if sets == 0 or resamples < 1:
        raise MetricError("sets are resampled from at least one", found=f"{sets} sets, {resamples} resamples")
    flat = np.asarray(tables, dtype=np.float64).reshape(sets, -1)
    sums = np.empty((resamples, flat.shape[1]), dtype=np.int64)
    step = max(1, _AT_ONCE // sets)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        times = times_drawn(count, sets, rng=rng, index=np.int64)
        # Sums of whole numbers far below 2^53 are exact.
        sums[start : start + count] = times.astype(np.float64) @ flat
    return sums.reshape(resamples, *np.shape(tables)[1:])
