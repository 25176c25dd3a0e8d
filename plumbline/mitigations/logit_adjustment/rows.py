"""Metric rows of a cell before and after its logit adjustments, judged on images that no trial was fitted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, Schema, metric_frame
from plumbline.catalog.suites import Suite
from plumbline.mitigations.logit_adjustment.adjustment import (
    LogitAdjustment,
    LogitAdjustmentSettings,
    adjust,
    drawn_rows,
    held_out_rows,
    learn,
    winners_by_trial,
)
from plumbline.mitigations.logit_adjustment.cells import SUITES, AuditedCell, ProbeTests, probe_tests, required_tests
from plumbline.reasons import Reason, group_size_reason, in_words, joined, reason
from plumbline.statistics.estimates import EstimateArray
from plumbline.statistics.groups import Groups, mixed_groups, shares
from plumbline.statistics.intervals import wilson

DEFINITION, RELEASED = "test_rows", "released"


# --- The number: a macro mean over groups of test images, its mean and standard deviation over trials.


class TrialMeans(NamedTuple):
    """Means over groups of means over a group's test rows.

    Attributes
    ----------
    each : (p, t) float64
        Of each trial.
    mean : EstimateArray
        (p,) means over trials, with a normal interval over test images, the factors taken as given.
    """

    each: NDArray[np.float64]
    mean: EstimateArray


def macro_means(
    values: NDArray[np.float64],
    test: NDArray[np.bool_],
    groups: Groups,
    *,
    confidence: float,
    bounds: tuple[float, float],
) -> TrialMeans:
    """Average values image by image: over the test rows of a group, then over the groups that are not empty.

    The mean is a sum of group means, so an image moves it by its residual over its group's size; the trials
    share most of their test images, which therefore are added up image by image before squaring.

    Parameters
    ----------
    values : (p, t, n) float64
    test : (t, n) bool
    bounds : tuple of float
        Least and greatest possible value: the ends of the interval stay within. They are nan where the test images
        do not vary.
    """
    from scipy.special import ndtri

    member = groups.codes == np.arange(len(groups.names))[:, None]
    inside = member[None] & test[:, None, :]
    size = inside.sum(axis=-1)
    filled = (size > 0).sum(axis=1)
    weight = inside / np.maximum(size, 1)[..., None]
    means = np.einsum("ptn,tgn->ptg", values, weight, optimize=True)
    each = means.sum(axis=-1) / filled
    expected = np.einsum("ptg,tgn->ptn", means, inside.astype(np.float64), optimize=True)
    share = weight.sum(axis=1) / filled[:, None]
    residual = ((values - expected) * share).mean(axis=1)
    freedom = np.maximum(member.sum(axis=1), 2)
    scale = (member * (freedom / (freedom - 1))[:, None]).sum(axis=0)
    error = np.sqrt((residual**2 * scale).sum(axis=-1))
    mean, half = each.mean(axis=1), ndtri((1 + confidence) / 2) * error
    low, high = (np.where(error > 0, np.clip(mean + side * half, *bounds), np.nan) for side in (-1, 1))
    return TrialMeans(each, EstimateArray(mean, low, high))


def spread(trials: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation over trials, axis 1 (ddof 1); nan of one trial."""
    if trials.shape[1] < 2:
        return np.full((len(trials), *trials.shape[2:]), np.nan)
    return np.asarray(trials.std(axis=1, ddof=1))


# --- The rows.


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


def adjustment_rows(
    cell: AuditedCell, adjustments: Mapping[str, LogitAdjustment], *, confidence: float = 0.95, min_group: int = 30
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
        fits = {name: fit for name, fit in adjustments.items() if fit.settings.candidates == candidates}
        if not fits:
            continue
        tests = required_tests(cell, candidates)
        pairs = list(_judged(tests, fits))
        for suite, groups in _views(cell, tests):
            common: Row = {
                "model": cell.model, "dataset": cell.dataset, "suite": suite, "suite_hash": tests.suite.hash,
                "attribute": groups.attribute,
            }  # fmt: skip
            table = _Rows(common, tests.suite, groups, confidence, min_group)
            seen: set[str] = set()
            for before, after in pairs:
                fresh = [] if before.definition in seen else [before]
                seen.add(before.definition)
                for judged in (*fresh, after):
                    rows += table.macro("macro_accuracy", judged, judged.correct, (0.0, 1.0)) + table.rates(judged)
                # Gained image by image on the same test rows.
                gained, own_scores = after.correct - before.correct, replace(after, definition=DEFINITION)
                rows += table.macro("macro_accuracy_gain", own_scores, gained, (-1.0, 1.0))
                if after.leaking:  # the released code divides by C + 1 as well
                    share = len(tests.classes.names) / (len(tests.classes.names) + 1)
                    as_released = replace(after, definition=RELEASED)
                    rows += table.macro("macro_accuracy_gain", as_released, share * gained, (-share, share))
    return metric_frame(rows)


def _judged(tests: ProbeTests, fits: Mapping[str, LogitAdjustment]) -> Iterator[tuple[Judged, Judged]]:
    """Yield the answers before and after each adjustment, on its own test rows."""
    labels = tests.classes.codes
    unadjusted = tests.responses.argmax(axis=-1)[:, None]
    for name, definition in _definitions(fits).items():
        fit = fits[name]
        test = fit.test_rows(len(labels)) & (labels >= 0)
        after = winners_by_trial(fit, tests.responses)
        before = np.broadcast_to(unadjusted, after.shape)
        yield (
            Judged("before", definition, before, test, labels),
            Judged(name, definition, after, test, labels, leaking=fit.settings.leaking),
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
    """Yield the suites that the tests are reported as, with the groups that their images are seen by."""
    yield tests.suite.id, tests.classes
    if tests.suite.id == SUITES["single"] and (mixed := mixed_groups(tests.classes, cell.records)):
        yield "trident_mixed", mixed


@dataclass(frozen=True)
class _Rows:
    """Makes the metric rows of one suite, its images seen by groups: the classes, or these by automatic gender label.

    `common` are the columns that all rows share; a group with fewer test rows than `min_group` is called small.
    """

    common: Row
    suite: Suite
    groups: Groups
    confidence: float
    min_group: int

    def macro(self, metric: str, judged: Judged, values: NDArray[np.float64], bounds: tuple[float, float]) -> list[Row]:
        means = macro_means(values, judged.test, self.groups, confidence=self.confidence, bounds=bounds)
        n = round(float((judged.test & (self.groups.codes >= 0)).sum(axis=1).mean()))
        rows = []
        for probe, mean, trials in zip(self.suite.probes, means.mean, means.each):
            common: Row = {"metric": metric, "probe": probe.id, "n": n}
            varies = np.isfinite(mean.ci_low)
            ends: Row = {"ci_low": mean.ci_low, "ci_high": mean.ci_high} if varies else {}
            constant = None if varies else reason("constant_test_images")
            rows += self._pair(judged, common, {"value": mean.value} | ends, trials, constant)
        return rows

    def rates(self, judged: Judged) -> list[Row]:
        became = (judged.winner == len(self.suite.class_labels)).astype(np.float64)
        of_group = self.groups.codes == np.arange(len(self.groups.names))[:, None]
        member = of_group[None] & judged.test[:, None, :]
        size = member.sum(axis=-1)
        rate = shares(np.einsum("ptn,tgn->ptg", became, member.astype(np.float64), optimize=True), size)
        n = np.rint(size.mean(axis=0)).astype(np.int64)
        mean = rate.mean(axis=1)
        low, high = wilson(np.nan_to_num(mean) * n, n, confidence=self.confidence)
        rows = []
        for i, probe in enumerate(self.suite.probes):
            for g, group in enumerate(self.groups.names):
                common: Row = {"metric": "probe_rate", "probe": probe.id, "group": group, "n": int(n[g])}
                estimate: Row = {"value": mean[i, g], "ci_low": low[i, g], "ci_high": high[i, g]}
                small = group_size_reason(int(n[g]), self.min_group)
                rows += self._pair(judged, common, estimate, rate[i, :, g], small)
        return rows

    def _pair(
        self, judged: Judged, common: Row, mean: Row, trials: NDArray[np.float64], why: Reason | None
    ) -> list[Row]:
        """Return the rows of the mean and of the standard deviation over trials, which has no interval of its own."""
        row = self.common | {"definition": judged.definition, "condition": judged.condition} | common
        leaking = reason("leaking") if judged.leaking else None
        alone = reason("one_trial") if len(trials) < 2 else None
        sd: Row = {"statistic": "sd", "value": float(spread(trials[None])[0])}
        return [
            row | {"statistic": "mean", "reason": joined(leaking, why)} | mean,
            row | {"reason": joined(leaking, alone)} | sd,
        ]


# --- How much a logit adjustment gains by the number of images a class and by the learning rate.
#
# Source: Sun et al., "Uncovering Bias in Foundation Models", supplement S2.1 and S2.2, which varied N over 10 to 200.

PER_CLASS = (10, 20, 30, 40, 100, 200)
LEARNING_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)

ABLATION_SCHEMA: Schema = {
    **dict.fromkeys(("model", "dataset", "suite", "attribute", "probe", "varied"), pl.String),
    "per_class": pl.Int64,
    **dict.fromkeys(("learning_rate", "value", "sd", "ci_low", "ci_high"), pl.Float64),
    **dict.fromkeys(("n_train", "n"), pl.Int64),
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
    frames = [pl.DataFrame(schema=ABLATION_SCHEMA)]
    if tests is not None and tests.adjustable:
        known = tests.labelled()
        tried: list[tuple[str, int, Sequence[float]]] = [
            *(("per_class", n, [settings.learning_rate]) for n in per_class),
            ("learning_rate", settings.per_class, learning_rates),
        ]
        for varied, n, rates in tried:
            fit = settings.model_copy(update={"per_class": n})
            rows = pl.DataFrame(
                list(_gains(known, fit, rates, seed=seed, confidence=confidence)), schema=ABLATION_SCHEMA
            )
            about = {"model": cell.model, "dataset": cell.dataset, "varied": varied}
            frames.append(rows.with_columns(pl.lit(value).alias(name) for name, value in about.items()))
    return pl.concat(frames)


def ablations(
    cell: AuditedCell | None, settings_of: Mapping[str, LogitAdjustmentSettings], *, seed: int, confidence: float
) -> pl.DataFrame:
    """Return the `ablation` of every adjustment whose settings ask for it, with its id as `condition`."""
    frames = [pl.DataFrame(schema={"condition": pl.String, **ABLATION_SCHEMA})]
    for name, settings in settings_of.items():
        if cell is not None and settings.ablation:
            rows = ablation(cell, settings, seed=seed, confidence=confidence)
            frames.append(rows.select(pl.lit(name).alias("condition"), pl.all()))
    return pl.concat(frames)


def mean_gains(ablated: pl.DataFrame) -> pl.DataFrame:
    """Return the mean gain over probes of every tried number of images and learning rate of `ablations`."""
    over = ["condition", "varied", "per_class", "learning_rate"]
    return ablated.group_by(over, maintain_order=True).agg(pl.col("value", "sd").mean())


def _gains(
    tests: ProbeTests, settings: LogitAdjustmentSettings, rates: Sequence[float], *, seed: int, confidence: float
) -> Iterator[Row]:
    """Yield the gain of each probe at each learning rate: every rate's trials are trials of one descent."""
    groups, x = tests.classes, tests.responses.astype(np.float64)
    codes, classes, trials = groups.codes, len(groups.names), settings.trials
    train = drawn_rows(codes, classes, per_class=settings.per_class, trials=trials, seed=seed)
    test = held_out_rows(train, x.shape[1])
    learned = learn(
        x,
        codes,
        np.tile(train, (len(rates), 1)),
        n_classes=classes,
        settings=settings,
        learning_rates=np.repeat(np.asarray(rates, dtype=np.float64), trials),
    )
    before = (x.argmax(axis=-1) == codes).astype(np.float64)[:, None]
    smaller = int((np.bincount(codes, minlength=classes) < 2 * settings.per_class).sum())
    why = joined(
        reason("leaking") if settings.leaking else None,
        reason("halved_classes", smaller=smaller, classes=classes) if smaller else None,
    )
    for k, rate in enumerate(rates):
        factors = learned.factors[:, k * trials : (k + 1) * trials]
        tops = [adjust(x, factors[:, t], settings.mode).argmax(axis=-1) for t in range(trials)]
        gain = (np.stack(tops, axis=1) == codes) - before
        means = macro_means(gain, test, groups, confidence=confidence, bounds=(-1.0, 1.0))
        for probe, mean, sd in zip(tests.suite.probes, means.mean, spread(means.each)):
            yield {
                "suite": tests.suite.id,
                "attribute": groups.attribute,
                "probe": probe.id,
                "per_class": settings.per_class,
                "learning_rate": rate,
                "value": mean.value,
                "sd": sd,
                "ci_low": mean.ci_low,
                "ci_high": mean.ci_high,
                "n_train": train.shape[1],
                "n": int(test[0].sum()),
                "reason": in_words(why),
            }
