"""Paired resampling of several classifiers' predictions on the same images.

A difference between two checkpoints on the same images must be resampled with both answers to an image in one draw.
Drawing images once for all checkpoints does that for every pair: a replicate is one weight per image, and the counts of
all checkpoints, events and groups are one matrix product. So are the sums over a random half of the images, from which
the counts after swapping two checkpoints' answers follow for any pair. Clustered images are drawn, and swapped, with
their whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.statistics.bootstrap import bit_blocks, weight_blocks
from plumbline.statistics.groups import count_table
from plumbline.statistics.jackknife import Jackknife

# Weights that exist at a time: few enough to stay in a core's cache, whatever the number of images.
_BLOCK = 200_000
# OpenBLAS starts threads for products larger than this. Many small ones in our own threads are up to twenty times as
# fast where other processes want the cores too.
_THREADLESS = 2**18


@dataclass(frozen=True)
class AnswerDraws:
    """Counts of answers by group, in the data and in resamples; draws are on the last axis.

    Attributes
    ----------
    counts : (m, g) int64
        Images of each group for which each of m yes-or-no answers is yes; of scores, the sum over the group's images.
    sizes : (g,) int64
        Images of each group.
    resampled : (m, g, r) float32
        Counts in each bootstrap replicate.
    resampled_sizes : (g, r) float32
        Group sizes in each replicate: constant, unless whole clusters are drawn.
    halves : (m, g, p) float32
        Counts within random subsets of the images (each chosen with probability ½), whose predictions are swapped.
    """

    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    resampled: NDArray[np.float32]
    resampled_sizes: NDArray[np.float32]
    halves: NDArray[np.float32]

    def swapped(self, first: NDArray[np.intp], second: NDArray[np.intp]) -> tuple[NDArray, NDArray]:
        """Return the (e, g, p) counts of two classifiers' answers after swapping those to a random half of the
        images."""
        moved = self.halves[second] - self.halves[first]
        return self.counts[first][..., None] + moved, self.counts[second][..., None] - moved


def draw_answers(
    answers: NDArray[np.bool_] | NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    n_groups: int,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    clusters: NDArray[np.int64] | None = None,
) -> AnswerDraws:
    """Count answers, in the data and in draws of it.

    Parameters
    ----------
    answers : (m, n) bool or int64
        Yes-or-no answers of one or several classifiers to each image; or scores, small whole numbers from 0 such as
        how many of 15 tests an image passed, which are then summed.
    groups : (n,) int
        0 .. n_groups - 1; -1 is an image of no group, which does not count.
    resamples, permutations : int
        r and p, at least 1.
    clusters : (n,) int, optional
        Cluster of each image: whole clusters are then drawn from all, and group sizes vary. Otherwise images are drawn
        within their group.

    Raises
    ------
    MetricError
        If the shapes disagree or a number of draws is below 1.
    """
    if answers.ndim != 2 or answers.shape[1:] != groups.shape or min(resamples, permutations) < 1:
        raise MetricError(
            "answers and groups must describe the same images, and there must be draws",
            found=f"answers {answers.shape}, groups {groups.shape}, {resamples} and {permutations} draws",
            expected="(m, n) and (n,), at least 1",
        )
    if clusters is None:
        counted = count_answers(answers, groups, n_groups=n_groups)
        by_group = [answers[:, groups == group] for group in range(n_groups)]
        return replace(
            counted,
            resampled=np.stack([_resampled(each, resamples, rng) for each in by_group], axis=1),
            resampled_sizes=np.repeat(counted.sizes.astype(np.float32)[:, None], resamples, axis=1),
            halves=np.stack([_halved(each, permutations, rng) for each in by_group], axis=1),
        )
    # The last column counts every image, which gives the sizes of the groups.
    columns = np.concatenate([answers, np.ones((1, len(groups)), dtype=answers.dtype)])
    per_cluster = _by_cluster(columns, groups, clusters, n_groups)
    counts = per_cluster.sum(axis=1).reshape(-1, n_groups)
    resampled = _resampled(per_cluster, resamples, rng).reshape(len(columns), n_groups, -1)
    halves = _halved(per_cluster[: len(answers) * n_groups], permutations, rng)
    return AnswerDraws(
        counts[:-1], counts[-1], resampled[:-1], resampled[-1], halves.reshape(len(answers), n_groups, -1)
    )


def count_answers(
    answers: NDArray[np.bool_] | NDArray[np.int64], groups: NDArray[np.int64], *, n_groups: int
) -> AnswerDraws:
    """Count answers in the data alone, without any draw; see `draw_answers`."""
    by_group = [answers[:, groups == group] for group in range(n_groups)]
    none = np.zeros((len(answers), n_groups, 0), dtype=np.float32)
    return AnswerDraws(
        counts=np.stack([each.sum(axis=1) for each in by_group], axis=1),
        sizes=np.array([each.shape[1] for each in by_group], dtype=np.int64),
        resampled=none,
        resampled_sizes=none[0],
        halves=none,
    )


def _by_cluster(
    columns: NDArray[np.bool_] | NDArray[np.int64],
    groups: NDArray[np.int64],
    clusters: NDArray[np.int64],
    n_groups: int,
) -> NDArray[np.int64]:
    """Return (k · g, c) sums by column, group and cluster."""
    within = groups >= 0
    # Clusters without an image in a group are left out: they would only make the group sizes vary more.
    codes = np.unique(clusters[within], return_inverse=True)[1]
    n_clusters = int(codes.max(initial=-1)) + 1
    cell = groups[within] * n_clusters + codes
    # Sums of whole numbers far below 2^53 are exact.
    sums = [np.bincount(cell, weights=column, minlength=n_groups * n_clusters) for column in columns[:, within]]
    return np.stack(sums).astype(np.int64).reshape(len(columns) * n_groups, n_clusters)


def _resampled(columns: NDArray, resamples: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return (k, resamples) sums of (k, u) columns over bootstrap resamples of the units."""
    units = columns.shape[1]
    if not units:
        return np.zeros((len(columns), resamples), dtype=np.float32)
    return _products(columns, weight_blocks(units, resamples=resamples, rng=rng, block=_BLOCK, dtype=np.float32))


def _halved(columns: NDArray, permutations: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return (k, permutations) sums over a random half of the units."""
    units = columns.shape[1]
    if not units:
        return np.zeros((len(columns), permutations), dtype=np.float32)
    return _products(columns, bit_blocks(units, draws=permutations, rng=rng, block=_BLOCK, dtype=np.float32))


def row_major(columns: NDArray) -> NDArray[np.float32]:
    """Return (k, u) small whole numbers as float32, whose sums below 2^24 are exact, one row after the other.

    Answers to the images of a group, `answers[:, chosen]`, stand column after column. Multiplied by a transposed block
    they are what OpenBLAS 0.3.31's AVX-512 kernel for small products gets wrong when two threads call it at once: wrong
    sums now and then, and memory that is written beside its end (docs/decisions, 19). Rows do not take that kernel.
    """
    return np.ascontiguousarray(columns, dtype=np.float32)


def _products(columns: NDArray, blocks: Iterator[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the (k, rows) products of (k, u) columns with blocks of (b, u) weights, of `rows` in all."""
    values, sums = row_major(columns), []
    for weights in blocks:
        step = _THREADLESS // max(1, values.size) or len(weights)
        sums += [values @ weights[start : start + step].T for start in range(0, len(weights), step)]
    return np.concatenate(sums, axis=1)


@dataclass(frozen=True)
class JackknifeCounts:
    """Counts of two classifiers with one image, or cluster, left out: once for each kind of image.

    Attributes
    ----------
    first, second : (k, e, g) int64
    sizes : (k, g) int64
    kinds : (strata, c) int64
        Images of each kind, by stratum (group, or one for all clusters); its k non-zero cells are the rows above.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    sizes: NDArray[np.int64]
    kinds: NDArray[np.int64]

    def acceleration(self, values: NDArray[np.float64]) -> float:
        """Return the acceleration of the BCa interval of a statistic from its (k,) values without each kind."""
        by_kind = np.full(self.kinds.shape, np.nan)
        by_kind[np.nonzero(self.kinds)] = values
        return float(Jackknife(by_kind, self.kinds).acceleration)


def leave_one_out(
    first: NDArray[np.bool_] | NDArray[np.int64],
    second: NDArray[np.bool_] | NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    n_groups: int,
    clusters: NDArray[np.int64] | None = None,
) -> JackknifeCounts:
    """Count (e, n) answers, or scores, of two classifiers with one image, or one cluster, left out; see `draw_answers`.

    Images are told apart by all their answers at once: 2^(2e) kinds of yes-or-no answers, and (s + 1)^(2e) of scores up
    to s. Practical only for few events.
    """
    events, both = len(first), np.concatenate([first, second])
    if clusters is not None:
        columns = np.concatenate([both, np.ones((1, len(groups)), dtype=both.dtype)])
        per_cluster = _by_cluster(columns, groups, clusters, n_groups)
        left = (per_cluster.sum(axis=1)[:, None] - per_cluster).T.reshape(-1, 2 * events + 1, n_groups)
        kinds = np.ones((1, per_cluster.shape[1]), dtype=np.int64)
        return JackknifeCounts(left[:, :events], left[:, events:-1], left[:, -1], kinds)
    # Images that agree in group and in all answers are alike: one of each kind is left out.
    values = 2 if both.dtype == np.bool_ else int(both.max(initial=0)) + 1
    place = values ** np.arange(2 * events)[:, None]
    patterns = values ** (2 * events)
    kinds = count_table(groups, (both * place).sum(axis=0), n_groups=n_groups, n_outcomes=patterns)
    group, outcome = np.nonzero(kinds)
    holds = (np.arange(patterns) // place) % values
    counts = np.repeat((holds @ kinds.T)[None], len(group), axis=0)
    sizes = np.repeat(kinds.sum(axis=1)[None], len(group), axis=0)
    row = np.arange(len(group))
    counts[row, :, group] -= holds[:, outcome].T
    sizes[row, group] -= 1
    return JackknifeCounts(counts[:, :events], counts[:, events:], sizes, kinds)
