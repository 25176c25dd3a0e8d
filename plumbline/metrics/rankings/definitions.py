"""The shares of groups that a ranking should have: equal ones, those of the ranked set, or given ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.metrics.rankings.ndkl import ndkl_sums
from plumbline.statistics.rankings import rank_order

Desired = Literal["equal", "ranked"] | Mapping[Any, float] | ArrayLike | None
"""Equal shares (the default), the shares of the ranked set, or given ones: by group, or in the groups' sorted order."""


def equal_shares(n_groups: int) -> NDArray[np.float64]:
    """Return the desired shares of groups that are to be equally frequent."""
    return np.full(n_groups, 1 / n_groups)


def desired_shares(
    desired: Desired, names: tuple[Any, ...], codes: NDArray[np.integer]
) -> NDArray[np.float64]:
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
        return equal_shares(len(names))
    if isinstance(desired, str):
        if desired != "ranked":
            raise MetricError(
                "unknown desired shares",
                found=desired,
                expected='"equal", "ranked", or the shares themselves',
            )
        return np.bincount(codes, minlength=len(names)) / len(codes)
    given = [desired[name] for name in names] if isinstance(desired, Mapping) else desired
    shares = np.asarray(given, dtype=np.float64)
    if shares.shape != (len(names),):
        raise MetricError(
            "desired shares must be one a group, in sorted order", found=shares.shape, expected=names
        )
    # A group that is not wanted at all would have infinite skew whatever the ranking.
    if not (shares > 0).all() or not abs(shares.sum() - 1) < 1e-9:
        raise MetricError(
            "desired shares must be above zero and sum to 1",
            found=dict(zip(names, shares.tolist())),
            hint="leave out the groups that are not wanted from the ranking",
        )
    return shares


# --- Ranking metrics: Skew@k, MaxSkew@k and NDKL of the images of groups, ranked by their score for a
# prompt.
#
# Source: Hausladen et al., appendix B.1, eqs 8 to 10 (after Geyik et al. 2019). Groups are ranked
# together; an image without a label is in no group and takes no rank.


@dataclass(frozen=True)
class GroupSkew:
    """Skew@k of one group, see `skew_at_k`.

    Attributes
    ----------
    group : label
    value : float
        ln(share / desired); -inf for a group that is absent from the top k.
    share, desired : float
        Of the top k, in [0, 1].
    count : int
        Images of the group among the top k.
    floored : float
        The same with the share floored at 1/k: finite for an absent group too.
    """

    group: Any
    value: float
    share: float
    desired: float
    count: int
    floored: float


@dataclass(frozen=True)
class SkewAtK:
    """Skew@k by group; index it with a group, or iterate over the groups' results.

    Attributes
    ----------
    groups : tuple
        Sorted, or in the order of the mapping of desired shares.
    value, share, desired, floored : (g,) float64
    count : (g,) int64
    k, n : int
        Length of the prefix, images that were ranked.
    """

    groups: tuple[Any, ...]
    value: NDArray[np.float64]
    share: NDArray[np.float64]
    desired: NDArray[np.float64]
    floored: NDArray[np.float64]
    count: NDArray[np.int64]
    k: int
    n: int

    def __getitem__(self, group: object) -> GroupSkew:
        """Return the result of one group."""
        i = self.groups.index(group)
        return GroupSkew(
            group=self.groups[i],
            value=float(self.value[i]),
            share=float(self.share[i]),
            desired=float(self.desired[i]),
            count=int(self.count[i]),
            floored=float(self.floored[i]),
        )

    def __iter__(self) -> Iterator[GroupSkew]:
        return (self[group] for group in self.groups)

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True)
class MaxSkewAtK:
    """The largest Skew@k, see `max_skew_at_k`.

    Attributes
    ----------
    value : float
        At least 0.
    group : label
        Whose it is; the first of them where several are equal.
    share, desired : float
    count : int
        Images of that group among the top k.
    """

    value: float
    group: Any
    share: float
    desired: float
    count: int


def skew_at_k(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    k: int,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
) -> SkewAtK:
    """Return Skew_g@k = ln(share of g among the k best / desired share of g) for every group (B.1, eq. 8).

    0 is the desired share, above 0 the group is favoured: ln 2 is twice its desired share.

    Parameters
    ----------
    scores : (n,) float
        What ranks the images, highest first.
    groups : (n,) labels
        None (or nan) is an unlabelled image: in no group, and left out of the ranking.
    k : int
        Length of the prefix, 1 .. number of labelled images.
    desired : "equal", "ranked", mapping or (g,) float, optional
        Desired shares: equal ones for the groups that occur (default), those of the ranked set, or given: by group,
        or in the sorted order of the groups. Given shares are positive and sum to 1; a mapping may name groups that
        have no image.
    ids : (n,) sortable, optional
        Equal scores are ordered by id, by position where there are none.

    Returns
    -------
    SkewAtK
        A group that is absent from the top k has value -inf, count 0 and a finite `floored`.

    Raises
    ------
    MetricError
        If k is out of range, a score is not finite, lengths differ, a desired share is zero, or the shares do not
        fit the groups.
    """
    labels, names, codes = _ranked_images(groups, desired)
    order = rank_order(_one_column(scores, len(labels))[labels], _ids_of(ids, labels))[0]
    shares = desired_shares(desired, names, codes)
    if not 1 <= k <= len(codes):
        raise MetricError(
            "k lies outside the ranking", found=k, expected=f"1 .. {len(codes)}, the labelled images"
        )
    count = np.bincount(codes[order[:k]], minlength=len(names))
    return SkewAtK(
        groups=names,
        value=skew_values(count, shares, k=k),
        share=count / k,
        desired=shares,
        floored=skew_values(count, shares, k=k, floor=True),
        count=count,
        k=k,
        n=len(codes),
    )


def max_skew_at_k(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    k: int,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
) -> MaxSkewAtK:
    """Return the largest Skew@k over the groups (B.1), and whose it is.

    It is never below 0: shares cannot all be under the desired ones. So chance alone makes it positive.

    Parameters and errors are those of `skew_at_k`.
    """
    found = skew_at_k(scores, groups, k=k, desired=desired, ids=ids)
    # Equal shares over equal desired ones are ties on paper; rounding must not choose among them.
    largest = int(np.flatnonzero(found.value >= found.value.max() - 1e-12)[0])
    best = found[found.groups[largest]]
    return MaxSkewAtK(
        value=max(best.value, 0.0),
        group=best.group,
        share=best.share,
        desired=best.desired,
        count=best.count,
    )


def ndkl(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
) -> NDArray[np.float64]:
    """Return NDKL = (1/Z) Σ_i KL(D_i ‖ D) / log2(i + 1), Z = Σ_i 1 / log2(i + 1), of whole rankings (B.1, eq. 9).

    D_i are the groups' shares among the first i images, D the desired ones; natural logarithm, 0 ln 0 = 0. In nats, at
    least 0; 0 only if every prefix has the desired shares, which no ranking of several groups achieves: read it
    beside what chance gives.

    Parameters
    ----------
    scores : (n,) or (n, m) float
        One ranking a column.
    groups, desired, ids
        As in `skew_at_k`.

    Returns
    -------
    (m,) float64
        One value a column; (1,) for a single ranking.

    Raises
    ------
    MetricError
        As in `skew_at_k`.
    """
    columns = np.asarray(scores, dtype=np.float64)
    labels, names, codes = _ranked_images(groups, desired)
    if columns.ndim not in (1, 2) or len(columns) != len(labels):
        raise MetricError(
            "scores and groups must describe the same images",
            found=f"scores {columns.shape}, {len(labels)} groups",
            expected="(n,) or (n, m), and (n,)",
        )
    shares = desired_shares(desired, names, codes)
    chosen = columns if labels.all() else columns[labels]
    order = rank_order(chosen, _ids_of(ids, labels))
    return ndkl_sums(codes[order], len(names)).against(shares)


def skew_values(
    counts: NDArray[Any], desired: NDArray[np.float64], *, k: int, floor: bool = False
) -> NDArray[np.float64]:
    """Return Skew@k of top-k counts (..., g) against desired shares (g,), for many prefixes at once.

    Parameters
    ----------
    floor : bool
        Count an absent group as one image: its share is then 1/k instead of 0, its value finite instead of -inf.
    """
    seen = np.maximum(counts, 1) if floor else counts
    with np.errstate(divide="ignore"):
        return np.log(seen / (k * desired))


def _ranked_images(
    groups: Sequence[Any] | NDArray[Any], desired: Desired
) -> tuple[NDArray[np.bool_], tuple[Any, ...], NDArray[np.uint16]]:
    """Return which images have a label, the groups, and the codes of the labelled images."""
    labels = np.asarray(groups, dtype=None if isinstance(groups, np.ndarray) else object)
    if labels.ndim != 1:
        raise MetricError("groups must be one label an image", found=f"shape {labels.shape}")
    # nan is the one thing that differs from itself.
    known = (
        np.array([x is not None and x == x for x in labels]) if labels.dtype == object else labels == labels
    )
    if not known.any():
        raise MetricError("no image has a group", found=f"{len(labels)} images without label")
    found, codes = np.unique(labels[known], return_inverse=True)
    names = tuple(found.tolist())
    if isinstance(desired, Mapping):
        wanted = tuple(desired)
        if lacking := set(names) - set(wanted):
            raise MetricError(
                "a group has no desired share", found=sorted(map(str, lacking)), expected=wanted
            )
        codes = np.array([wanted.index(name) for name in names])[codes]
        names = wanted
    return known, names, codes.astype(np.uint16 if len(names) > 256 else np.uint8)


def _one_column(scores: ArrayLike, n: int) -> NDArray[np.float64]:
    column = np.asarray(scores, dtype=np.float64)
    if column.shape != (n,):
        raise MetricError(
            "scores and groups must describe the same images",
            found=f"scores {column.shape}, {n} groups",
            expected="(n,) and (n,)",
        )
    return column


def _ids_of(ids: ArrayLike | Sequence[Any] | None, labelled: NDArray[np.bool_]) -> NDArray[Any] | None:
    if ids is None:
        return None
    names = np.asarray(ids)
    if names.shape != labelled.shape:
        raise MetricError("ids must be one an image", found=names.shape, expected=labelled.shape)
    return names[labelled]
