"""Groups of images: their codes, and how many of each group have an outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.suites import GENDERS
from plumbline.datasets.records import audited_attributes
from plumbline.errors import MetricError


@dataclass(frozen=True)
class Groups:
    """The groups of one attribute.

    Attributes
    ----------
    attribute : str
        Such as `race`; `gender_race` for race × gender.
    names : tuple of str
    codes : (n,) int64
        Position in `names`; -1 for images in no group.
    """

    attribute: str
    names: tuple[str, ...]
    codes: NDArray[np.int64]


def label_codes(labels: pl.Series, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return each label's position in `names`, -1 for null and for anything else."""
    # A column of nulls alone does not have the type String.
    return (
        labels.cast(pl.String)
        .replace_strict(list(names), list(range(len(names))), default=-1, return_dtype=pl.Int64)
        .to_numpy()
    )


def attribute_groups(records: pl.DataFrame) -> list[Groups]:
    """Return the groups of every audited attribute that the records have, and race × gender.

    Names are sorted. The composite is `gender_race` with groups like `Black_man`, where both labels are known; records
    with a column of that name say themselves which of its groups are shown.
    """
    labelled = [
        Groups(name, tuple(sorted(labels.drop_nulls().unique())), np.empty(0, dtype=np.int64))
        for name in audited_attributes(records)
        if (labels := records[name]).null_count() < records.height
    ]
    groups = [Groups(g.attribute, g.names, label_codes(records[g.attribute], g.names)) for g in labelled]
    if {"gender", "race"} <= {g.attribute for g in groups}:
        both = (
            records["gender_race"]
            if "gender_race" in records.columns
            else records.select(pl.concat_str("race", "gender", separator="_"))["race"]
        )
        names = tuple(sorted(both.drop_nulls().unique()))
        groups.append(Groups("gender_race", names, label_codes(both, names)))
    return groups


def crossed_with_gender(classes: Groups, genders: pl.Series) -> Groups:
    """Cross class codes with automatic gender labels: `Indian_woman`, class by class, man before woman."""
    gender = label_codes(genders, GENDERS)
    known = (classes.codes >= 0) & (gender >= 0)
    return Groups(
        attribute=f"{classes.attribute}_gender",
        names=tuple(f"{name}_{label}" for name in classes.names for label in GENDERS),
        codes=np.where(known, classes.codes * len(GENDERS) + gender, -1),
    )


def mixed_groups(classes: Groups, records: pl.DataFrame) -> Groups | None:
    """Return classes crossed with automatic gender labels (Trident's mixed tests); None where no image has both.

    None for classes of gender too: crossing gender with predicted gender is meaningless.
    """
    if classes.attribute == "gender" or "auto_gender" not in records.columns:
        return None
    groups = crossed_with_gender(classes, records["auto_gender"])
    return groups if (groups.codes >= 0).any() else None


# --- Contingency tables of groups by outcomes: counting and shares.


def count_table(groups: ArrayLike, outcomes: ArrayLike, *, n_groups: int, n_outcomes: int) -> NDArray[np.int64]:
    """Count images by group and outcome.

    Parameters
    ----------
    groups : (n,) int
        Group of each image, 0 .. n_groups - 1; -1 is an unlabelled image, which is in no group.
    outcomes : (..., n) int
        Outcome of each image, 0 .. n_outcomes - 1; leading axes are separate tables over the same images.

    Returns
    -------
    (..., n_groups, n_outcomes) int64

    Raises
    ------
    MetricError
        If the lengths differ or a code is out of range.
    """
    group, outcome = np.asarray(groups, dtype=np.int64), np.asarray(outcomes, dtype=np.int64)
    _check_codes(group, outcome, n_groups, n_outcomes)
    tables = int(np.prod(outcome.shape[:-1]))
    labelled = group >= 0
    cell = group[labelled] * n_outcomes + outcome.reshape(tables, -1)[:, labelled]
    size = n_groups * n_outcomes
    cell += size * np.arange(tables)[:, None]
    return np.bincount(cell.ravel(), minlength=tables * size).reshape(*outcome.shape[:-1], n_groups, n_outcomes)


def _check_codes(group: NDArray[np.int64], outcome: NDArray[np.int64], n_groups: int, n_outcomes: int) -> None:
    if group.ndim != 1 or outcome.shape[-1:] != group.shape:
        raise MetricError(
            "groups and outcomes must describe the same images",
            found=f"groups {group.shape}, outcomes {outcome.shape}",
            expected="(n,) and (..., n)",
        )
    if group.size and (group.min() < -1 or group.max() >= n_groups):
        raise MetricError(
            "a group code is out of range",
            found=f"{group.min()} .. {group.max()}",
            expected=f"0 .. {n_groups - 1}, or -1 for an unlabelled image",
        )
    if outcome.size and (outcome.min() < 0 or outcome.max() >= n_outcomes):
        raise MetricError(
            "an outcome code is out of range",
            found=f"{outcome.min()} .. {outcome.max()}",
            expected=f"0 .. {n_outcomes - 1}",
        )


def shares(count: NDArray[Any], n: NDArray[Any], empty: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """Return count / n, nan where n is 0, or where `empty` is True."""
    seen = (n > 0) if empty is None else ~empty
    if np.all(seen):
        return np.asarray(count / n)
    return np.divide(count, n, out=np.full(np.shape(count), np.nan), where=seen)


def mean_shares(count: NDArray[Any], n: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean of count / n over the groups that are not empty, (..., g) to (...); nan where all are."""
    seen = n > 0
    share = np.divide(count, n, out=np.zeros(np.shape(count)), where=seen)
    return shares(share.sum(axis=-1), seen.sum(axis=-1))
