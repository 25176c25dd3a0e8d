"""What changed between two audits or checkpoints, as a page and as a section of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from plumbline.provenance.diff.tables import INDEPENDENT, PAIRED, headline_definitions
from plumbline.report.listings import Listing
from plumbline.report.numbers import UNDEFINED, bare_p, count, interval, number
from plumbline.report.rows import Row
from plumbline.report.vocabulary import attribute_title, event_title

LONGEST = 40
"""Rows of a listing; a table of the lake holds all of them."""
SHOWN_FLIPS = 12
_HEADS = ("What", "Model", "Dataset", "Before", "After", "Change", "q", "Compared")
_NUMERIC = frozenset({3, 4, 5, 6})


class Preview(NamedTuple):
    """The `data:` address of a small picture of an image, or why there is none."""

    source: str | None
    missing: str | None


@dataclass(frozen=True)
class Changes:
    """Two sides and how they differ.

    Attributes
    ----------
    old, new : str
        What each side is called.
    differences, flips, worst : DataFrame
        In `DIFF_SCHEMA`, `FLIP_SCHEMA` and again `DIFF_SCHEMA`: what got worse by more than is allowed.
    causes : mapping of str to sequence of str
        `dataset|model` -> what changed, such as `the checkpoint`.
    absent : sequence of str
        What could not be compared as it should, with the reason; it may have several lines.
    not_compared : sequence of str
        What could not be compared at all, with the reason, such as `crime on faces|clip, since its prompts changed`.
    previews : mapping of str to Preview
        By image id.
    """

    old: str
    new: str
    differences: pl.DataFrame
    flips: pl.DataFrame
    worst: pl.DataFrame
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    absent: Sequence[str] = ()
    not_compared: Sequence[str] = ()
    previews: Mapping[str, Preview] = field(default_factory=dict)

    @property
    def compared(self) -> bool:
        """Return whether at least one number was compared."""
        return bool(self.differences["compared"].is_in([PAIRED, INDEPENDENT]).any())

    @property
    def shown_flips(self) -> list[Row]:
        """Return the flips that are shown: of every cell and suite in turn, the widest margin first."""
        ranked = self.flips.with_columns(
            rank=pl.col("margin").rank("ordinal", descending=True).over("dataset", "model_new", "suite")
        )
        return ranked.sort("rank", "dataset", "model_new", "suite").head(SHOWN_FLIPS).to_dicts()

    @property
    def regressions(self) -> Listing:
        """List what got worse by more than is allowed, furthest first."""
        return _listing(self.worst)

    @property
    def clearest(self) -> Listing:
        """List the clearest differences on the same images or sets, of headline definitions."""
        headline = pl.col("metric").replace_strict(headline_definitions(), default=None, return_dtype=pl.String)
        chosen = self.differences.filter(
            pl.col("compared") == PAIRED, pl.col("q") < 0.05, headline.is_null() | (pl.col("definition") == headline)
        )
        return _listing(chosen.sort("q", pl.col("value").abs(), descending=[False, True]))

    @property
    def reasons(self) -> Listing:
        """List where the changes of each cell come from."""
        rows = [(where, ", ".join(causes)) for where, causes in self.causes.items()]
        return Listing(("Cell", "What changed"), rows)

    @property
    def flipped(self) -> Listing:
        """Count the images that flipped, by cell, suite and categories."""
        counted = (
            self.flips.group_by("dataset", "model_new", "suite", "category_old", "category_new")
            .len()
            .sort("len", "dataset", "model_new", "suite", "category_old", descending=[True, *[False] * 4])
        )
        rows = [
            (
                row["dataset"],
                row["model_new"],
                row["suite"],
                f"{row['category_old']} → {row['category_new']}".replace("_", " "),
                count(row["len"]),
            )
            for row in counted.head(LONGEST).to_dicts()
        ]
        return Listing(("Dataset", "Model", "Suite", "From → to", "Images"), rows, frozenset({4}), _cut(counted.height))


def _listing(chosen: pl.DataFrame) -> Listing:
    rows = [
        (
            change_title(row),
            row["model_new"] if row["model_old"] == row["model_new"] else f"{row['model_old']} → {row['model_new']}",
            row["dataset"],
            number(row["value_old"]),
            number(row["value_new"]),
            f"{_signed(row['value'])} [{interval(row['ci_low'], row['ci_high'])}]",
            "–" if row["q"] is None else bare_p(row["q"]),
            row["compared"],
        )
        for row in chosen.head(LONGEST).to_dicts()
    ]
    return Listing(_HEADS, rows, _NUMERIC, _cut(chosen.height))


def change_title(row: Row) -> str:
    """Return what a row of a diff is of: `max skew, crime, by race`."""
    parts = [row["metric"].replace("_", " ")]
    parts += [event_title(row["event"])] if row["event"] else []
    parts += [f"by {attribute_title(row['attribute'])}"] if row["attribute"] else []
    parts += [
        str(row[name]) for name in ("group", "probe", "occupation", "prompt", "instruction", "scorer") if row[name]
    ]
    parts += [row["statistic"]] if row["statistic"] not in ("estimate", "mean") else []
    return ", ".join(parts) + (f" ({row['suite']})" if row["suite"] else "")


def _signed(value: float | None) -> str:
    written = number(value)
    return written if written == UNDEFINED or value is None or value < 0 else f"+{written}"


def _cut(rows: int) -> str:
    return f"The first {LONGEST} of {count(rows)}." if rows > LONGEST else ""
