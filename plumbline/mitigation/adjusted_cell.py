"""Logit adjustment on a whole cell: which one-probe tests it has, and factors for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.mitigation.adjustment_fit import fit_logit_adjustment
from plumbline.mitigation.logit_adjustment import Candidates, LogitAdjustment
from plumbline.mitigation.settings import LogitAdjustmentSettings
from plumbline.statistics.groups import Groups, label_codes
from plumbline.tables.suites import Suite

SUITES: dict[Candidates, str] = {"single": "trident", "composite": "trident_composite"}
"""What the classes of the candidates are -> the suite that an adjustment of them is fitted and judged on."""


class ProbeLogits(Protocol):
    """What is read of a suite's logits: `plumbline.metrics.SuiteLogits` is one."""

    @property
    def suite(self) -> Suite:
        """Return the suite."""

    @property
    def logits(self) -> NDArray[np.float32]:
        """Return the (n, m) logits."""

    @property
    def cosine(self) -> NDArray[np.float32] | None:
        """Return the (n, m) cosines, None where the family has none."""

    @property
    def logit_scale(self) -> float:
        """Return the checkpoint's factor from cosine to logit."""


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
class ProbeTests:
    """The one-probe tests of a cell over one set of classes.

    Attributes
    ----------
    suite : Suite
        `trident`, or `trident_composite` with classes like `Indian_woman`.
    classes : Groups
        The C classes; -1 for images that the audit's filter drops or whose label is no class.
    responses : (p, n, C + 1) float32
        Logits of the classes and, last, of each test's own probe: raw dot products, as in the released code.
    """

    suite: Suite
    classes: Groups
    responses: NDArray[np.float32]

    @property
    def labelled(self) -> NDArray[np.int64]:
        """Return the rows that have a class."""
        return np.flatnonzero(self.classes.codes >= 0)


def probe_tests(cell: AuditedCell, candidates: Candidates = "single") -> ProbeTests | None:
    """Return the one-probe tests that an adjustment is fitted on; None without logits or labels for them.

    Parameters
    ----------
    candidates : {"single", "composite"}
        "composite": the classes are label × automatic gender label. There are none where the label is the
        gender.
    """
    logits = cell.logits.get(SUITES[candidates])
    attribute = logits.suite.attribute if logits else None
    crossed = candidates == "composite"
    needed = {attribute, "auto_gender"} if crossed else {attribute}
    if logits is None or attribute is None or not needed <= set(cell.records.columns):
        return None
    if crossed and attribute == "gender":
        return None
    words = pl.concat_str(attribute, "auto_gender", separator="_") if crossed else pl.col(attribute)
    labels = cell.records.select(words.alias("label"))["label"]
    codes = np.where(cell.rows(SUITES[candidates]), label_codes(labels, logits.suite.class_labels), -1)
    if not (codes >= 0).any():
        return None
    name = f"{attribute}_gender" if crossed else attribute
    return ProbeTests(logits.suite, Groups(name, logits.suite.class_labels, codes), _by_probe(logits))


def required_tests(cell: AuditedCell, candidates: Candidates = "single") -> ProbeTests:
    """Return the tests of an adjustment that was fitted on them.

    Raises
    ------
    MetricError
        If the cell has none: the adjustment is another cell's.
    """
    tests = probe_tests(cell, candidates)
    if tests is None:
        raise MetricError(
            "there is nothing to adjust in this cell",
            where=f"{cell.model} on {cell.dataset}",
            found=f"an adjustment, but no logits of the suite `{SUITES[candidates]}` or no labels for them",
            hint="fit it on the cell that it is applied to",
        )
    return tests


def fit_cell(cell: AuditedCell, settings: LogitAdjustmentSettings, *, seed: int) -> LogitAdjustment | None:
    """Fit the adjustment of every probe of the cell's Trident suite, or of its composite one.

    Raw dot products are adjusted, as in the released code; images that the audit's filter drops or whose
    label is no class are left out.

    Returns
    -------
    LogitAdjustment or None
        `train_rows` are rows of `cell.records`; probes are in the suite's order. None where the cell has no
        such logits, no labels for them, or no class with the two images that fitting and judging take.
    """
    tests = probe_tests(cell, settings.candidates)
    if tests is None or np.bincount(tests.classes.codes[tests.labelled]).max() < 2:
        return None
    rows = tests.labelled
    fitted = fit_logit_adjustment(
        tests.responses[:, rows],
        tests.classes.codes[rows],
        n_classes=len(tests.classes.names),
        seed=seed,
        **settings.of_fit,
    )
    return replace(fitted, train_rows=rows[fitted.train_rows], candidates=settings.candidates)


def _by_probe(logits: ProbeLogits) -> NDArray[np.float32]:
    """Return the (p, n, C + 1) logits of every one-probe test."""
    c = len(logits.suite.class_labels)
    answers = logits.logits
    probes = answers.shape[1] - c
    classes = np.broadcast_to(answers[None, :, :c], (probes, len(answers), c))
    return np.concatenate([classes, answers[:, c:].T[..., None]], axis=-1)
