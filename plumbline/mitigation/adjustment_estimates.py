"""What is said of one-probe tests on test rows: accuracy, what was gained, P(class → probe), over trials."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from plumbline.statistics.counts import shares
from plumbline.statistics.groups import Groups
from plumbline.statistics.intervals import wilson
from plumbline.statistics.reasons import group_size_reason, joined
from plumbline.tables.schema import Row
from plumbline.tables.suites import Suite

DEFINITION = "test_rows"
LEAKING = "leaking: test labels had a say in these factors"


@dataclass(frozen=True)
class Judged:
    """Predictions on test rows.

    Attributes
    ----------
    condition : str
        `before`, or the adjustment's id.
    definition : str
        Which test rows: equal where the rows are equal.
    winner : (p, t, n) int64
        Top-1 of each probe test and trial.
    test : (t, n) bool
    right : (n,) int64
        True class.
    leaking : bool
        Whether test labels had a say.
    """

    condition: str
    definition: str
    winner: NDArray[np.int64]
    test: NDArray[np.bool_]
    right: NDArray[np.int64]
    leaking: bool = False

    @property
    def correct(self) -> NDArray[np.float64]:
        """Return (p, t, n) 1 where the top-1 is the class."""
        return (self.winner == self.right).astype(np.float64)


@dataclass(frozen=True)
class MacroMeans:
    """Means over groups of means over a group's test rows.

    Attributes
    ----------
    values : (p, t) float64
        Of each trial.
    value, error, ci_low, ci_high : (p,) float64
        Mean over trials, its standard error over test images with the factors taken as given, and a normal
        interval clipped to what is possible; nan ends where the test images do not vary.
    """

    values: NDArray[np.float64]
    value: NDArray[np.float64]
    error: NDArray[np.float64]
    ci_low: NDArray[np.float64]
    ci_high: NDArray[np.float64]

    @property
    def spread(self) -> NDArray[np.float64]:
        """Return the (p,) standard deviation over trials (ddof 1); nan of one trial."""
        if self.values.shape[1] < 2:
            return np.full(len(self.values), np.nan)
        return np.asarray(self.values.std(axis=1, ddof=1))


def macro_means(
    values: NDArray[np.float64],
    test: NDArray[np.bool_],
    groups: Groups,
    *,
    confidence: float,
    bounds: tuple[float, float],
) -> MacroMeans:
    """Average values image by image: over the test rows of a group, then over the groups that are not empty.

    Parameters
    ----------
    values : (p, t, n) float64
    test : (t, n) bool
    bounds : tuple of float
        Least and greatest possible value: the ends of the interval stay within.
    """
    each, error = _means_and_errors(values, test, groups)
    mean, half = each.mean(axis=1), ndtri((1 + confidence) / 2) * error
    low, high = (np.where(error > 0, np.clip(mean + side * half, *bounds), np.nan) for side in (-1, 1))
    return MacroMeans(each, mean, error, low, high)


def _means_and_errors(
    values: NDArray[np.float64], test: NDArray[np.bool_], groups: Groups
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean over non-empty groups (p, t), and the standard error (p,) of its mean over trials.

    The mean is a sum of group means, so an image moves it by its residual over its group's size; the trials
    share most of their test images, which therefore are added up image by image before squaring.
    """
    member = groups.codes == np.arange(len(groups.names))[:, None]
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


@dataclass(frozen=True)
class AdjustmentEstimates:
    """Makes the metric rows of one suite, its images seen by groups.

    Attributes
    ----------
    model, dataset, suite : str
        As the rows say them.
    source : Suite
        The candidates.
    groups : Groups
        The classes, or the classes crossed with automatic gender labels.
    confidence : float
    min_group : int
        A group with fewer test rows is called small.
    """

    model: str
    dataset: str
    suite: str
    source: Suite
    groups: Groups
    confidence: float
    min_group: int

    def of(self, judged: Judged) -> list[Row]:
        """Return the macro accuracy and probe rate rows of one condition."""
        return self._macro("macro_accuracy", judged, judged.correct, (0.0, 1.0)) + self._rates(judged)

    def gains(self, before: Judged, after: Judged) -> list[Row]:
        """Return the rows of the macro accuracy gained, image by image on the same test rows."""
        gained = after.correct - before.correct
        return self._macro("macro_accuracy_gain", replace(after, definition=DEFINITION), gained, (-1.0, 1.0))

    def _macro(
        self, metric: str, judged: Judged, values: NDArray[np.float64], bounds: tuple[float, float]
    ) -> list[Row]:
        found = macro_means(values, judged.test, self.groups, confidence=self.confidence, bounds=bounds)
        n = round(float((judged.test & (self.groups.codes >= 0)).sum(axis=1).mean()))
        rows = []
        for i, probe in enumerate(self._probes):
            common = self._common(metric, judged, probe=probe, n=n)
            mean: Row = {"statistic": "mean", "value": float(found.value[i])}
            if found.error[i] > 0:
                mean |= {"ci_low": float(found.ci_low[i]), "ci_high": float(found.ci_high[i])}
                reason = None
            else:
                reason = "no interval: the test images do not vary"
            rows.append(common | mean | {"reason": _reasons(judged, reason)})
            rows.append(common | _spread(judged, found.values[i]))
        return rows

    def _rates(self, judged: Judged) -> list[Row]:
        became = (judged.winner == len(self.source.class_labels)).astype(np.float64)
        of_group = self.groups.codes == np.arange(len(self.groups.names))[:, None]
        member = of_group[None] & judged.test[:, None, :]
        size = member.sum(axis=-1)
        count = np.einsum("ptn,tgn->ptg", became, member.astype(np.float64), optimize=True)
        rate = shares(count, size)
        n = np.rint(size.mean(axis=0)).astype(np.int64)
        mean = rate.mean(axis=1)
        low, high = wilson(np.nan_to_num(mean) * n, n, confidence=self.confidence)
        rows = []
        for i, probe in enumerate(self._probes):
            for g, group in enumerate(self.groups.names):
                common = self._common("probe_rate", judged, probe=probe, group=group, n=int(n[g]))
                ends = {"value": mean[i, g], "ci_low": low[i, g], "ci_high": high[i, g]}
                reason = _reasons(judged, group_size_reason(int(n[g]), self.min_group))
                rows.append(common | {"statistic": "mean", "reason": reason} | ends)
                rows.append(common | _spread(judged, rate[i, :, g]))
        return rows

    @property
    def _probes(self) -> list[str]:
        return [probe.id for probe in self.source.probes]

    def _common(self, metric: str, judged: Judged, **columns: object) -> Row:
        row: Row = {
            "metric": metric,
            "definition": judged.definition,
            "model": self.model,
            "dataset": self.dataset,
            "suite": self.suite,
            "suite_hash": self.source.hash,
            "attribute": self.groups.attribute,
            "condition": judged.condition,
        }
        return row | columns


def _spread(judged: Judged, trials: NDArray[np.float64]) -> Row:
    """Return the standard deviation over trials; it has no interval of its own."""
    if len(trials) < 2:
        reason = _reasons(judged, "one trial has no spread")
        return {"statistic": "sd", "value": float("nan"), "reason": reason}
    return {"statistic": "sd", "value": float(trials.std(ddof=1)), "reason": _reasons(judged, None)}


def _reasons(judged: Judged, reason: str | None) -> str | None:
    """Return what must be known of a row, that its factors leak first."""
    return joined(LEAKING if judged.leaking else None, reason)
