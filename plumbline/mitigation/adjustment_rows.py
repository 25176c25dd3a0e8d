"""Logit adjustment on a whole cell: fitted for every probe, and judged on the images that it never saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from plumbline.errors import MetricError
from plumbline.mitigation.adjustment_descent import Mode, winners
from plumbline.mitigation.logit_adjustment import (
    LogitAdjustment,
    Selection,
    apply_logit_adjustment,
    fit_logit_adjustment,
)
from plumbline.statistics.groups import Groups, crossed_with_gender, label_codes
from plumbline.statistics.intervals import wilson
from plumbline.tables.schema import metric_frame
from plumbline.tables.suites import Suite

Row = dict[str, object]
CONDITIONS: dict[Selection, str] = {
    "train_loss": "logit_adjustment",
    "train_accuracy": "logit_adjustment",
    "released": "logit_adjustment_released",
}


class ProbeLogits(Protocol):
    """What is read of a suite's logits: `plumbline.metrics.SuiteLogits` is one."""

    @property
    def suite(self) -> Suite:
        """Return the suite."""

    @property
    def logits(self) -> NDArray[np.float32]:
        """Return the (n, m) logits."""


class AuditedCell(Protocol):
    """What is read of a cell: `plumbline.metrics.Cell` is one."""

    @property
    def model(self) -> str:
        """Return the encoder's id."""

    @property
    def dataset(self) -> str:
        """Return the dataset's id."""

    @property
    def records(self) -> pl.DataFrame:
        """Return one row an image."""

    @property
    def logits(self) -> Mapping[str, ProbeLogits]:
        """Return the logits by suite."""

    def rows(self, suite: str) -> NDArray[np.bool_]:
        """Return which rows count for a suite."""


@dataclass(frozen=True)
class Judged:
    """Predictions on test rows, seen by groups.

    Attributes
    ----------
    winner : (p, t, n) int64
        Top-1 of each probe test and trial.
    test : (t, n) bool
    right : (n,) int64
        True class.
    """

    winner: NDArray[np.int64]
    test: NDArray[np.bool_]
    right: NDArray[np.int64]


def fit_cell(
    cell: AuditedCell,
    *,
    seed: int,
    per_class: int = 20,
    learning_rate: float = 0.01,
    epochs: int = 20,
    trials: int = 3,
    mode: Mode = "multiplicative",
    selection: Selection = "train_loss",
) -> LogitAdjustment | None:
    """Fit the adjustment of every probe of the cell's Trident suite.

    Parameters are those of `fit_logit_adjustment`. Raw dot products are adjusted, as in the released code;
    images that the audit's filter drops or whose label is no class are left out.

    Returns
    -------
    LogitAdjustment or None
        `train_rows` are rows of `cell.records`, in the suite's order of probes. None where the cell has no
        Trident logits or no labels for them.
    """
    found = _labelled(cell)
    if found is None:
        return None
    logits, classes = found
    rows = np.flatnonzero(classes.codes >= 0)
    fitted = fit_logit_adjustment(
        _by_probe(logits)[:, rows],
        classes.codes[rows],
        n_classes=len(classes.names),
        per_class=per_class,
        learning_rate=learning_rate,
        epochs=epochs,
        trials=trials,
        seed=seed,
        mode=mode,
        selection=selection,
    )
    return replace(fitted, train_rows=rows[fitted.train_rows])


def adjustment_rows(
    cell: AuditedCell,
    adjustments: Sequence[LogitAdjustment],
    *,
    confidence: float = 0.95,
    min_group: int = 30,
) -> pl.DataFrame:
    """Return metric rows of the cell before and after its adjustments, on test rows only.

    Suites `trident` and, with the same factors and without their training images, `trident_mixed`. Metrics
    `macro_accuracy`, `probe_rate` (conditions `before` and `logit_adjustment` or
    `logit_adjustment_released`) and `macro_accuracy_gain` (after - before; positive is better); definition
    `test_rows`; statistics `mean` and `sd` (ddof 1) over trials.

    Parameters
    ----------
    adjustments : sequence of LogitAdjustment
        From `fit_cell` on this cell, with the same training rows. Empty where the cell has no Trident suite or no
        labels for it: there are then no rows.

    Returns
    -------
    DataFrame
        Means carry a 95% interval over test images, the fitted factors taken as given: Wilson for rates,
        normal (linearised, within groups) for macro accuracy and gain. `n` is the number of test rows a
        trial.

    Raises
    ------
    MetricError
        If adjustments were fitted on different rows, or on another cell: this one has nothing to adjust.
    """
    if not adjustments:
        return metric_frame([])
    found = _labelled(cell)
    if found is None:
        raise MetricError(
            "there is nothing to adjust in this cell",
            where=f"{cell.model} on {cell.dataset}",
            found=f"{len(adjustments)} adjustments, but no Trident logits or no labels for them",
        )
    if any(not np.array_equal(a.train_rows, adjustments[0].train_rows) for a in adjustments):
        raise MetricError(
            "adjustments of one cell must share their training rows",
            hint="fit them with the same seed and settings",
        )
    logits, classes = found
    responses = _by_probe(logits)
    test = adjustments[0].test_rows(cell.records.height) & (classes.codes >= 0)
    shape = (len(responses), len(test), cell.records.height)
    unadjusted = Judged(np.broadcast_to(winners(responses)[:, None], shape), test, classes.codes)
    after = {
        CONDITIONS[a.selection]: Judged(winners(apply_logit_adjustment(a, responses)), test, classes.codes)
        for a in adjustments
    }
    rows: list[Row] = []
    for suite, groups in _views(cell, classes):
        tables = _Rows(cell, logits.suite, suite, groups, confidence, min_group)
        rows += tables.of("before", unadjusted)
        for condition, judged in after.items():
            rows += tables.of(condition, judged)
            rows += tables.gains(condition, unadjusted, judged)
    return metric_frame(rows)


def _labelled(cell: AuditedCell) -> tuple[ProbeLogits, Groups] | None:
    logits = cell.logits.get("trident")
    if logits is None or logits.suite.attribute not in cell.records.columns:
        return None
    suite = logits.suite
    codes = label_codes(cell.records[str(suite.attribute)], suite.class_labels)
    codes = np.where(cell.rows("trident"), codes, -1)
    return (logits, Groups(str(suite.attribute), suite.class_labels, codes)) if (codes >= 0).any() else None


def _by_probe(logits: ProbeLogits) -> NDArray[np.float32]:
    """Return the (p, n, C + 1) logits of every one-probe test."""
    c = len(logits.suite.class_labels)
    answers = logits.logits
    probes = answers.shape[1] - c
    classes = np.broadcast_to(answers[None, :, :c], (probes, len(answers), c))
    return np.concatenate([classes, answers[:, c:].T[..., None]], axis=-1)


def _views(cell: AuditedCell, classes: Groups) -> Iterator[tuple[str, Groups]]:
    yield "trident", classes
    if classes.attribute != "gender" and "auto_gender" in cell.records.columns:
        mixed = crossed_with_gender(classes, cell.records["auto_gender"])
        if (mixed.codes >= 0).any():
            yield "trident_mixed", mixed


@dataclass(frozen=True)
class _Rows:
    """Makes the rows of one suite."""

    cell: AuditedCell
    source: Suite
    suite: str
    groups: Groups
    confidence: float
    min_group: int

    def of(self, condition: str, judged: Judged) -> list[Row]:
        """Return the macro accuracy and probe rate rows of one condition."""
        correct = (judged.winner == judged.right).astype(np.float64)
        return self._macro("macro_accuracy", condition, correct, judged.test, (0.0, 1.0)) + self._rates(
            condition, judged
        )

    def gains(self, condition: str, before: Judged, after: Judged) -> list[Row]:
        """Return the rows of the macro accuracy gained, image by image."""
        gained = (after.winner == after.right).astype(np.float64) - (before.winner == before.right)
        return self._macro("macro_accuracy_gain", condition, gained, after.test, (-1.0, 1.0))

    def _macro(
        self,
        metric: str,
        condition: str,
        values: NDArray[np.float64],
        test: NDArray[np.bool_],
        bounds: tuple[float, float],
    ) -> list[Row]:
        mean, error = self._macro_means(values, test)
        n = round(float((test & (self.groups.codes >= 0)).sum(axis=1).mean()))
        half = ndtri((1 + self.confidence) / 2) * error
        rows = []
        for i, probe in enumerate(self._probes):
            flat = None if error[i] > 0 else "no interval: the test images do not vary"
            low, high = (np.clip(mean[i].mean() + side * half[i], *bounds) for side in (-1, 1))
            ends = {"ci_low": float(low), "ci_high": float(high)} if flat is None else {}
            common = self._common(metric, condition, probe=probe, n=n)
            rows.append(common | {"statistic": "mean", "value": mean[i].mean(), "reason": flat} | ends)
            rows.append(common | _spread(mean[i]))
        return rows

    def _macro_means(
        self, values: NDArray[np.float64], test: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean over non-empty groups (p, t), and the standard error (p,) of its mean over trials.

        The mean is a sum of group means, so an image moves it by its residual over its group's size; the
        trials share most of their test images, which therefore are added up image by image before squaring.
        """
        member = self.groups.codes == np.arange(len(self.groups.names))[:, None]
        inside = member[None] & test[:, None, :]
        size = inside.sum(axis=-1)
        filled = (size > 0).sum(axis=1)
        weight = inside / np.maximum(size, 1)[..., None]
        means = np.einsum("ptn,tgn->ptg", values, weight, optimize=True)
        expected = np.einsum("ptg,tgn->ptn", means, inside.astype(np.float64), optimize=True)
        share = weight.sum(axis=1) / filled[:, None]
        residual = ((values - expected) * share).mean(axis=1)
        freedom = np.maximum(member.sum(axis=1), 2)
        scale = (member * (freedom / (freedom - 1))[:, None]).sum(axis=0)
        return means.sum(axis=-1) / filled, np.sqrt((residual**2 * scale).sum(axis=-1))

    def _rates(self, condition: str, judged: Judged) -> list[Row]:
        became = (judged.winner == len(self.source.class_labels)).astype(np.float64)
        member = (self.groups.codes == np.arange(len(self.groups.names))[:, None])[None] & judged.test[
            :, None, :
        ]
        size = member.sum(axis=-1)
        count = np.einsum("ptn,tgn->ptg", became, member.astype(np.float64), optimize=True)
        rate = np.divide(count, size, out=np.full(count.shape, np.nan), where=size > 0)
        n = np.rint(size.mean(axis=0)).astype(np.int64)
        mean = rate.mean(axis=1)
        low, high = wilson(np.nan_to_num(mean) * n, n, confidence=self.confidence)
        rows = []
        for i, probe in enumerate(self._probes):
            for g, group in enumerate(self.groups.names):
                common = self._common("probe_rate", condition, probe=probe, group=group, n=int(n[g]))
                ends = {"value": mean[i, g], "ci_low": low[i, g], "ci_high": high[i, g]}
                rows.append(common | {"statistic": "mean", "reason": self._size_reason(int(n[g]))} | ends)
                rows.append(common | _spread(rate[i, :, g]))
        return rows

    @property
    def _probes(self) -> list[str]:
        return [c.id for c in self.source.candidates if c.category != "class"]

    def _size_reason(self, n: int) -> str | None:
        if n == 0:
            return "empty group"
        return f"small group: {n} images, fewer than {self.min_group}" if n < self.min_group else None

    def _common(self, metric: str, condition: str, **columns: object) -> Row:
        row: Row = {
            "metric": metric,
            "definition": "test_rows",
            "model": self.cell.model,
            "dataset": self.cell.dataset,
            "suite": self.suite,
            "suite_hash": self.source.hash,
            "attribute": self.groups.attribute,
            "condition": condition,
        }
        return row | columns


def _spread(trials: NDArray[np.float64]) -> Row:
    """Return the standard deviation over trials; it has no interval of its own."""
    if len(trials) < 2:
        return {"statistic": "sd", "value": float("nan"), "reason": "one trial has no spread"}
    return {"statistic": "sd", "value": float(trials.std(ddof=1)), "reason": None}
