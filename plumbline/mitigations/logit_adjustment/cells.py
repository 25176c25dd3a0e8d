"""Logit adjustments of a cell: of its one-probe tests, and of outcome suites whose candidates say who is pictured."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.blocks import Rows
from plumbline.catalog.suites import Suite
from plumbline.errors import MetricError
from plumbline.mitigations.logit_adjustment.adjustment import (
    Candidates,
    LogitAdjustment,
    LogitAdjustmentSettings,
    fit_logit_adjustment,
)
from plumbline.statistics.groups import Groups, label_codes

TRIDENT = "trident"
"""What the fits of the one-probe tests are called beside those of outcome suites."""
SUITES: dict[Candidates, str] = {"single": "trident", "composite": "trident_composite"}
"""What the classes of the candidates are -> the suite that an adjustment of them is fitted and judged on."""


def may_adjust(suite: Suite, settings: LogitAdjustmentSettings, *, labels: Collection[str]) -> bool:
    """Return whether an adjustment can be fitted on a suite: its candidates, and labels, have to say who is pictured.

    Parameters
    ----------
    labels : collection of str
        Attributes that the dataset has.
    """
    of_outcomes = suite.family == "outcomes" and bool(suite.columns("demographic"))
    return (of_outcomes and {"race", "gender"} <= {*labels}) or suite.id == SUITES[settings.candidates]


class ProbeLogits(Protocol):
    """What is read of a suite's logits: `plumbline.metrics.SuiteLogits` is one."""

    @property
    def suite(self) -> Suite:
        """Return the suite."""

    @property
    def logits(self) -> Rows:
        """Return the (n, m) logits."""

    @property
    def cosine(self) -> Rows | None:
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
    def labelled_rows(self) -> NDArray[np.int64]:
        """Return the rows that have a class."""
        return np.flatnonzero(self.classes.codes >= 0)

    @property
    def adjustable(self) -> bool:
        """Return whether a class has the two images that fitting and judging take."""
        return int(np.bincount(self.classes.codes[self.labelled_rows]).max()) > 1

    def labelled(self) -> ProbeTests:
        """Return the tests of the rows that have a class."""
        rows, codes = self.labelled_rows, self.classes.codes
        return ProbeTests(self.suite, replace(self.classes, codes=codes[rows]), self.responses[:, rows])


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
    if tests is None or not tests.adjustable:
        return None
    known, rows = tests.labelled(), tests.labelled_rows
    fitted = fit_logit_adjustment(
        known.responses, known.classes.codes, n_classes=len(known.classes.names), seed=seed, **settings.model_dump()
    )
    return replace(fitted, train_rows=rows[fitted.train_rows])


def _by_probe(logits: ProbeLogits) -> NDArray[np.float32]:
    """Return the (p, n, C + 1) logits of every one-probe test."""
    c = len(logits.suite.class_labels)
    answers = logits.logits[:]
    probes = answers.shape[1] - c
    classes = np.broadcast_to(answers[None, :, :c], (probes, len(answers), c))
    return np.concatenate([classes, answers[:, c:].T[..., None]], axis=-1)


JUDGED_TRIAL = 0
"""Image-by-image comparisons need one set of factors and one set of test rows: the first trial's."""


def adjusted_winners(cell: AuditedCell, adjustment: LogitAdjustment) -> NDArray[np.int64]:
    """Return the top-1 of every image in every one-probe test, adjusted with the first trial's factors.

    Parameters
    ----------
    adjustment : LogitAdjustment
        From `fit_cell` on this cell.

    Returns
    -------
    (p, n) int64
        Position among the classes, C for the probe; ties to the lower index. All n rows of the records have
        one; the rows that the first trial was not fitted on count.

    Raises
    ------
    MetricError
        If the adjustment is not one of this cell.
    """
    return _adjusted(cell, adjustment).argmax(axis=-1)


def class_winners(cell: AuditedCell, adjustment: LogitAdjustment) -> NDArray[np.int64]:
    """Return the top-1 among the classes alone, with the same factors: (p, n) int64, 0 .. C - 1.

    Each test has factors of its own, so the probes differ here too.

    Raises
    ------
    MetricError
        If the adjustment is not one of this cell.
    """
    return _adjusted(cell, adjustment)[..., :-1].argmax(axis=-1)


def _adjusted(cell: AuditedCell, adjustment: LogitAdjustment) -> NDArray[np.float64]:
    tests = required_tests(cell, adjustment.settings.candidates)
    return adjustment.adjust(tests.responses, trial=JUDGED_TRIAL)


# --- Outcome suites. Beyond the paper, which adjusts the Trident probes alone: the crime suite's demographic
# candidates are classes as the Trident labels are, so the same factors take back the images that a crime word had won.

# What a dataset calls a race -> what the demographic candidates call it, where lower case does not match.
_RACES = {"latino_hispanic": "latino", "hispanic": "latino", "eastasian": "east asian", "caucasian": "white"}


class NotAdjustable(NamedTuple):
    """The reason why an outcome suite of a cell cannot be adjusted."""

    reason: str


def demographic_labels(records: pl.DataFrame) -> pl.Series:
    """Return each image's race and gender in the words of demographic candidates, such as `latino woman`.

    Null where a label is missing. The words are the dataset's own, lower-cased, but for `hispanic` (and
    FairFace's `Latino_Hispanic`), `eastasian` and `caucasian`, which are `latino`, `east asian` and `white`.
    A word that no candidate has, such as UTKFace's `Asian`, stays and matches none.
    """
    race = pl.col("race").cast(pl.String).str.to_lowercase().replace(_RACES)
    gender = pl.col("gender").cast(pl.String).str.to_lowercase()
    return records.select(pl.concat_str(race, gender, separator=" ").alias("label"))["label"]


def why_not_adjustable(suite: Suite, records: pl.DataFrame, *, rows: NDArray[np.bool_] | None = None) -> str:
    """Return why an outcome suite cannot be adjusted on the images of a dataset; empty where it can.

    Parameters
    ----------
    rows : (n,) bool, optional
        The records that count; all where absent.
    """
    if not suite.columns("demographic"):
        return f"no candidate of the suite `{suite.id}` says who is pictured"
    if not {"race", "gender"} <= set(records.columns):
        return "the dataset has no labels of race and gender"
    codes = _demographic_codes(suite, records)
    counted = codes[(codes >= 0) if rows is None else rows & (codes >= 0)]
    if not counted.size or np.bincount(counted).max() < 2:
        return "fewer than two images carry the label of any demographic candidate"
    return ""


def _demographic_codes(suite: Suite, records: pl.DataFrame) -> NDArray[np.int64]:
    """Return each image's position among the demographic candidates of a suite, -1 where none names it."""
    names = tuple(suite.candidates[i].id for i in suite.columns("demographic"))
    return label_codes(demographic_labels(records), names)


def outcome_adjustment(
    cell: AuditedCell, suite: str, settings: LogitAdjustmentSettings, *, seed: int
) -> LogitAdjustment | NotAdjustable:
    """Fit a factor for every candidate of an outcome suite on who is pictured.

    Minimises the cross-entropy of softmax(z ⊙ α) on race × gender over all candidates of the suite, the
    harmful ones included, as `fit_logit_adjustment` does for the Trident classes. z is the checkpoint's logit
    scale times the cosine: these suites rank by cosine, but a softmax over cosines, which differ by
    hundredths, is almost flat whatever the factors, and only the scale that the model was trained with makes
    it the model's own probability. Without cosines z is the family's logit. Images that the audit's filter
    drops for this suite, that lack a label or that no candidate names are not fitted on; a candidate without
    such an image never is the right answer, so the fit can only take from it. `settings.candidates` is about
    the Trident suites and has no say.

    Parameters
    ----------
    suite : str
        Id of a suite that the cell may have logits for.

    Returns
    -------
    LogitAdjustment or NotAdjustable
        Factors (t, m) in the order of the suite's candidates; `train_rows` are rows of the cell's records, and
        `n_classes` counts the demographic candidates. Not adjustable: no logits, no class candidates (communion,
        agency, the pooled crime suite), no labels, or no candidate with the two images that fitting and judging take.
    """
    logits = cell.logits.get(suite)
    if logits is None:
        return NotAdjustable(f"the cell has no logits of the suite `{suite}`")
    if why := why_not_adjustable(logits.suite, cell.records, rows=cell.rows(suite)):
        return NotAdjustable(why)
    classes = logits.suite.columns("demographic")
    codes = np.where(cell.rows(suite), _demographic_codes(logits.suite, cell.records), -1)
    z, rows = _scaled(logits), np.flatnonzero(codes >= 0)
    # `fit_logit_adjustment` wants the classes first.
    order = np.array([*classes, *(i for i in range(z.shape[1]) if i not in classes)])
    fit = fit_logit_adjustment(
        z[rows][:, order], codes[rows], n_classes=len(classes), seed=seed, **settings.model_dump(exclude={"candidates"})
    )
    return replace(fit, factors=fit.factors[:, np.argsort(order)], train_rows=rows[fit.train_rows])


def adjusted_outcomes(cell: AuditedCell, suite: str, fit: LogitAdjustment) -> NDArray[np.float64]:
    """Return the (n, m) logits of an outcome suite, adjusted with the first trial's factors of its fit."""
    return fit.adjust(_scaled(cell.logits[suite]), trial=JUDGED_TRIAL)


def _scaled(logits: ProbeLogits) -> NDArray[np.float64]:
    if logits.cosine is None:
        return logits.logits[:].astype(np.float64)
    return logits.logit_scale * logits.cosine[:].astype(np.float64)


class SuiteFits(NamedTuple):
    """The fits of one adjustment by what is adjusted, and why the others cannot be."""

    fits: dict[str, LogitAdjustment]
    absent: dict[str, str]


def fit_suites(cell: AuditedCell, settings: LogitAdjustmentSettings, *, seed: int) -> SuiteFits:
    """Fit an adjustment of the one-probe tests (`TRIDENT`), and one of every outcome suite of the cell."""
    fits: dict[str, LogitAdjustment] = {}
    absent: dict[str, str] = {}
    if (of_probes := fit_cell(cell, settings, seed=seed)) is not None:
        fits[TRIDENT] = of_probes
    elif TRIDENT in cell.logits:
        absent[TRIDENT] = "no two images of a class have labels"
    for name, logits in cell.logits.items():
        if logits.suite.family != "outcomes":
            continue
        adjusted = outcome_adjustment(cell, name, settings, seed=seed)
        if isinstance(adjusted, NotAdjustable):
            absent[name] = adjusted.reason
        else:
            fits[name] = adjusted
    return SuiteFits(fits, absent)


@dataclass(frozen=True)
class Adjustments:
    """The logit adjustments of a cell.

    Attributes
    ----------
    fits : dict of str to dict of str to LogitAdjustment
        By id in the audit file, then by what is adjusted: `trident` for the one-probe tests, or an outcome suite.
    absent : dict of str to dict of str to str
        By id, then by outcome suite: why it cannot be adjusted.
    """

    fits: dict[str, dict[str, LogitAdjustment]] = field(default_factory=dict)
    absent: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def of_probes(self) -> dict[str, LogitAdjustment]:
        """Return the adjustments of the one-probe tests by id."""
        return {name: fits[TRIDENT] for name, fits in self.fits.items() if TRIDENT in fits}


def fit_adjustments(cell: AuditedCell, settings_of: Mapping[str, LogitAdjustmentSettings], *, seed: int) -> Adjustments:
    """Fit logit adjustments, by id, to a cell, as `fit_suites` does each."""
    adjustments = Adjustments()
    for name, settings in settings_of.items():
        adjustments.fits[name], adjustments.absent[name] = fit_suites(cell, settings, seed=seed)
    return adjustments
