"""Count tables of clustered images, such as counterfactual sets: whole clusters are resampled and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.reasons import Reason, reason
from plumbline.statistics.bootstrap import TableStatistic, weight_blocks
from plumbline.statistics.intervals import wilson
from plumbline.statistics.jackknife import Jackknife, standard_errors

FEW_CLUSTERS = 20
"""Intervals from fewer clusters are unreliable (Cameron, Gelbach & Miller 2008); the reason reports it."""
MAX_PERMUTED_LABELS = 200_000_000
"""Maximum of images × permutations, about two seconds; for more images there are fewer permutations."""
_BLOCK = 4_000_000


def cluster_codes(records: pl.DataFrame) -> NDArray[np.int64] | None:
    """Return the cluster of each image, which is its `set_id`, or None where no set has two images.

    Parameters
    ----------
    records : DataFrame
        With a column `set_id` where the dataset has sets; an image without one is a cluster of its own.

    Returns
    -------
    (n,) int64 or None
        0 .. clusters - 1, in the order of their names.
    """
    if "set_id" not in records.columns:
        return None
    set_ids = records["set_id"].cast(pl.String)
    known = set_ids.drop_nulls()
    if known.n_unique() == len(known):
        return None
    row = pl.int_range(pl.len()).cast(pl.String)
    name = pl.when(set_ids.is_null()).then("alone " + row).otherwise("set " + set_ids)
    return set_ids.to_frame().select(name.rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()


def few_clusters_reason(clusters: NDArray[np.int64] | None) -> Reason | None:
    """Return the reason that images have fewer than `FEW_CLUSTERS` clusters, if so."""
    return None if clusters is None else cluster_count_reason(len(np.unique(clusters)))


def cluster_count_reason(count: int) -> Reason | None:
    """Return the reason that an interval comes from fewer than `FEW_CLUSTERS` clusters, if so."""
    return reason("few_clusters", clusters=count) if count < FEW_CLUSTERS else None


def resample_clusters(tables: NDArray[np.int64], *, resamples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw bootstrap replicates of a table of counts by drawing whole clusters with replacement.

    A replicate is the sum of the tables of the drawn clusters: one matrix product of bootstrap weights and tables.

    Parameters
    ----------
    tables : (s, ..., g, c) int
        Counts of each cluster.
    resamples : int
        Replicates, at least 1.

    Returns
    -------
    (resamples, ..., g, c) int64
        Group sizes vary with the clusters that are drawn.

    Raises
    ------
    MetricError
        If there is no cluster, or `resamples` is below 1.
    """
    count = len(tables)
    if count == 0 or resamples < 1:
        raise MetricError("resampling needs at least one cluster", found=f"{count} clusters, {resamples} resamples")
    flat = np.asarray(tables, dtype=np.float64).reshape(count, -1)
    weights = weight_blocks(count, resamples=resamples, rng=rng, index=np.int64)
    # Sums of whole numbers far below 2^53 are exact.
    sums = np.concatenate([(block @ flat).astype(np.int64) for block in weights])
    return sums.reshape(resamples, *np.shape(tables)[1:])


def cluster_tables(
    groups: NDArray[np.int64],
    outcomes: NDArray[np.int64],
    clusters: NDArray[np.int64],
    *,
    n_groups: int,
    n_outcomes: int,
) -> NDArray[np.int64]:
    """Return the (s, g, c) counts of each cluster that has a labelled image; -1 is an image in no group."""
    used = groups >= 0
    names, units = np.unique(clusters[used], return_inverse=True)
    count = len(names)
    flat = (units * n_groups + groups[used]) * n_outcomes + outcomes[used]
    return np.bincount(flat, minlength=count * n_groups * n_outcomes).reshape(count, n_groups, n_outcomes)


def jackknife_clusters(tables: NDArray[np.int64], statistic: TableStatistic) -> Jackknife:
    """Compute a statistic with one cluster left out, for every cluster; all clusters are one sample.

    Parameters
    ----------
    tables : (s, g, c) int
        From `cluster_tables`.
    statistic : callable
        Takes (k, g, c) tables, gives (k,) values.
    """
    return Jackknife.from_units(statistic(tables.sum(axis=0)[None] - tables))


def permute_clusters(
    groups: NDArray[np.int64],
    outcomes: NDArray[np.int64],
    clusters: NDArray[np.int64],
    *,
    n_groups: int,
    n_outcomes: int,
    permutations: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw tables under "no difference between groups", with the dependence within clusters preserved.

    Where clusters hold several groups, labels are permuted within each cluster: what its images share then cancels out.
    Where every cluster is of one group, labels are permuted over whole clusters.

    Parameters
    ----------
    groups, outcomes, clusters : (n,) int
        -1 in `groups` is an image in no group.

    Returns
    -------
    (r, g, c) int64
        r is `permutations`, or fewer for very many images (`MAX_PERMUTED_LABELS`).
    """
    used = groups >= 0
    size = n_groups * n_outcomes
    tables = [
        np.bincount(
            ((np.arange(len(labels))[:, None] * n_groups + labels) * n_outcomes + outcomes[used]).ravel(),
            minlength=len(labels) * size,
        ).reshape(-1, n_groups, n_outcomes)
        for labels in permuted_label_blocks(groups[used], clusters[used], permutations=permutations, rng=rng)
    ]
    return np.concatenate(tables)


def permuted_label_blocks(
    groups: NDArray[np.int64], clusters: NDArray[np.int64], *, permutations: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield (b, n) labels permuted as by `permute_labels`, in blocks of bounded memory.

    There are `permutations` in all, or fewer for very many images (`MAX_PERMUTED_LABELS`).
    """
    n = max(len(groups), 1)
    draws, step = int(min(permutations, max(200, MAX_PERMUTED_LABELS // n))), max(1, _BLOCK // n)
    permute = _permutation(groups, clusters)
    for start in range(0, draws, step):
        yield permute(min(step, draws - start), rng)


def permute_labels(
    groups: NDArray[np.int64], clusters: NDArray[np.int64], *, permutations: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Permute labels as `permute_clusters` does: within clusters, or over whole clusters where each is of one group.

    Parameters
    ----------
    groups, clusters : (n,) int
        Every image is in a group.

    Returns
    -------
    (permutations, n) int64
        Group of each image.
    """
    return _permutation(groups, clusters)(permutations, rng)


def _permutation(
    groups: NDArray[np.int64], clusters: NDArray[np.int64]
) -> Callable[[int, np.random.Generator], NDArray[np.int64]]:
    names, units = np.unique(clusters, return_inverse=True)
    cells = np.unique(units * (groups.max(initial=0) + 1) + groups)
    mixed = len(cells) > len(names)
    return partial(_permute_within if mixed else _permute_whole, groups, units)


def _permute_within(
    codes: NDArray[np.int64], units: NDArray[np.int64], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Permute labels within each cluster, (count, n)."""
    permuted = np.empty((count, len(codes)), dtype=np.int64)
    order = np.argsort(units, kind="stable")
    sizes = np.bincount(units)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    # Clusters of one size are permuted together.
    for size in np.unique(sizes):
        places = order[starts[sizes == size][:, None] + np.arange(size)]
        same = np.broadcast_to(codes[places], (count, *places.shape))
        permuted[:, places] = rng.permuted(same, axis=-1)
    return permuted


def _permute_whole(
    codes: NDArray[np.int64], units: NDArray[np.int64], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Permute labels over whole clusters, (count, n)."""
    of_cluster = np.zeros(units.max(initial=-1) + 1, dtype=np.int64)
    of_cluster[units] = codes
    return rng.permuted(np.broadcast_to(of_cluster, (count, len(of_cluster))), axis=-1)[:, units]


def cluster_wilson(
    hit: NDArray[np.bool_] | NDArray[np.float64], clusters: NDArray[np.int64], *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return Wilson's interval of a share of images that come in clusters, with the effective sample size.

    The effective sample size is n over the design effect, the cluster-robust variance over that of independent images,
    at most n (Korn & Graubard 1998). Where all images agree there is no variance to see: it is the number of clusters.

    Parameters
    ----------
    hit : (n,) bool, or float in [0, 1]
        Fractional hits, such as shares of a tie, count as fractions.
    clusters : (n,) int

    Returns
    -------
    low, high : float
        nan without images.
    """
    n = len(hit)
    if n == 0:
        return float("nan"), float("nan")
    share = float(hit.mean())
    error, units = standard_errors((hit - share) / n, clusters)
    effective = float(len(np.unique(clusters)))
    if 0 < share < 1 and units > 1 and error > 0:
        effective = min(float(n), share * (1 - share) / float(error) ** 2)
    low, high = wilson(share * effective, effective, confidence=confidence)
    return float(low), float(high)
