"""Adaptive Logit Adjustment: one factor a candidate, learned from a few labelled images; how it is applied.

Source: Sun et al., "Uncovering Bias in Foundation Models", Method 4.5 and Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.mitigation.adjustment_choice import Selection, rows_left
from plumbline.mitigation.adjustment_descent import Mode, adjust

Candidates = Literal["single", "composite"]
_SELECTIONS: dict[str, Selection] = {name: name for name in get_args(Selection)}


@dataclass(frozen=True)
class LogitAdjustment:
    """Fitted factors, for one probe or for several.

    Attributes
    ----------
    factors : (t, K) or (p, t, K) float64
        One a trial and candidate, the C classes first and then the probe: z' = z ⊙ factors, or z + factors
        when additive.
    train_rows : (t, m) int64
        Rows used for fitting, by trial, sorted; shared by the probes. All other rows are test rows.
    losses : (t, epochs + 1) or (p, t, epochs + 1) float64
        Training loss after 0, 1, .. epochs steps.
    chosen_epochs : (t,) or (p, t) int64
        Steps after which the factors were taken; 0 is no adjustment.
    mode : {"multiplicative", "additive"}
    selection : {"train_loss", "train_accuracy", "released"}
    n_classes, per_class, epochs, trials, seed : int
    learning_rate : float
    fitted_on : str
        sha256 of the training logits and labels.
    candidates : {"single", "composite"}
        Whether the classes are labels, or labels × automatic gender labels with a factor each.
    """

    factors: NDArray[np.float64]
    train_rows: NDArray[np.int64]
    losses: NDArray[np.float64]
    chosen_epochs: NDArray[np.int64]
    mode: Mode
    selection: Selection
    n_classes: int
    per_class: int
    learning_rate: float
    epochs: int
    trials: int
    seed: int
    fitted_on: str
    candidates: Candidates = "single"

    @property
    def leaking(self) -> bool:
        """Return whether test labels had a say in the choice of the factors."""
        return self.selection == "released"

    def test_rows(self, n: int) -> NDArray[np.bool_]:
        """Return the (t, n) mask of the rows that no trial of that number was fitted on."""
        return rows_left(self.train_rows, n)

    def check_fits(self, logits: NDArray[Any]) -> None:
        """Raise a MetricError if (n, K) or (p, n, K) logits are not those of the probes and candidates."""
        n = logits.shape[-2] if logits.ndim > 1 else 0
        expected = (*self.factors.shape[:-2], n, self.factors.shape[-1])
        if logits.shape != expected:
            raise MetricError("these logits do not fit the adjustment", found=logits.shape, expected=expected)

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Return the arrays, ready for safetensors."""
        return {
            "factors": self.factors,
            "train_rows": self.train_rows,
            "losses": self.losses,
            "chosen_epochs": self.chosen_epochs,
        }

    def metadata(self) -> dict[str, str]:
        """Return everything that is no array, as text."""
        numbers = ("n_classes", "per_class", "learning_rate", "epochs", "trials", "seed")
        names = ("mode", "selection", "candidates", "fitted_on", *numbers)
        return {name: str(getattr(self, name)) for name in names} | {"leaking": str(self.leaking).lower()}

    @classmethod
    def from_parameters(
        cls, parameters: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> LogitAdjustment:
        """Rebuild an adjustment from `parameters()` and `metadata()`.

        Raises
        ------
        MetricError
            If an entry is missing.
        """
        try:
            return cls(
                factors=parameters["factors"],
                train_rows=parameters["train_rows"],
                losses=parameters["losses"],
                chosen_epochs=parameters["chosen_epochs"],
                mode="additive" if metadata["mode"] == "additive" else "multiplicative",
                selection=_SELECTIONS[metadata["selection"]],
                n_classes=int(metadata["n_classes"]),
                per_class=int(metadata["per_class"]),
                learning_rate=float(metadata["learning_rate"]),
                epochs=int(metadata["epochs"]),
                trials=int(metadata["trials"]),
                seed=int(metadata["seed"]),
                fitted_on=metadata["fitted_on"],
                candidates="composite" if metadata["candidates"] == "composite" else "single",
            )
        except KeyError as error:
            raise MetricError(
                "stored parameters of a logit adjustment lack an entry", found=str(error)
            ) from error


def apply_logit_adjustment(adjustment: LogitAdjustment, logits: ArrayLike) -> NDArray[np.float64]:
    """Adjust logits with the factors of every trial.

    Parameters
    ----------
    logits : (n, K), or (p, n, K) for an adjustment of p probes

    Returns
    -------
    (t, n, K) or (p, t, n, K) float64

    Raises
    ------
    MetricError
        If the logits are not those of the adjustment's probes and candidates.
    """
    x = np.asarray(logits)
    adjustment.check_fits(x)
    return adjust(x[..., None, :, :].astype(np.float64), adjustment.factors, adjustment.mode)


def winners_by_trial(adjustment: LogitAdjustment, logits: ArrayLike) -> NDArray[np.int64]:
    """Return the top-1 of the logits adjusted with every trial's factors, ties to the lower index.

    One trial is adjusted at a time, so that the adjusted logits of all are never in memory together.

    Parameters
    ----------
    logits : (n, K), or (p, n, K) for an adjustment of p probes

    Returns
    -------
    (t, n) or (p, t, n) int64

    Raises
    ------
    MetricError
        If the logits are not those of the adjustment's probes and candidates.
    """
    x = np.asarray(logits, dtype=np.float64)
    adjustment.check_fits(x)
    tops = [
        adjust(x, adjustment.factors[..., trial, :], adjustment.mode).argmax(axis=-1)
        for trial in range(adjustment.trials)
    ]
    return np.stack(tops, axis=-2)
