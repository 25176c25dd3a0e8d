"""Groups of images: the labels of an attribute, or of two crossed, as codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.suites import GENDERS
from plumbline.datasets.records import audited_attributes


@dataclass(frozen=True)
class Groups:
    """The groups of one attribute.

    Attributes
    ----------
    attribute : str
        `race`, or `race_gender` for a composite.
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
