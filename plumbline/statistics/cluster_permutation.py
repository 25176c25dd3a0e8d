"""Permutation tests of "no difference between groups" for images that come in clusters, such as counterfactual sets.

What is exchangeable if groups do not differ is the block, all images of one group in one cluster: the images of a
person as a man are alike beyond what they share with the images of the same person as a woman. So the labels of whole
blocks are permuted, as in a randomised block design with several observations a plot (Edgington & Onghena 2007,
chapters 5 and 6). Permuting the labels of images is exact only without a cluster × group interaction.

Blocks are permuted within their cluster; clusters of one group among others of about their size. Groups keep their
sizes: where a block takes the place of one of another size, its images are thinned out or repeated, and the test is
approximate. Thinning makes chance larger, so that less is found; dealing whole blocks of any size would not keep the
level where the larger blocks are of one group (docs/decisions/0093).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lgamma
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.reasons import Reason, reason

MAX_PERMUTED_LABELS = 200_000_000
"""Maximum of blocks (or images, where blocks differ in size) × permutations: some two seconds; `reason` tells it."""
_BLOCK = 4_000_000
FEWEST_OF_A_SIZE = 16
"""Fewest clusters of one group each that are of one class of sizes."""
MOST_FIXED = 0.1
"""By how much classes of sizes may raise the share of a group's images that stay in it; else all are dealt together."""


@dataclass(frozen=True)
class Relabelled:
    """Labels of blocks after some permutations.

    Attributes
    ----------
    labels : (r, b) int64
        Group to which each block is dealt.
    weights : (r, u) int64 or None
        How often each image in a group counts; None where each counts once.
    """

    labels: NDArray[np.integer]
    weights: NDArray[np.integer] | None


@dataclass(frozen=True)
class ClusterPermutation:
    """How labels may be dealt out anew if groups do not differ.

    Attributes
    ----------
    used : (n,) bool
        Which images are in a group.
    blocks : (u,) int64
        Block of each of these, 0 .. b - 1, in the order of their first images.
    groups, clusters, sizes : (b,) int64
        Group, cluster and images of each block.
    """

    used: NDArray[np.bool_]
    blocks: NDArray[np.int64]
    groups: NDArray[np.int64]
    clusters: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, groups: NDArray[np.int64], clusters: NDArray[np.int64]) -> ClusterPermutation:
        """Find the blocks of images of (n,) groups, -1 for those in none, and clusters."""
        used = groups >= 0
        groups = groups[used]
        units = np.unique(clusters[used], return_inverse=True)[1].reshape(-1)
        cells = units * (groups.max(initial=0) + 1) + groups
        _, first, inverse, sizes = np.unique(cells, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return cls(used, rank[inverse.reshape(-1)], groups[first[order]], units[first[order]], sizes[order])

    @cached_property
    def strata(self) -> tuple[NDArray[np.int64], ...]:
        """Return (m, k) arrays of blocks: those of a row may change places with each other."""
        order = np.argsort(self.clusters, kind="stable")
        counts = np.bincount(self.clusters)
        starts = np.cumsum(counts) - counts
        mixed = [order[starts[counts == k][:, None] + np.arange(k)] for k in np.unique(counts[counts > 1])]
        return (*mixed, *(places[None] for places in self._alone if len(places) > 1))

    @cached_property
    def _alone(self) -> tuple[NDArray[np.int64], ...]:
        """Return the blocks that are a cluster of their own, those that may change places together.

        By classes of sizes, in which the largest is at most twice the smallest, unless sizes go with groups.
        """
        everyone = np.concatenate(self._classes)
        return (self._in_order(everyone),) if self.sizes_go_with_groups else self._classes

    @cached_property
    def sizes_go_with_groups(self) -> bool:
        """Return whether, among clusters of one group and of about one size, hardly any would leave its group."""
        kept = self._kept(self._classes) - self._kept((np.concatenate(self._classes),))
        return bool((kept > MOST_FIXED).any())

    @cached_property
    def _classes(self) -> tuple[NDArray[np.int64], ...]:
        everyone = np.flatnonzero(np.bincount(self.clusters)[self.clusters] == 1)
        by_size = everyone[np.argsort(self.sizes[everyone], kind="stable")]
        sizes, starts = self.sizes[by_size], [0]
        while len(sizes) - starts[-1] >= 2 * FEWEST_OF_A_SIZE:
            twice = int(np.searchsorted(sizes, 2 * sizes[starts[-1]], side="right"))
            starts.append(max(starts[-1] + FEWEST_OF_A_SIZE, twice))
        # Too few to be a class of their own are of the one before.
        ends = [start for start in starts[1:] if len(sizes) - start >= FEWEST_OF_A_SIZE]
        return tuple(map(self._in_order, np.split(by_size, ends)))

    def _in_order(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        return blocks[np.argsort(self.clusters[blocks], kind="stable")]

    def _kept(self, classes: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """Return which share of its images each group keeps, (g,), where the blocks of each class change places."""
        g = int(self.groups.max(initial=0)) + 1
        kept, images = np.zeros(g), np.zeros(g)
        for places in classes:
            held = np.bincount(self.groups[places], weights=self.sizes[places], minlength=g)
            kept += held * np.bincount(self.groups[places], minlength=g) / max(len(places), 1)
            images += held
        return kept / np.maximum(images, 1)

    @cached_property
    def even(self) -> bool:
        """Return whether blocks that may change places are of one size."""
        return all((self.sizes[places] == self.sizes[places[:, :1]]).all() for places in self.strata)

    def draw(self, rows: int, rng: np.random.Generator) -> Relabelled:
        """Deal out the blocks `rows` times."""
        # Blocks of one size: labels alone are dealt, which takes the same random numbers.
        cards = self.groups if self.even else np.arange(len(self.groups))
        dealt = np.empty((rows, len(cards)), dtype=np.int64)
        dealt[:] = cards
        for places in self.strata:
            dealt[:, places] = rng.permuted(np.broadcast_to(cards[places], (rows, *places.shape)), axis=-1)
        return Relabelled(dealt, None) if self.even else Relabelled(self.groups[dealt], self._weights(dealt, rng))

    def _weights(self, places: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return how often each image counts where its block fills a place: as evenly as whole numbers can."""
        whole, rest = np.divmod(self.sizes[places], self.sizes)
        # Images of a block in random order, of which those from a random one on count once more.
        shuffled = rng.permutation(len(self.blocks))
        order = shuffled[np.argsort(self.blocks[shuffled], kind="stable")]
        within = np.empty(len(order), dtype=np.int64)
        within[order] = np.arange(len(order)) - np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)
        start = rng.integers(0, self.sizes, size=places.shape)
        later = within + start[:, self.blocks]
        later -= np.where(later >= self.sizes[self.blocks], self.sizes[self.blocks], 0)
        return whole[:, self.blocks] + (later < rest[:, self.blocks])

    def draws(self, permutations: int, rng: np.random.Generator) -> Iterator[Relabelled]:
        """Yield permutations in parts of bounded memory, `permutations` in all or fewer (`MAX_PERMUTED_LABELS`)."""
        width = max(len(self.groups) if self.even else len(self.blocks), 1)
        rows, step = int(min(permutations, max(200, MAX_PERMUTED_LABELS // width))), max(1, _BLOCK // width)
        for start in range(0, rows, step):
            yield self.draw(min(step, rows - start), rng)

    def sums(
        self, values: NDArray[Any], *, n_groups: int, permutations: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return the (r, g, c) sums over groups of (n, c) numbers of the images, under permutations.

        Of whole numbers far below 2^53 they are exact.
        """
        drawn = [self._sums(values[self.used], each, n_groups) for each in self.draws(permutations, rng)]
        return np.concatenate(drawn)

    def tables(
        self,
        outcomes: NDArray[np.int64],
        *,
        n_groups: int,
        n_outcomes: int,
        permutations: int,
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Return the (r, g, c) counts of images by group and outcome under permutations, with the groups' own sizes.

        Parameters
        ----------
        outcomes : (n,) int
        """
        outcome = outcomes[self.used]
        if len(self.groups) * n_outcomes <= len(outcome) or not self.even:
            one_hot = (outcomes[:, None] == np.arange(n_outcomes)).astype(np.int64)
            sums = self.sums(one_hot, n_groups=n_groups, permutations=permutations, rng=rng)
            return sums.astype(np.int64)
        # Blocks of few images: counting these is faster than adding up a column for each outcome.
        size, tables = n_groups * n_outcomes, []
        for drawn in self.draws(permutations, rng):
            # Blocks are in the order of their first images: of one image each, they are the images.
            labels = drawn.labels if len(self.groups) == len(outcome) else drawn.labels[:, self.blocks]
            cell = (np.arange(len(labels))[:, None] * n_groups + labels) * n_outcomes + outcome
            tables.append(np.bincount(cell.ravel(), minlength=len(labels) * size).reshape(-1, n_groups, n_outcomes))
        return np.concatenate(tables)

    def _sums(self, values: NDArray[Any], drawn: Relabelled, n_groups: int) -> NDArray[np.float64]:
        rows = len(drawn.labels)
        columns = np.asarray(values, dtype=np.float64).T
        labels, weights = drawn.labels, drawn.weights
        if weights is None:
            columns = np.stack([np.bincount(self.blocks, weights=c, minlength=len(self.groups)) for c in columns])
        else:
            labels = labels[:, self.blocks]
        cell = (labels + n_groups * np.arange(rows)[:, None]).ravel()
        each = (
            np.tile(column, rows) if weights is None else (weights * column).ravel()  # one number a row and block
            for column in columns
        )
        sums = [np.bincount(cell, weights=numbers, minlength=rows * n_groups) for numbers in each]
        return np.stack(sums, axis=-1).astype(np.float64, copy=False).reshape(rows, n_groups, -1)

    def mixing(self, n_groups: int) -> NDArray[np.float64]:
        """Return which share of the images of a group comes from which group, see `strata_mixing`."""
        where = np.arange(len(self.groups))
        for place, blocks in enumerate(row for places in self.strata for row in places):
            where[blocks] = len(self.groups) + place
        strata = np.unique(where, return_inverse=True)[1].reshape(-1)
        cell, shape = strata * n_groups + self.groups, (strata.max(initial=-1) + 1, n_groups)
        images, blocks = (
            np.bincount(cell, weights=each, minlength=shape[0] * n_groups).reshape(shape) for each in (self.sizes, None)
        )
        # A place is filled by any block of its stratum, thinned or repeated to its size.
        with np.errstate(invalid="ignore"):
            return np.asarray(images.T @ (blocks / blocks.sum(axis=1, keepdims=True)) / images.sum(axis=0)[:, None])

    # --- How small p can become.

    @cached_property
    def least_gap_p(self) -> float:
        """Return the p of the most extreme relabelling for a statistic that treats all groups alike, such as a gap.

        One over the number of relabellings, times those that only rename groups, which give the same gap.
        """
        counts = np.bincount(self.clusters)
        ways = sum(lgamma(k + 1) for k in counts[counts > 1])
        ways += sum(lgamma(n.sum() + 1) - sum(lgamma(each + 1) for each in n) for n in self._alone_of_group)
        return round(float(np.exp(min(self._log_renamings - ways, 0.0))), 12)

    def least_count_p(self, group: int) -> float:
        """Return the least two-sided p of the count of one group: twice one over the ways to place it."""
        counts = np.bincount(self.clusters)
        members = self.clusters[self.groups == group]
        ways = float(np.log(counts[members][counts[members] > 1]).sum())
        ways += sum(_log_binomial(int(n.sum()), int(n[group])) for n in self._alone_of_group)
        return round(float(min(1.0, 2 * np.exp(-ways))), 12)

    @property
    def _alone_of_group(self) -> NDArray[np.int64]:
        """Return how many blocks of each class in `_alone` are of each group, (classes, g)."""
        g = int(self.groups.max(initial=0)) + 1
        return np.array([np.bincount(self.groups[places], minlength=g) for places in self._alone])

    @property
    def _log_renamings(self) -> float:
        """Return the logarithm of the number of renamings of groups that are relabellings.

        Groups may change names where they are in the same clusters and are alone in as many of each class.
        """
        counts = np.bincount(self.clusters)
        of_group: dict[object, int] = {}
        for group in np.unique(self.groups):
            members = self.clusters[self.groups == group]
            key = (np.sort(members[counts[members] > 1]).tobytes(), self._alone_of_group[:, group].tobytes())
            of_group[key] = of_group.get(key, 0) + 1
        return sum(lgamma(n + 1) for n in of_group.values())


def _log_binomial(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def relabelling_reason(least_p: float, confidence: float) -> Reason | None:
    """Return the reason that too few relabellings exist for evidence at a confidence level, if so."""
    return reason("few_relabellings", least=least_p) if least_p >= 1 - confidence - 1e-9 else None
