"""Numbers of single answers, compared between the groups of one dataset, attribute, prompt and instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import NO_INSTRUCTION, Row
from plumbline.language.answers import OF_GROUPS, answer_row
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.cluster_bootstrap import group_means
from plumbline.statistics.cluster_gaps import group_gap
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import wilson
from plumbline.statistics.seeds import generator

ReasonsOf = Callable[[int | None], Reasons]
"""From a group's place, or None for all groups, to the reasons of its number."""


def no_reasons(_: int | None) -> Reasons:
    """Return nothing of any group."""
    return ()


@dataclass(frozen=True)
class GroupValues:
    """Answers to one question, with a number each; nan is an answer without one.

    Attributes
    ----------
    common : Row
        The columns that all metric rows about them share.
    groups : tuple of str
    without : tuple of str
        Groups that should have answers and have none.
    codes, sets : (n,) int64
        Group and independent unit of each answer.
    answers : DataFrame
        The n rows of `answer_values`.
    settings : LanguageSettings
    """

    common: Row
    groups: tuple[str, ...]
    without: tuple[str, ...]
    codes: NDArray[np.int64]
    sets: NDArray[np.int64]
    answers: pl.DataFrame
    settings: LanguageSettings

    def of(self, rows: NDArray[np.bool_], **columns: object) -> GroupValues:
        """Return some of the answers, with further columns, such as those of one occupation."""
        return replace(
            self,
            common=self.common | columns,
            codes=self.codes[rows],
            sets=self.sets[rows],
            answers=self.answers.filter(pl.Series(rows)),
        )

    def means(self, values: NDArray[np.float64], *, what: str) -> list[Estimate]:
        """Return each group's mean with its interval by whole sets; `what` names the draws."""
        known = ~np.isnan(values)
        return group_means(
            values[known],
            self.codes[known],
            self.sets[known],
            n_groups=len(self.groups),
            resamples=self.settings.resamples,
            rng=self._generator(what, "means"),
            confidence=self.settings.confidence,
        )

    def mean_rows(
        self, values: NDArray[np.float64], *, reasons: ReasonsOf = no_reasons, **columns: object
    ) -> list[Row]:
        """Return a row of the mean of every group; n counts the sets that have a number of the group."""
        return [
            self.common | {"group": name, "statistic": "mean"} | found.columns(reasons(group)) | columns
            for group, (name, found) in enumerate(zip(self.groups, self.means(values, what=_named(columns))))
        ]

    def gap_row(
        self,
        values: NDArray[np.float64],
        *,
        kind: Literal["difference", "ratio"] = "difference",
        reasons: ReasonsOf = no_reasons,
        **columns: object,
    ) -> Row:
        """Return the row of the largest minus, or over, the smallest group mean; n counts the sets with a number.

        The reason names the groups that are not compared because no answer about them has a number, and those of whose
        answers fewer than half have one.
        """
        known = ~np.isnan(values)
        gap = group_gap(
            values[known],
            self.codes[known],
            self.sets[known],
            n_groups=len(self.groups),
            resamples=self.settings.resamples,
            permutations=self.settings.permutations,
            rng=self._generator(_named(columns), "gap"),
            confidence=self.settings.confidence,
            kind=kind,
        )
        return self.common | gap.columns(reasons(None), self._missing(known)) | columns

    def _missing(self, known: NDArray[np.bool_]) -> Reasons:
        if not known.any():
            return ()
        answers, numbers = (np.bincount(codes, minlength=len(self.groups)) for codes in (self.codes, self.codes[known]))
        absent = sorted({*self.without, *(name for name, n in zip(self.groups, numbers) if not n)})
        thin = [name for name, n, of in zip(self.groups, numbers, answers) if 0 < 2 * n < of]
        return joined(
            reason("groups_without_number", groups=absent) if absent else None,
            reason("half_of_answers", groups=thin) if thin else None,
        )

    def rate_rows(self, happened: NDArray[np.bool_], *, overall: bool = False, **columns: object) -> list[Row]:
        """Return a row of the rate of every group, and of all answers; where no answer differs, Wilson's interval.

        n counts the sets. A rate of exactly 0 or 1 has no bootstrap interval. Wilson's then counts each set as one
        observation, which is the least that the answers can be worth.
        """
        whole = replace(self, groups=("",), codes=np.zeros_like(self.codes))
        rows = []
        for each in (self, *([whole] if overall else [])):
            estimates = each.means(happened.astype(np.float64), what=_named(columns))
            rows += [
                self.common
                | {"group": name or None}
                | _with_wilson(found, self.settings.confidence).columns()
                | columns
                for name, found in zip(each.groups, estimates)
            ]
        return rows

    def _generator(self, *labels: str) -> np.random.Generator:
        named = (str(self.common.get(name)) for name in ("model", *OF_GROUPS, "occupation"))
        return generator(self.settings.seed, *named, *labels)


def _named(columns: Row) -> str:
    return f"{columns.get('metric')} {columns.get('definition')}"


def _with_wilson(found: Estimate, confidence: float) -> Estimate:
    if found.value not in (0.0, 1.0) or found.n is None:
        return found
    low, high = wilson(found.value * found.n, found.n, confidence=confidence)
    why = joined(reason("wilson_over_sets", sets=found.n))
    return replace(found, ci_low=float(low), ci_high=float(high), reason=why)


def by_groups(cell: LanguageCell, answers: pl.DataFrame, *, settings: LanguageSettings) -> Iterator[GroupValues]:
    """Yield what is compared between groups, one dataset, attribute, prompt and instruction at a time, by name."""
    kind = answers.schema["group"]
    names = list(kind.categories) if isinstance(kind, pl.Enum) else []
    parts = answers.partition_by(OF_GROUPS, as_dict=True)
    for dataset, attribute, prompt, instruction in sorted(parts):
        # Sums of fractions depend on their order: it is that of the names, whatever order the files have.
        part = parts[dataset, attribute, prompt, instruction].sort(answers.columns)
        codes = part["group"].to_physical().cast(pl.Int64).to_numpy()
        present, codes = np.unique(codes, return_inverse=True)
        groups = tuple(names[place] for place in present)
        expected = cell.expected.filter(pl.col("dataset") == dataset, pl.col("attribute") == attribute)
        without = tuple(sorted(set(expected["group"].drop_nulls()) - set(groups)))
        common = answer_row(
            cell.model,
            dataset=dataset,
            attribute=attribute,
            prompt=prompt,
            instruction=None if instruction == NO_INSTRUCTION else instruction,
        )
        sets = part["unit"].to_physical().cast(pl.Int64).to_numpy()
        yield GroupValues(common, groups, without, codes, sets, part, settings)
