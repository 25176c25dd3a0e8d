"""Images that come in clusters (counterfactual sets): whole clusters are resampled, dealt and left out."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.statistics.bootstrap import Jackknife, TableStatistic, bootstrap_weights
from plumbline.statistics.intervals import wilson
from plumbline.statistics.jackknife import standard_errors

_AT_ONCE = 2_000_000
FEW_CLUSTERS = 20
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


def few_clusters_reason(clusters: NDArray[np.int64] | None) -> str | None:
    """Say that there are too few sets for their resampling to be trusted."""
    if clusters is None:
        return None
    return few_clusters(len(np.unique(clusters)))


def few_clusters(sets: int) -> str | None:
    """Say that an interval comes from few sets."""
    return f"interval from only {sets} sets" if sets < FEW_CLUSTERS else None


def resample_clusters(
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
        times = bootstrap_weights(count, sets, rng=rng, index=np.int64)
        # Sums of whole numbers far below 2^53 are exact.
        sums[start : start + count] = times.astype(np.float64) @ flat
    return sums.reshape(resamples, *np.shape(tables)[1:])


# --- Resampling, leaving out and permuting where images come in sets (see
# `plumbline.statistics.clusters`).

MAX_PERMUTED_LABELS = 200_000_000
"""Images × permutations that are dealt at most: some two seconds. Beyond it there are fewer permutations."""
_CLUSTER_AT_ONCE = 4_000_000


def cluster_tables(
    groups: NDArray[np.int64],
    outcomes: NDArray[np.int64],
    sets: NDArray[np.int64],
    *,
    n_groups: int,
    n_outcomes: int,
) -> NDArray[np.int64]:
    """Return the (s, g, c) counts of each set that has a labelled image; -1 is an image in no group."""
    used = groups >= 0
    _, own = np.unique(sets[used], return_inverse=True)
    count = int(own.max()) + 1 if own.size else 0
    flat = (own * n_groups + groups[used]) * n_outcomes + outcomes[used]
    return np.bincount(flat, minlength=count * n_groups * n_outcomes).reshape(count, n_groups, n_outcomes)


def jackknife_clusters(tables: NDArray[np.int64], statistic: TableStatistic) -> Jackknife:
    """Compute a statistic with one set left out, for every set; all sets are one sample.

    Parameters
    ----------
    tables : (s, g, c) int
        From `cluster_tables`.
    statistic : callable
        Takes (k, g, c) tables, gives (k,) values.
    """
    return Jackknife.of_units(statistic(tables.sum(axis=0)[None] - tables))


def permute_clusters(
    groups: NDArray[np.int64],
    outcomes: NDArray[np.int64],
    sets: NDArray[np.int64],
    *,
    n_groups: int,
    n_outcomes: int,
    permutations: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw tables under "no difference between groups" that keep what the sets have in common.

    Where sets hold several groups, labels are shuffled within each set: a person's own looks then cancel out. Where
    every set is of one group, whole sets are shuffled.

    Parameters
    ----------
    groups, outcomes, sets : (n,) int
        -1 in `groups` is an image in no group.

    Returns
    -------
    (r, g, c) int64
        r is `permutations`, or fewer for very many images (`MAX_PERMUTED_LABELS`).
    """
    used = groups >= 0
    codes, results = groups[used], outcomes[used]
    _, own = np.unique(sets[used], return_inverse=True)
    draws = int(min(permutations, max(200, MAX_PERMUTED_LABELS // max(len(codes), 1))))
    mixed = _are_mixed(codes, own)
    step = max(1, _CLUSTER_AT_ONCE // max(len(codes), 1))
    tables = np.empty((draws, n_groups, n_outcomes), dtype=np.int64)
    for start in range(0, draws, step):
        count = min(step, draws - start)
        dealt = _dealt_within(codes, own, count, rng) if mixed else _dealt_whole(codes, own, count, rng)
        row = np.arange(count)[:, None]
        flat = ((row * n_groups + dealt) * n_outcomes + results).ravel()
        size = count * n_groups * n_outcomes
        tables[start : start + count] = np.bincount(flat, minlength=size).reshape(count, n_groups, n_outcomes)
    return tables


def permute_labels(
    groups: NDArray[np.int64], sets: NDArray[np.int64], *, permutations: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Shuffle labels as `permute_clusters` does: within sets, or whole sets where each is of one group.

    Parameters
    ----------
    groups, sets : (n,) int
        Every image is in a group.

    Returns
    -------
    (permutations, n) int64
        Group of each image.
    """
    _, own = np.unique(sets, return_inverse=True)
    deal = _dealt_within if _are_mixed(groups, own) else _dealt_whole
    return deal(groups, own, permutations, rng)


def _are_mixed(codes: NDArray[np.int64], own: NDArray[np.int64]) -> bool:
    """Return whether some set holds several groups."""
    return len(np.unique(own * (int(codes.max(initial=0)) + 1) + codes)) > len(np.unique(own))


def _dealt_within(
    codes: NDArray[np.int64], own: NDArray[np.int64], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Shuffle the groups of each set's images, (count, n)."""
    dealt = np.empty((count, len(codes)), dtype=np.int64)
    order = np.argsort(own, kind="stable")
    sizes = np.bincount(own)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    # Sets of one size are shuffled together.
    for size in np.unique(sizes):
        places = order[starts[sizes == size][:, None] + np.arange(size)]
        same = np.broadcast_to(codes[places], (count, *places.shape))
        dealt[:, places] = rng.permuted(same, axis=-1)
    return dealt


def _dealt_whole(
    codes: NDArray[np.int64], own: NDArray[np.int64], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Shuffle which set has which group, (count, n)."""
    of_set = np.zeros(int(own.max()) + 1, dtype=np.int64)
    of_set[own] = codes
    return rng.permuted(np.broadcast_to(of_set, (count, len(of_set))), axis=-1)[:, own]


def cluster_wilson(
    hit: NDArray[np.bool_] | NDArray[np.float64], sets: NDArray[np.int64], *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return Wilson's interval of a share of images that come in sets, with the effective number of images.

    The effective number is n over the design effect (the cluster-robust variance over that of independent images),
    at most n (Korn & Graubard 1998). Where all images agree no variance can be seen: it is then the number of sets.

    Parameters
    ----------
    hit : (n,) bool, or float in [0, 1]
        A part of a hit, such as of a tie, counts as that part.
    sets : (n,) int

    Returns
    -------
    low, high : float
        nan without images.
    """
    n = len(hit)
    if n == 0:
        return float("nan"), float("nan")
    share = float(hit.mean())
    error, units = standard_errors((hit - share) / n, sets)
    effective = float(len(np.unique(sets)))
    if 0 < share < 1 and units > 1 and error > 0:
        effective = min(float(n), share * (1 - share) / float(error) ** 2)
    low, high = wilson(share * effective, effective, confidence=confidence)
    return float(low), float(high)
