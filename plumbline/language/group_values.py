"""Numbers of single answers, compared between the groups of one dataset, attribute, prompt and instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.language.answers import UNIT, Row, answer_row
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.intervals import wilson
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_bootstrap import SetEstimate, group_gap, group_means
from plumbline.tables.generation_schema import NO_INSTRUCTION

OF_GROUPS = ("dataset", "attribute", "prompt", "instruction")
"""What is compared between groups is all of one of these."""

_NAMES = (*OF_GROUPS, "group", "occupation", "unit")

Reason = Callable[[int | None], str | None]
"""From a group's place, or None for all groups, to what is to be said of its number."""


def answer_values(answers: pl.LazyFrame, **values: pl.Expr) -> pl.DataFrame:
    """Return small numbers of every answer, and whose they are as codes: some 20 bytes a row, and no text.

    Parameters
    ----------
    answers : LazyFrame
        In `plumbline.language.cell.DESCRIBED_SCHEMA`; of images whose group is known.
    **values : expression
        Name -> what is kept of each answer, computed row by row as texts stream by.

    Returns
    -------
    DataFrame
        `dataset, attribute, prompt, instruction, group, occupation, unit` as Enum, in the order of their names, and
        the values.
    """
    named = answers.with_columns(unit=UNIT)
    # One after the other: asked for together they would share a scan, which is then kept in memory as a whole.
    distinct = [
        named.select(pl.col(name).unique()).collect(engine="streaming").to_series() for name in _NAMES
    ]
    kinds = {name: pl.Enum(found.drop_nulls().sort()) for name, found in zip(_NAMES, distinct)}
    return named.select(*(pl.col(name).cast(kinds[name]) for name in _NAMES), **values).collect(
        engine="streaming"
    )


@dataclass(frozen=True)
class GroupValues:
    """Answers to one question, with a number each; nan is an answer without one.

    Attributes
    ----------
    common : Row
        The columns that all metric rows about them share.
    groups : tuple of str
    codes, sets : (n,) int64
        Group and independent unit of each answer.
    answers : DataFrame
        The n rows of `answer_values`.
    settings : LanguageSettings
    """

    common: Row
    groups: tuple[str, ...]
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

    def means(self, values: NDArray[np.float64], *, what: str) -> list[SetEstimate]:
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
        self, values: NDArray[np.float64], *, reason: Reason = lambda group: None, **columns: object
    ) -> list[Row]:
        """Return a row of the mean of every group; n counts the answers with a number."""
        number = np.bincount(self.codes[~np.isnan(values)], minlength=len(self.groups))
        return [
            self.common
            | {"group": name, "statistic": "mean"}
            | found.columns(reason(group))
            | {"n": int(number[group])}
            | columns
            for group, (name, found) in enumerate(zip(self.groups, self.means(values, what=_named(columns))))
        ]

    def gap_row(
        self,
        values: NDArray[np.float64],
        *,
        kind: Literal["difference", "ratio"] = "difference",
        reason: Reason = lambda group: None,
        **columns: object,
    ) -> Row:
        """Return the row of the largest minus, or over, the smallest group mean; n counts the answers."""
        known = ~np.isnan(values)
        found = group_gap(
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
        return self.common | found.columns(reason(None)) | {"n": int(known.sum())} | columns

    def rate_rows(
        self, happened: NDArray[np.bool_], *, overall: bool = False, **columns: object
    ) -> list[Row]:
        """Return a row of the rate of every group, and of all answers; where no answer differs, Wilson's interval.

        A rate of exactly 0 or 1 has no bootstrap interval. Wilson's then counts each set as one observation, which is
        the least that the answers can be worth.
        """
        whole = replace(self, groups=("",), codes=np.zeros_like(self.codes))
        rows = []
        for each in (self, *([whole] if overall else [])):
            estimates = each.means(happened.astype(np.float64), what=_named(columns))
            number = np.bincount(each.codes, minlength=len(each.groups))
            rows += [
                self.common
                | {"group": name or None}
                | _with_wilson(found, self.settings.confidence).columns()
                | {"n": int(count)}
                | columns
                for name, found, count in zip(each.groups, estimates, number)
            ]
        return rows

    def _generator(self, *labels: str) -> np.random.Generator:
        named = (str(self.common.get(name)) for name in ("model", *OF_GROUPS, "occupation"))
        return generator(self.settings.seed, *named, *labels)


def _named(columns: Row) -> str:
    return f"{columns.get('metric')} {columns.get('definition')}"


def _with_wilson(found: SetEstimate, confidence: float) -> SetEstimate:
    if found.value not in (0.0, 1.0):
        return found
    low, high = wilson(found.value * found.n, found.n, confidence=confidence)
    reason = f"interval by Wilson over {found.n} sets: no answer differs"
    return replace(found, ci_low=float(low), ci_high=float(high), reason=reason)


def by_question(model: str, answers: pl.DataFrame, *, settings: LanguageSettings) -> Iterator[GroupValues]:
    """Yield what is compared between groups, one dataset, attribute, prompt and instruction at a time, by name."""
    kind = answers.schema["group"]
    names = list(kind.categories) if isinstance(kind, pl.Enum) else []
    parts = answers.partition_by(OF_GROUPS, as_dict=True)
    for dataset, attribute, prompt, instruction in sorted(parts):
        # Sums of fractions depend on their order: it is that of the names, whatever order the files have.
        part = parts[dataset, attribute, prompt, instruction].sort(answers.columns)
        codes = part["group"].to_physical().cast(pl.Int64).to_numpy()
        own, codes = np.unique(codes, return_inverse=True)
        common = answer_row(
            model,
            dataset=dataset,
            attribute=attribute,
            prompt=prompt,
            instruction=None if instruction == NO_INSTRUCTION else instruction,
        )
        sets = part["unit"].to_physical().cast(pl.Int64).to_numpy()
        yield GroupValues(common, tuple(names[place] for place in own), codes, sets, part, settings)
