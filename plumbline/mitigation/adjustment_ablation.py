"""How much a logit adjustment gains by the number of images a class and by the learning rate.

Source: Sun et al., "Uncovering Bias in Foundation Models", supplement S2.1 and S2.2, which varied N over 10
to 200.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.mitigation.adjusted_cell import AuditedCell, ProbeTests, probe_tests
from plumbline.mitigation.adjustment_choice import learn, rows_left
from plumbline.mitigation.adjustment_descent import adjust
from plumbline.mitigation.adjustment_estimates import LEAKING, MacroMeans, macro_means
from plumbline.mitigation.adjustment_fit import drawn_rows
from plumbline.mitigation.settings import LogitAdjustmentSettings, is_leaking
from plumbline.statistics.groups import Groups
from plumbline.statistics.reasons import joined
from plumbline.tables.schema import Schema

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
