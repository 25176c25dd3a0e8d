"""What is said of one-probe tests on test rows: accuracy, what was gained, P(class → probe), over trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from plumbline.catalog.schema import Row, Schema, metric_frame
from plumbline.catalog.suites import Suite
from plumbline.mitigations.logit_adjustment.cells import (
    SUITES,
    AuditedCell,
    ProbeTests,
    probe_tests,
    required_tests,
)
from plumbline.mitigations.logit_adjustment.fit import (
    LogitAdjustment,
    LogitAdjustmentSettings,
    adjust,
    drawn_rows,
    is_leaking,
    learn,
    rows_left,
    winners_by_trial,
)
from plumbline.statistics.counts import shares
from plumbline.statistics.groups import Groups, mixed_groups
from plumbline.statistics.intervals import wilson
from plumbline.statistics.reasons import group_size_reason, joined

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


# --- Metric rows of a cell before and after its logit adjustments, on images that they were not fitted
# on.


def adjustment_rows(
    cell: AuditedCell,
    adjustments: Mapping[str, LogitAdjustment],
    *,
    confidence: float = 0.95,
    min_group: int = 30,
) -> pl.DataFrame:
    """Return metric rows of the cell before and after its adjustments, on test rows only.

    Suites: `trident` and, with the same factors and without their training images, `trident_mixed`; an
    adjustment of composite candidates has `trident_composite` alone. Metrics `macro_accuracy`, `probe_rate`
    (conditions `before` and the adjustment's id) and `macro_accuracy_gain` (after - before; positive is
    better); statistics `mean` and `sd` (ddof 1) over trials.

    Rows of macro accuracy and probe rates that share suite and definition are of the same test images.
    `test_rows` are those of the first adjustment of the suite and of all that share its training rows. An
    adjustment with other training rows (another N, other trials) has the definition `test_rows_of_` and its
    id, and so have all that share them in turn; `before` is there once for each definition. So the key of a
    row is unique, and every row stands beside the `before` that it is to be compared with. A gain is paired
    image by image on the adjustment's own test rows, whatever they are: its definition is always `test_rows`.

    Parameters
    ----------
    adjustments : mapping of str to LogitAdjustment
        By id, from `fit_cell` on this cell, in the order of the audit file. Empty where the cell has nothing
        to adjust: there are then no rows.

    Returns
    -------
    DataFrame
        Means carry an interval over test images, the fitted factors taken as given: Wilson for rates, normal
        (linearised, within groups) for macro accuracy and gain. `n` is the number of test rows a trial. Rows
        of an adjustment whose epoch test labels chose say so in `reason`.

    Raises
    ------
    MetricError
        If an adjustment was fitted on another cell: this one has nothing to adjust, or other probes or
        classes.
    """
    rows: list[Row] = []
    for candidates in SUITES:
        fits = {name: fit for name, fit in adjustments.items() if fit.candidates == candidates}
        if not fits:
            continue
        tests = required_tests(cell, candidates)
        pairs = list(_judged(tests, fits))
        for suite, groups in _views(cell, tests):
            estimates = AdjustmentEstimates(
                cell.model, cell.dataset, suite, tests.suite, groups, confidence, min_group
            )
            seen: set[str] = set()
            for before, after in pairs:
                if before.definition not in seen:
                    rows += estimates.of(before)
                    seen.add(before.definition)
                rows += estimates.of(after)
                rows += estimates.gains(before, after)
    return metric_frame(rows)


def _judged(tests: ProbeTests, fits: Mapping[str, LogitAdjustment]) -> Iterator[tuple[Judged, Judged]]:
    """Give the answers before and after each adjustment, on its own test rows."""
    labels = tests.classes.codes
    unadjusted = tests.responses.argmax(axis=-1)[:, None]
    for name, definition in _definitions(fits).items():
        fit = fits[name]
        test = fit.test_rows(len(labels)) & (labels >= 0)
        after = winners_by_trial(fit, tests.responses)
        before = np.broadcast_to(unadjusted, after.shape)
        yield (
            Judged("before", definition, before, test, labels),
            Judged(name, definition, after, test, labels, leaking=fit.leaking),
        )


def _definitions(fits: Mapping[str, LogitAdjustment]) -> dict[str, str]:
    """Name the test rows of each adjustment after the first that has them."""
    firsts: list[str] = []
    definitions = {}
    for name, fit in fits.items():
        sharing = (first for first in firsts if np.array_equal(fits[first].train_rows, fit.train_rows))
        first = next(sharing, name)
        if first == name:
            firsts.append(name)
        definitions[name] = DEFINITION if first == firsts[0] else f"{DEFINITION}_of_{first}"
    return definitions


def _views(cell: AuditedCell, tests: ProbeTests) -> Iterator[tuple[str, Groups]]:
    """Give the suites that the tests are reported as, with the groups that their images are seen by."""
    yield tests.suite.id, tests.classes
    if tests.suite.id == SUITES["single"] and (mixed := mixed_groups(tests.classes, cell.records)):
        yield "trident_mixed", mixed


# --- How much a logit adjustment gains by the number of images a class and by the learning rate.
#
# Source: Sun et al., "Uncovering Bias in Foundation Models", supplement S2.1 and S2.2, which varied N
# over 10 to 200.

PER_CLASS = (10, 20, 30, 40, 100, 200)
LEARNING_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)

ABLATION_SCHEMA: Schema = {
    "model": pl.String,
    "dataset": pl.String,
    "suite": pl.String,
    "attribute": pl.String,
    "probe": pl.String,
    "varied": pl.String,
    "per_class": pl.Int64,
    "learning_rate": pl.Float64,
    "value": pl.Float64,
    "sd": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n_train": pl.Int64,
    "n": pl.Int64,
    "reason": pl.String,
}
"""`varied` is `per_class` or `learning_rate`; `value` the macro accuracy gained, its mean over trials,
`sd` its standard deviation over trials (ddof 1); `n_train` and `n` are training and test rows of a trial."""


def ablation(
    cell: AuditedCell,
    settings: LogitAdjustmentSettings,
    *,
    seed: int,
    per_class: Sequence[int] = PER_CLASS,
    learning_rates: Sequence[float] = LEARNING_RATES,
    confidence: float = 0.95,
) -> pl.DataFrame:
    """Fit with other numbers of images and with other learning rates, and judge each fit on its test rows.

    What is not varied is as the settings say. A fit holds all probes and trials at once, and the learning
    rates, which share their training rows, are one descent together.

    Parameters
    ----------
    per_class : sequence of int
        Values of N, each with its own draw, and so with its own test rows; a class with fewer than 2N images
        gives half of them, and `reason` says so.
    learning_rates : sequence of float
        Tried at the settings' own N.

    Returns
    -------
    DataFrame
        `ABLATION_SCHEMA`, one row a probe and tried value; intervals as in `adjustment_rows`. Empty where the
        cell has nothing to adjust.
    """
    tests = probe_tests(cell, settings.candidates)
    rows: list[dict[str, object]] = []
    if tests is not None and np.bincount(tests.classes.codes[tests.labelled]).max() >= 2:
        experiment = _Experiment(cell, tests, settings, seed, confidence)
        for n in per_class:
            rows += experiment.rows("per_class", n, [settings.learning_rate])
        rows += experiment.rows("learning_rate", settings.per_class, learning_rates)
    return pl.DataFrame(rows, schema=ABLATION_SCHEMA, orient="row")


@dataclass(frozen=True)
class _Experiment:
    cell: AuditedCell
    tests: ProbeTests
    settings: LogitAdjustmentSettings
    seed: int
    confidence: float

    def rows(self, varied: str, per_class: int, rates: Sequence[float]) -> list[dict[str, object]]:
        """Return the rows of one N with every given learning rate."""
        groups, x = self._labelled
        train = drawn_rows(
            groups.codes, len(groups.names), per_class=per_class, trials=self.settings.trials, seed=self.seed
        )
        test = rows_left(train, x.shape[1])
        before = (x.argmax(axis=-1) == groups.codes).astype(np.float64)[:, None]
        rows = []
        for rate, factors in zip(rates, self._factors(x, groups, train, rates)):
            mode = self.settings.mode
            adjusted = [adjust(x, factors[:, t], mode).argmax(axis=-1) for t in range(len(train))]
            gain = (np.stack(adjusted, axis=1) == groups.codes) - before
            found = macro_means(gain, test, groups, confidence=self.confidence, bounds=(-1.0, 1.0))
            about = {
                "varied": varied,
                "per_class": per_class,
                "learning_rate": rate,
                "n_train": train.shape[1],
                "n": int(test[0].sum()),
                "reason": self._reason(groups, per_class),
            }
            rows += self._of_probes(found, about)
        return rows

    @property
    def _labelled(self) -> tuple[Groups, NDArray[np.float64]]:
        """Return the classes of the labelled rows, and the (p, n, C + 1) logits of these rows."""
        rows, classes = self.tests.labelled, self.tests.classes
        return replace(classes, codes=classes.codes[rows]), self.tests.responses[:, rows].astype(np.float64)

    def _factors(
        self, x: NDArray[np.float64], groups: Groups, train: NDArray[np.int64], rates: Sequence[float]
    ) -> list[NDArray[np.float64]]:
        """Return (p, t, C + 1) factors by learning rate: every rate's trials are trials of one descent."""
        trials = len(train)
        learned = learn(
            x,
            groups.codes,
            np.tile(train, (len(rates), 1)),
            n_classes=len(groups.names),
            mode=self.settings.mode,
            learning_rate=np.repeat(np.asarray(rates, dtype=np.float64), trials),
            epochs=self.settings.epochs,
            selection=self.settings.selection,
        )
        return [learned.factors[:, i * trials : (i + 1) * trials] for i in range(len(rates))]

    def _reason(self, groups: Groups, per_class: int) -> str | None:
        smaller = int((np.bincount(groups.codes, minlength=len(groups.names)) < 2 * per_class).sum())
        halved = f"{smaller} of {len(groups.names)} classes have fewer than 2N images and gave half"
        return joined(LEAKING if is_leaking(self.settings) else None, halved if smaller else None)

    def _of_probes(self, found: MacroMeans, about: dict[str, object]) -> list[dict[str, object]]:
        common = about | {
            "model": self.cell.model,
            "dataset": self.cell.dataset,
            "suite": self.tests.suite.id,
            "attribute": self.tests.classes.attribute,
        }
        return [
            common
            | {"probe": probe.id, "value": found.value[i], "sd": found.spread[i]}
            | {"ci_low": found.ci_low[i], "ci_high": found.ci_high[i]}
            for i, probe in enumerate(self.tests.suite.probes)
        ]
