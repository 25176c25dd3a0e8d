"""Logit adjustment of an outcome suite: where people are candidates too, their labels teach the factors.

Beyond the paper, which adjusts the Trident probes alone: the crime suite's demographic candidates are classes
as the Trident labels are, so the same factors take back the images that a crime word had won.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.mitigation.adjusted_cell import AuditedCell, ProbeLogits
from plumbline.mitigation.adjustment_descent import adjust
from plumbline.mitigation.adjustment_fit import fit_logit_adjustment
from plumbline.mitigation.logit_adjustment import LogitAdjustment
from plumbline.mitigation.settings import LogitAdjustmentSettings
from plumbline.statistics.groups import label_codes

# What a dataset calls a race -> what the demographic candidates call it, where lower case does not match.
_RACES = {
    "latino_hispanic": "latino",
    "hispanic": "latino",
    "eastasian": "east asian",
    "caucasian": "white",
}


@dataclass(frozen=True)
class OutcomeAdjustment:
    """An adjusted outcome suite: its first trial is the one that is judged.

    Attributes
    ----------
    fit : LogitAdjustment
        Factors (t, m) in the order of the suite's candidates; `train_rows` are rows of the cell's records,
        and `n_classes` counts the demographic candidates.
    logits : (n, m) float64
        Every image's logits, adjusted with the first trial's factors.
    train_rows : (k,) int64
        Rows that the first trial was fitted on; all others may be judged.
    labels : tuple of str
        The demographic candidates that some image was fitted on as. The others never are the right answer, so
        the fit can only take from them.
    """

    fit: LogitAdjustment
    logits: NDArray[np.float64]
    train_rows: NDArray[np.int64]
    labels: tuple[str, ...]


class NotAdjustable(NamedTuple):
    """Why an outcome suite of a cell cannot be adjusted."""

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


def outcome_adjustment(
    cell: AuditedCell, suite: str, settings: LogitAdjustmentSettings, *, seed: int
) -> OutcomeAdjustment | NotAdjustable:
    """Fit a factor for every candidate of an outcome suite on who is pictured, and adjust the logits.

    Minimises the cross-entropy of softmax(z ⊙ α) on race × gender over all candidates of the suite, the
    harmful ones included, as `fit_logit_adjustment` does for the Trident classes. z is the checkpoint's logit
    scale times the cosine: these suites rank by cosine, but a softmax over cosines, which differ by
    hundredths, is almost flat whatever the factors, and only the scale that the model was trained with makes
    it the model's own probability. Without cosines z is the family's logit. Images that the audit's filter
    drops for this suite, that lack a label or that no candidate names are not fitted on.
    `settings.candidates` is about the Trident suites and has no say.

    Parameters
    ----------
    suite : str
        Id of a suite that the cell may have logits for.

    Returns
    -------
    OutcomeAdjustment or NotAdjustable
        Not adjustable: no logits, no class candidates (communion, agency, the pooled crime suite), no labels,
        or no candidate with the two images that fitting and judging take.
    """
    logits = cell.logits.get(suite)
    if logits is None:
        return NotAdjustable(f"the cell has no logits of the suite `{suite}`")
    classes = logits.suite.columns("demographic")
    if not classes:
        return NotAdjustable(f"no candidate of the suite `{suite}` says who is pictured")
    if not {"race", "gender"} <= set(cell.records.columns):
        return NotAdjustable("the dataset has no labels of race and gender")
    names = tuple(logits.suite.candidates[i].id for i in classes)
    codes = np.where(cell.rows(suite), label_codes(demographic_labels(cell.records), names), -1)
    sizes = np.bincount(codes[codes >= 0], minlength=len(names))
    if sizes.max() < 2:
        return NotAdjustable("fewer than two images carry the label of any demographic candidate")
    fit = _fitted(_scaled(logits), classes, codes, settings, seed)
    learned = tuple(name for name, size in zip(names, sizes) if size > 1)
    return OutcomeAdjustment(fit, adjusted_outcomes(cell, suite, fit), fit.train_rows[0], learned)


def adjusted_outcomes(cell: AuditedCell, suite: str, fit: LogitAdjustment) -> NDArray[np.float64]:
    """Return the (n, m) logits of an outcome suite, adjusted with the first trial's factors of its fit."""
    return adjust(_scaled(cell.logits[suite]), fit.factors[0], fit.mode)


def _scaled(logits: ProbeLogits) -> NDArray[np.float64]:
    if logits.cosine is None:
        return logits.logits.astype(np.float64)
    return logits.logit_scale * logits.cosine.astype(np.float64)


def _fitted(
    z: NDArray[np.float64],
    classes: list[int],
    codes: NDArray[np.int64],
    settings: LogitAdjustmentSettings,
    seed: int,
) -> LogitAdjustment:
    """Fit with the classes first, as `fit_logit_adjustment` wants; return factors in the suite's order."""
    order = np.array([*classes, *(i for i in range(z.shape[1]) if i not in classes)])
    rows = np.flatnonzero(codes >= 0)
    fit = fit_logit_adjustment(
        z[rows][:, order],
        codes[rows],
        n_classes=len(classes),
        seed=seed,
        **settings.of_fit,
    )
    return replace(fit, factors=fit.factors[:, np.argsort(order)], train_rows=rows[fit.train_rows])
