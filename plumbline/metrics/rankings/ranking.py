"""Rankings of labelled images, and the shares of the groups that they should have.

Source: Hausladen et al., appendix B.1, equations 8 to 10 (after Geyik et al. 2019). Groups are ranked together; an
image without a label is in no group and takes no rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.inputs import as_labels
from plumbline.reasons import MIN_GROUP, Reason, reason
from plumbline.statistics.cluster_permutation import ClusterPermutation, Relabelled
from plumbline.statistics.rankings import rank_order
from plumbline.statistics.seeds import generator

Desired = Literal["equal", "ranked"] | Mapping[Any, float] | ArrayLike | None
"""Equal shares (the default), the shares of the ranked set, or given ones: by group, or in the groups' sorted order."""

Shares = Literal["equal", "ranked"]
"""The desired shares that the audit compares with."""

MIN_BLOCKS = 20
"""Jackknife blocks where more would take too long."""
MAX_BLOCKS = 100
"""Maximum number of jackknife blocks; more clusters than this are merged into blocks of equally many clusters."""
MAX_WORK = 60_000_000
"""Maximum of images × rankings × blocks (or permutations of clusters): about a second."""
CLUSTER_PERMUTATIONS = 1_000
"""Maximum number of permutations where blocks of clusters are dealt out; `reason` tells where there are fewer."""
MIN_PERMUTATIONS = 100
"""Below this number of permutations the test is skipped."""


class LabelledRankings(NamedTuple):
    """Rankings of the labelled images, see `rank_labelled`.

    Attributes
    ----------
    names : tuple
        The groups: sorted, or in the order of the mapping of desired shares.
    groups : (m, n) uint8 or uint16
        Position in `names` of the image at each rank, best first.
    desired : (g,) float64
        Desired shares.
    """

    names: tuple[Any, ...]
    groups: NDArray[Any]
    desired: NDArray[np.float64]


def rank_labelled(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
    max_ndim: int = 2,
) -> LabelledRankings:
    """Rank the images that have a group, by falling score.

    Parameters
    ----------
    scores : (n,) or (n, m) float
        One ranking per column.
    groups, desired, ids
        As in `plumbline.metrics.skew_at_k`.
    max_ndim : int
        1 where a single ranking is asked for.

    Raises
    ------
    MetricError
        As in `plumbline.metrics.skew_at_k`.
    """
    labels = groups if isinstance(groups, np.ndarray) else np.array(as_labels(groups), dtype=object)
    if labels.ndim != 1:
        raise MetricError("groups must be one label per image", found=f"shape {labels.shape}")
    # nan is the one thing that differs from itself.
    labelled = np.array([x is not None and x == x for x in labels]) if labels.dtype == object else labels == labels
    if not labelled.any():
        raise MetricError("no image has a group", found=f"{len(labels)} images without label")
    present, codes = np.unique(labels[labelled], return_inverse=True)
    names = tuple(present.tolist())
    if isinstance(desired, Mapping):
        if lacking := set(names) - set(desired):
            raise MetricError("a group has no desired share", found=sorted(map(str, lacking)), expected=tuple(desired))
        codes = np.array([tuple(desired).index(name) for name in names])[codes]
        names = tuple(desired)
    if hasattr(scores, "detach"):  # a tensor, of number types too that numpy lacks
        scores = scores.detach().double().cpu().numpy()
    columns = np.asarray(scores, dtype=np.float64)
    if not 1 <= columns.ndim <= max_ndim or len(columns) != len(labels):
        raise MetricError(
            "scores and groups must describe the same images",
            found=f"scores {columns.shape}, {len(labels)} groups",
            expected="(n,) and (n,)" if max_ndim == 1 else "(n,) or (n, m), and (n,)",
        )
    identifiers = None if ids is None else np.asarray(ids)
    if identifiers is not None and identifiers.shape != labelled.shape:
        raise MetricError("ids must be one per image", found=identifiers.shape, expected=labelled.shape)
    chosen = columns if labelled.all() else columns[labelled]
    order = rank_order(chosen, None if identifiers is None else identifiers[labelled])
    by_rank = codes.astype(np.uint16 if len(names) > 256 else np.uint8)[order]
    return LabelledRankings(names, by_rank, desired_shares(desired, names, codes))


def require_k(k: int, longest: int, what: str) -> None:
    """Raise MetricError unless k is a whole number from 1 to the longest prefix."""
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= longest:
        raise MetricError(
            "k lies outside the ranking", where="k", found=k, expected=f"a whole number 1 .. {longest}, {what}"
        )


def desired_shares(desired: Desired, names: tuple[Any, ...], codes: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the (g,) desired shares of groups, all above 0 and 1 in sum.

    Parameters
    ----------
    names : tuple
        The groups.
    codes : (n,) int
        Group of each ranked image, as a position in `names`.

    Raises
    ------
    MetricError
        If given shares do not fit the groups, or are no shares.
    """
    if desired is None or (isinstance(desired, str) and desired == "equal"):
        return np.full(len(names), 1 / len(names))
    if isinstance(desired, str):
        if desired != "ranked":
            raise MetricError(
                "unknown desired shares", found=desired, expected='"equal", "ranked", or the shares themselves'
            )
        return np.bincount(codes, minlength=len(names)) / len(codes)
    given = [desired[name] for name in names] if isinstance(desired, Mapping) else desired
    shares = np.asarray(given, dtype=np.float64)
    if shares.shape != (len(names),):
        raise MetricError("desired shares must be one per group, in sorted order", found=shares.shape, expected=names)
    # A group that is not wanted at all would have infinite skew whatever the ranking.
    if not (shares > 0).all() or not abs(shares.sum() - 1) < 1e-9:
        raise MetricError(
            "desired shares must be above zero and sum to 1",
            found=dict(zip(names, shares.tolist())),
            hint="leave out the groups that are not wanted from the ranking",
        )
    return shares


@dataclass(frozen=True)
class ImageClusters:
    """Clusters of the ranked images, and the labels that a permutation test compares with.

    Attributes
    ----------
    codes : (n,) int64
        Cluster of each image, 0 .. c - 1.
    permutation : ClusterPermutation
    drawn : Relabelled
        Groups of the blocks, as uint8 or uint16, after dealing them out p times.
    """

    codes: NDArray[np.int64]
    permutation: ClusterPermutation
    drawn: Relabelled

    @classmethod
    def of(
        cls, clusters: NDArray[np.int64], groups: NDArray[np.int64], *, settings: MetricSettings, labels: Sequence[str]
    ) -> ImageClusters:
        """Deal out the labels within clusters, and over clusters of one group (`ClusterPermutation`).

        Parameters
        ----------
        clusters, groups : (n,) int
        labels : sequence of str
            What the permutations are seeded by, beside the seed of the settings. At most `CLUSTER_PERMUTATIONS` are
            drawn, fewer for very many images.
        """
        affordable = max(MIN_PERMUTATIONS, MAX_WORK // len(groups))
        permutations = min(settings.permutations, CLUSTER_PERMUTATIONS, affordable)
        rng = generator(settings.seed, *labels, "permutation")
        permutation, small = ClusterPermutation.of(groups, clusters), np.uint8 if groups.max() < 256 else np.uint16
        parts = [permutation.draw(min(50, permutations - start), rng) for start in range(0, permutations, 50)]
        weights = [part.weights.astype(np.uint16) for part in parts if part.weights is not None]
        labels_of_blocks = np.concatenate([part.labels.astype(small) for part in parts])
        drawn = Relabelled(labels_of_blocks, np.concatenate(weights) if weights else None)
        return cls(np.unique(clusters, return_inverse=True)[1], permutation, drawn)

    def dealt(self, order: NDArray[np.integer], rows: slice, *, top: int | None = None) -> NDArray[Any]:
        """Return the groups by rank, (r, n), of a ranking under some of the permutations, or of its `top` best."""
        labels, weights = self.drawn.labels[rows], self.drawn.weights
        if weights is None:
            return labels[:, self.permutation.blocks[order[:top]]]
        by_rank = labels[:, self.permutation.blocks[order]].ravel()
        # Every permutation counts as many images as there are.
        return np.repeat(by_rank, weights[rows, order].ravel()).reshape(len(labels), -1)[:, :top]

    def blocks(self, *, rankings: int) -> NDArray[np.int64]:
        """Return the block of each image, (n,), that the jackknife leaves out: a cluster, or several of many."""
        clusters = int(self.codes.max()) + 1
        most = max(MIN_BLOCKS, min(MAX_BLOCKS, MAX_WORK // max(rankings * len(self.codes), 1)))
        return self.codes % min(clusters, most)


def group_apart(sizes: NDArray[np.int64], desired: Shares) -> int:
    """Return the group that a ranking prefers in what a test is said to find.

    The smallest that is not flagged as small; against equal shares the largest, since no other moves away from them.
    """
    if desired == "equal":
        return int(sizes.argmax())
    enough = np.flatnonzero(sizes >= MIN_GROUP)
    among = enough if len(enough) else np.arange(len(sizes))
    return int(among[sizes[among].argmin()])


def few_permutations_reason(draws: int, settings: MetricSettings) -> Reason | None:
    """Return the reason that a test in clusters had to do with fewer permutations than usual, if so."""
    usual = min(settings.permutations, CLUSTER_PERMUTATIONS)
    return reason("few_permutations", draws=draws) if 0 < draws < usual else None


@dataclass(frozen=True)
class RankedGroups:
    """Many rankings of the same labelled images.

    Attributes
    ----------
    order : (m, n) int
        Images by rank, best first.
    groups : (n,) int64
        Group of each image, 0 .. g - 1; every group has an image.
    n_groups : int
    clusters : ImageClusters or None
        Where images come in clusters.
    """

    order: NDArray[np.integer]
    groups: NDArray[np.int64]
    n_groups: int
    clusters: ImageClusters | None = None

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
        small = self.groups.astype(np.uint8 if self.n_groups <= 256 else np.uint16)
        # Row by row: numpy makes a copy of places of 32 bits in 64.
        return np.stack([small[order] for order in self.order])

    def only(self, chosen: slice) -> RankedGroups:
        """Return some of the rankings."""
        few = replace(self, order=self.order[chosen])
        vars(few)["codes"] = self.codes[chosen]  # where `cached_property` looks for them
        return few


def in_rank_order(codes: NDArray[np.integer], n_groups: int) -> RankedGroups:
    """Return one ranking of which only the groups by rank are known, (n,)."""
    return RankedGroups(np.arange(len(codes))[None], codes.astype(np.int64), n_groups)


def shares_of_interval(desired: Desired, n_groups: int) -> Shares:
    """Return which shares an interval is against.

    Raises
    ------
    MetricError
        If they are others than equal ones or the ranked set's, or a single group is ranked.
    """
    if n_groups < 2:
        raise MetricError("an interval compares groups", where="groups", found="one group", expected="at least two")
    if desired is None or (isinstance(desired, str) and desired == "equal"):
        return "equal"
    if isinstance(desired, str) and desired == "ranked":
        return "ranked"
    raise MetricError(
        "an interval is against equal shares, or those of the ranked set", found=desired, expected='"equal" or "ranked"'
    )
