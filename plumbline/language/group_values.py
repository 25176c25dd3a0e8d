"""Numbers of single answers, compared between the groups of one dataset, attribute, prompt and instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import NO_INSTRUCTION, Row
from plumbline.language.answers import OF_GROUPS, answer_row, codes, parts
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.cluster_bootstrap import group_means
from plumbline.statistics.cluster_gaps import group_gap
from plumbline.statistics.clusters import cluster_count_reason, cluster_wilson
from plumbline.statistics.estimates import Estimate

ReasonsOf = Callable[[NDArray[np.bool_]], Reasons]
"""From the answers that a number is of, (n,), to its reasons."""


@dataclass(frozen=True)
class GroupValues:
    """Answers to one question with a value each, nan where an answer has none.

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
        The n rows of `plumbline.language.answers.values_by_question`.
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
        """Return a subset of the answers, such as those about one occupation, with further columns."""
        return replace(
            self,
            common=self.common | columns,
            codes=self.codes[rows],
            sets=self.sets[rows],
            answers=self.answers.filter(pl.Series(rows)),
        )

    def compared(
        self,
        values: NDArray[np.float64],
        *,
        metric: str,
        definition: str = "paper",
        gap: str | None = None,
        kind: Literal["difference", "ratio"] = "difference",
        most: float = np.inf,
        reasons: ReasonsOf = lambda _: (),
    ) -> Iterator[Row]:
        """Yield a row of the mean of every group; n counts the sets that have a number of the group.

        With `gap` one more row: largest minus, or divided by, the smallest mean, at most `most`, where its interval
        ends too; n counts the sets with a number. Its
        reason names the groups that are not compared because no answer about them has a number, and those of whose
        answers fewer than half have one.
        """
        columns: Row = {"metric": metric, "definition": definition, "statistic": "mean"}
        for code, (group, mean) in enumerate(zip(self.groups, self._means(values, columns))):
            yield self.common | columns | {"group": group} | mean.columns(reasons(self.codes == code))
        if gap is not None:
            yield self._gap_row(values, {"metric": gap, "definition": definition}, kind, reasons, most=most)

    def rates(self, happened: NDArray[np.bool_], *, metric: str, gap: str | None = None) -> Iterator[Row]:
        """Yield a row of the rate of every group, and of all answers, and of the gap; n counts the sets.

        Intervals are Wilson's with the effective number of answers. A rate of exactly 0 or 1 counts each set as one
        observation, which is the least that the answers can be worth.
        """
        columns: Row = {"metric": metric, "definition": "paper"}
        for code, group in (*enumerate(self.groups), (None, None)):
            chosen = np.ones_like(happened) if code is None else self.codes == code
            estimate = _rate(happened[chosen], self.sets[chosen], self.settings.confidence)
            yield self.common | columns | {"group": group} | estimate.columns()
        if gap is not None:
            values = happened.astype(np.float64)
            yield self._gap_row(values, {"metric": gap, "definition": "paper"}, "difference", lambda _: (), most=1.0)

    def _means(self, values: NDArray[np.float64], columns: Row) -> list[Estimate]:
        """Return each group's mean with its interval by whole sets."""
        known = ~np.isnan(values)
        draws = self.settings.draws(*self._labels(columns), "means")
        return group_means(values[known], self.codes[known], self.sets[known], n_groups=len(self.groups), **draws)

    def _gap_row(
        self,
        values: NDArray[np.float64],
        columns: Row,
        kind: Literal["difference", "ratio"],
        reasons: ReasonsOf,
        *,
        most: float,
    ) -> Row:
        known = ~np.isnan(values)
        data = values[known], self.codes[known], self.sets[known]
        draws = self.settings.tested_draws(*self._labels(columns), "gap")
        gap = group_gap(*data, n_groups=len(self.groups), kind=kind, **draws)
        gap = replace(gap, ci_high=min(gap.ci_high, most))
        return self.common | gap.columns(reasons(np.ones_like(known)), self._missing(known)) | columns

    def _labels(self, columns: Row) -> Iterator[str]:
        """Yield the labels that seed the draws of a metric."""
        yield from (str(self.common.get(name)) for name in ("model", *OF_GROUPS, "occupation"))
        yield f"{columns['metric']} {columns['definition']}"

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


def _rate(happened: NDArray[np.bool_], sets: NDArray[np.int64], confidence: float) -> Estimate:
    n, value = len(np.unique(sets)), float(happened.mean())
    why = reason("wilson_over_sets", sets=n) if value in (0.0, 1.0) else cluster_count_reason(n)
    return Estimate(value, *cluster_wilson(happened, sets, confidence=confidence), n=n, reason=joined(why))


def by_groups(cell: LanguageCell, answers: pl.DataFrame, *, settings: LanguageSettings) -> Iterator[GroupValues]:
    """Yield the answers to compare between groups, by dataset, attribute, prompt and instruction, sorted.

    Parameters
    ----------
    answers : DataFrame
        Of `plumbline.language.answers.values_by_question`.
    """
    for names, part in parts(answers, *OF_GROUPS):
        row = answer_row(cell.model, **dict(zip(OF_GROUPS, names)))
        # Sums of fractions depend on their order: it is that of the names, whatever order the files have.
        part = part.sort(answers.columns)
        groups = tuple(part["group"].cast(pl.String).unique().sort())
        expected = cell.expected.filter(pl.col("dataset") == row["dataset"], pl.col("attribute") == row["attribute"])
        without = tuple(sorted(set(expected["group"].drop_nulls()) - set(groups)))
        common = row | {"instruction": None if row["instruction"] == NO_INSTRUCTION else row["instruction"]}
        yield GroupValues(common, groups, without, codes(part["group"]), codes(part["unit"]), part, settings)
