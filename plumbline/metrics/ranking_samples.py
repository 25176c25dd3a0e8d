"""Rankings of the same images by many scores, and their k best: counted, resampled, and as chance would have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.clusters import FEW_SETS
from plumbline.statistics.ranking_bootstrap import (
    SET_RESAMPLES,
    leave_one_out_top_counts,
    resample_group_totals,
    resample_top_counts,
    resample_top_counts_of_sets,
    top_counts,
    top_draws,
)
from plumbline.statistics.ranking_null import top_count_p_values, top_counts_by_chance
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_sampling import deal_groups

K = 1_000
"""The paper's k."""
MOST_BLOCKS = 100
"""Sets that are left out one by one at most; more sets are joined to this many blocks, of equal number of sets."""
MOST_WALKED = 60_000_000
"""Images × rankings × blocks or permutations of sets at most: about a second."""
SET_PERMUTATIONS = 1_000
"""Permutations at most where labels are shuffled within sets."""
LEAST_PERMUTATIONS = 100
"""Fewer cannot tell what is significant."""


def usual_k(n: int) -> int:
    """Return the paper's k = 1,000, or half of the images where there are fewer than 2,000."""
    return K if n >= 2 * K else n // 2


@dataclass(frozen=True)
class RankedGroups:
    """Rankings of the same labelled images.

    Attributes
    ----------
    order : (m, n) int64
        Images by rank, best first.
    groups : (n,) int64
        Group of each image, 0 .. g - 1; every group has an image.
    n_groups : int
    sets : (n,) int64 or None
        Set of each image, where images come in sets.
    dealt : (p, n) int or None
        Groups of the images after shuffling labels as the sets allow, see `deal_in_sets`; needed with sets.
    """

    order: NDArray[np.int64]
    groups: NDArray[np.int64]
    n_groups: int
    sets: NDArray[np.int64] | None = None
    dealt: NDArray[Any] | None = None

    @property
    def n(self) -> int:
        """Return the number of ranked images."""
        return len(self.groups)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Return (g,) images of each group."""
        return np.bincount(self.groups, minlength=self.n_groups)

    @cached_property
    def codes(self) -> NDArray[Any]:
        """Return (m, n) group codes by rank."""
        return self.groups.astype(np.uint8 if self.n_groups <= 256 else np.uint16)[self.order]

    def only(self, chosen: slice) -> RankedGroups:
        """Return some of the rankings."""
        return replace(self, order=self.order[chosen])


@dataclass(frozen=True)
class TopSample:
    """The k best of each ranking: as counted, resampled, with something left out, and as chance would have it.

    Groups run along the second axis throughout; a first axis of 1 is the same for all rankings.

    Attributes
    ----------
    k : int
    sizes : (g,) int64
    counts : (m, g) int64
    resampled : (m, g, r) int32
    totals : (m, g, r) or (1, g, r) int64, or None
        Images of each group in the replicates, which the desired shares of the ranked set need.
    left : (m, g, v) int64
        Counts with something left out: an image of each kind, or a block of sets.
    left_totals : (m, g, v) or (1, g, v) int64
    left_weight : (m, v) or (1, v) int64
        How many images are of the kind; 1 for a block.
    p : (m, g) float64
        Of each group's count, two-sided.
    chance : (1, g, p) or (m, g, p) int64
        Counts of random rankings.
    """

    k: int
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    resampled: NDArray[np.int32]
    totals: NDArray[np.int64] | None
    left: NDArray[np.int64]
    left_totals: NDArray[np.int64]
    left_weight: NDArray[np.int64]
    p: NDArray[np.float64]
    chance: NDArray[np.int64]


def sample_top(
    ranked: RankedGroups,
    *,
    k: int,
    settings: MetricSettings,
    labels: Sequence[str],
    with_totals: bool = False,
) -> TopSample:
    """Count, resample, leave out and permute the k best of rankings.

    Parameters
    ----------
    k : int
        Less than the number of images.
    labels : sequence of str
        What the draws that are made for these rankings alone are named by.
    with_totals : bool
        Whether group totals are resampled too; with sets they always are.
    """
    if ranked.sets is not None:
        return _sample_top_of_sets(ranked, ranked.sets, k, settings, labels)
    g, codes = ranked.n_groups, ranked.codes
    draws = top_draws(ranked.n, k, resamples=settings.resamples, seed=settings.seed)
    counts = top_counts(codes, k=k, n_groups=g)
    resampled = resample_top_counts(codes, draws, n_groups=g)
    totals = None
    if with_totals:
        rng = generator(settings.seed, *labels, "group totals")
        totals = resample_group_totals(codes, resampled, draws, n_groups=g, rng=rng)
    left, left_totals, images = leave_one_out_top_counts(codes, k=k, n_groups=g)
    sizes = tuple(ranked.sizes.tolist())
    chance = top_counts_by_chance(sizes, k, permutations=settings.permutations, seed=settings.seed)
    return TopSample(
        k=k,
        sizes=ranked.sizes,
        counts=counts,
        resampled=resampled,
        totals=totals,
        left=np.swapaxes(left.reshape(-1, 2 * g, g), 1, 2),
        left_totals=np.swapaxes(left_totals.reshape(-1, 2 * g, g), 1, 2),
        left_weight=images.reshape(-1, 2 * g),
        p=top_count_p_values(counts, ranked.sizes, k=k),
        chance=chance.T[None],
    )


def _sample_top_of_sets(
    ranked: RankedGroups,
    sets: NDArray[np.int64],
    k: int,
    settings: MetricSettings,
    labels: Sequence[str],
) -> TopSample:
    """As `sample_top`, with whole sets drawn and left out, and labels shuffled within sets."""
    g, codes, blocks = ranked.n_groups, ranked.codes, set_blocks(sets, rankings=len(ranked.order))
    own = np.unique(sets, return_inverse=True)[1]
    of_set, of_block = _set_table(own, ranked), _set_table(blocks, ranked)
    rng = generator(settings.seed, *labels, "bootstrap")
    resamples = min(settings.resamples, SET_RESAMPLES)
    drawn = rng.multinomial(len(of_set), np.full(len(of_set), 1 / len(of_set)), size=resamples)
    # What holds fewer than k images cannot be ranked.
    drawn = drawn[(drawn @ of_set).sum(axis=1) >= k]
    without = 1 - np.eye(len(of_block), dtype=np.int64)
    without = without[(without @ of_block).sum(axis=1) >= k]
    # Where no set can be left out, the acceleration of BCa is that of values that do not vary: 0.
    without = without if len(without) else np.ones((1, len(of_block)), dtype=np.int64)
    counts = top_counts(codes, k=k, n_groups=g)
    chance = _chance_counts_of_sets(ranked, k)
    return TopSample(
        k=k,
        sizes=ranked.sizes,
        counts=counts,
        resampled=resample_top_counts_of_sets(codes, own[ranked.order], drawn, k=k, n_groups=g),
        totals=(drawn @ of_set).T[None],
        left=resample_top_counts_of_sets(codes, blocks[ranked.order], without, k=k, n_groups=g).astype(
            np.int64
        ),
        left_totals=(without @ of_block).T[None],
        left_weight=np.ones((1, len(without)), dtype=np.int64),
        p=_two_sided(counts, chance),
        chance=chance,
    )


def _set_table(sets: NDArray[np.int64], ranked: RankedGroups) -> NDArray[np.int64]:
    """Return (s, g) images of each set and group."""
    table = np.zeros((int(sets.max()) + 1, ranked.n_groups), dtype=np.int64)
    np.add.at(table, (sets, ranked.groups), 1)
    return table


def set_blocks(sets: NDArray[np.int64], *, rankings: int) -> NDArray[np.int64]:
    """Return the block of each image, (n,): what is left out as a whole. A set, or where sets are many, several."""
    own = np.unique(sets, return_inverse=True)[1]
    most = max(FEW_SETS, min(MOST_BLOCKS, MOST_WALKED // max(rankings * len(own), 1)))
    return own % min(int(own.max()) + 1, most)


def deal_in_sets(
    groups: NDArray[np.int64], sets: NDArray[np.int64], *, settings: MetricSettings, labels: Sequence[str]
) -> NDArray[Any]:
    """Shuffle labels as the sets allow: within sets, or whole sets where each is of one group.

    Returns
    -------
    (p, n) uint8 or uint16
        Groups of the images; at most `SET_PERMUTATIONS` times, fewer for very many images.
    """
    fewer = max(LEAST_PERMUTATIONS, MOST_WALKED // len(groups))
    permutations = min(settings.permutations, SET_PERMUTATIONS, fewer)
    rng = generator(settings.seed, *labels, "permutation")
    dealt = np.empty((permutations, len(groups)), dtype=np.uint8 if groups.max() < 256 else np.uint16)
    for start in range(0, permutations, 50):
        rows = dealt[start : start + 50]
        rows[:] = deal_groups(groups, sets, permutations=len(rows), rng=rng)
    return dealt


def dealt_labels(ranked: RankedGroups) -> NDArray[Any]:
    """Return the shuffled labels (p, n) of rankings of sets; raises MetricError where none were given."""
    if ranked.dealt is None:
        raise MetricError("rankings of sets need shuffled labels", hint="give `dealt`, from deal_in_sets")
    return ranked.dealt


def _chance_counts_of_sets(ranked: RankedGroups, k: int) -> NDArray[np.int64]:
    """Return the top-k counts (m, g, p) after shuffling labels as the sets allow."""
    dealt = dealt_labels(ranked)
    groups = np.arange(ranked.n_groups, dtype=dealt.dtype)
    tops = (dealt[:, order[:k]] for order in ranked.order)
    return np.stack([np.stack([(top == group).sum(axis=1) for group in groups]) for top in tops])


def _two_sided(counts: NDArray[np.int64], chance: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return twice the smaller one-sided permutation p of counts (m, g) among (m, g, p), at most 1."""
    above = 1 + (chance >= counts[..., None]).sum(axis=-1)
    below = 1 + (chance <= counts[..., None]).sum(axis=-1)
    return np.minimum(2 * np.minimum(above, below) / (1 + chance.shape[-1]), 1.0)
