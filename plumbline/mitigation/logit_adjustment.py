"""Adaptive Logit Adjustment: one factor a candidate, learned from a few labelled images.

Source: Sun et al., "Uncovering Bias in Foundation Models", Method 4.5 and Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.digests import digest_bytes
from plumbline.errors import MetricError
from plumbline.mitigation.adjustment_descent import (
    Mode,
    adjust,
    by_released_rule,
    by_train_accuracy,
    descend,
)
from plumbline.statistics.seeds import generator

Selection = Literal["train_loss", "train_accuracy", "released"]
_SELECTIONS: dict[str, Selection] = {
    "train_loss": "train_loss",
    "train_accuracy": "train_accuracy",
    "released": "released",
}


@dataclass(frozen=True)
class LogitAdjustment:
    """Fitted factors, for one probe or for several.

    Attributes
    ----------
    factors : (t, C + 1) or (p, t, C + 1) float64
        One a trial and candidate, the probe's last: z' = z ⊙ factors, or z + factors when additive.
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

    @property
    def leaking(self) -> bool:
        """Return whether test labels had a say in the choice of the factors."""
        return self.selection == "released"

    def test_rows(self, n: int) -> NDArray[np.bool_]:
        """Return the (t, n) mask of the rows that no trial of that number was fitted on."""
        mask = np.ones((self.trials, n), dtype=bool)
        np.put_along_axis(mask, self.train_rows, False, axis=1)
        return mask

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
        names = ("mode", "selection", "n_classes", "per_class", "learning_rate", "epochs", "trials", "seed")
        return {name: str(getattr(self, name)) for name in names} | {
            "fitted_on": self.fitted_on,
            "leaking": str(self.leaking).lower(),
        }

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
            )
        except KeyError as error:
            raise MetricError(
                "stored parameters of a logit adjustment lack an entry", found=str(error)
            ) from error


def fit_logit_adjustment(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    n_classes: int,
    per_class: int = 20,
    learning_rate: float = 0.01,
    epochs: int = 20,
    trials: int = 3,
    seed: int,
    mode: Mode = "multiplicative",
    selection: Selection = "train_loss",
) -> LogitAdjustment:
    """Learn factors that make the true classes win, for all probes and trials in one optimisation.

    Minimises the mean cross-entropy of softmax(z ⊙ α) on the class labels, full batch, by Adam from α = 1
    (b = 0 for the additive mode). The loss is convex in α, and probes and trials do not interact: each gets
    the factors that a run of its own would give.

    Parameters
    ----------
    logits : (n, C + 1) or (p, n, C + 1) float
        The probe is the last candidate.
    labels : (n,) int
        True class, 0 .. C - 1.
    per_class : int
        Images of each class drawn for training, without replacement; ⌊n/2⌋ of a class with fewer than twice
        as many.
    trials : int
        Independent draws.
    seed : int
        Equal seeds draw the same images, whatever the logits.
    selection : {"train_loss", "train_accuracy", "released"}
        Which epoch's factors to keep. "train_loss": the lowest training loss. "train_accuracy": the highest
        training macro accuracy, ties to the lower loss. "released": as the published code does, which
        compares the training accuracy with the test accuracy of the last accepted epoch and so lets test
        labels in; for comparison with published numbers only, and marked `leaking`.

    Raises
    ------
    MetricError
        If the shapes disagree, a label is no class, a logit is not finite, a setting is out of range, or no
        class has the two images that a training row takes.
    """
    x, y = _checked(logits, labels, n_classes)
    _check_settings(per_class, learning_rate, epochs, trials, mode, selection)
    train = np.stack(
        [_draw(y, n_classes, per_class, generator(seed, "logit_adjustment", t)) for t in range(trials)]
    )
    inputs, targets = x[:, train].astype(np.float64), y[train]
    path, losses = descend(inputs, targets, mode=mode, learning_rate=learning_rate, epochs=epochs)
    if selection == "train_loss":
        chosen = losses.argmin(axis=0)
    elif selection == "train_accuracy":
        chosen = by_train_accuracy(path, losses, inputs, targets, n_classes, mode)
    else:
        chosen = by_released_rule(path, inputs, targets, x, y, train, n_classes, mode)
    factors = np.take_along_axis(path, chosen[None, ..., None], axis=0)[0]
    single = np.ndim(logits) == 2
    return LogitAdjustment(
        factors=factors[0] if single else factors,
        train_rows=train,
        losses=np.moveaxis(losses, 0, -1)[0] if single else np.moveaxis(losses, 0, -1),
        chosen_epochs=chosen[0] if single else chosen,
        mode=mode,
        selection=selection,
        n_classes=n_classes,
        per_class=per_class,
        learning_rate=learning_rate,
        epochs=epochs,
        trials=trials,
        seed=seed,
        fitted_on=digest_bytes(inputs.astype("<f8").tobytes() + targets.astype("<i8").tobytes()),
    )


def apply_logit_adjustment(adjustment: LogitAdjustment, logits: ArrayLike) -> NDArray[np.float64]:
    """Adjust logits with the factors of every trial.

    Parameters
    ----------
    logits : (n, C + 1), or (p, n, C + 1) for an adjustment of p probes

    Returns
    -------
    (t, n, C + 1) or (p, t, n, C + 1) float64

    Raises
    ------
    MetricError
        If the logits are not those of the adjustment's probes and candidates.
    """
    x, factors = np.asarray(logits, dtype=np.float64), adjustment.factors
    expected = (*factors.shape[:-2], x.shape[-2] if x.ndim > 1 else 0, factors.shape[-1])
    if x.shape != expected:
        raise MetricError("these logits do not fit the adjustment", found=x.shape, expected=expected)
    return adjust(x[..., None, :, :], factors, adjustment.mode)


def _draw(
    labels: NDArray[np.int64], n_classes: int, per_class: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    drawn = []
    for c in range(n_classes):
        rows = np.flatnonzero(labels == c)
        take = per_class if len(rows) >= 2 * per_class else len(rows) // 2
        drawn.append(rng.choice(rows, size=take, replace=False))
    chosen = np.sort(np.concatenate(drawn))
    if not chosen.size:
        raise MetricError("no class has two images, one to fit on and one to test on", found=len(labels))
    return chosen


def _checked(logits: ArrayLike, labels: ArrayLike, n_classes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    x, y = np.asarray(logits), np.asarray(labels)
    if x.ndim not in (2, 3) or y.ndim != 1 or n_classes < 1 or x.shape[-2:] != (len(y), n_classes + 1):
        raise MetricError(
            "logits must have a row for each label and a column for each class and the probe",
            found=f"logits {x.shape}, labels {y.shape}",
            expected=f"(n, {n_classes + 1}) or (p, n, {n_classes + 1}), and (n,)",
        )
    if not np.issubdtype(y.dtype, np.integer) or (y.size and (y.min() < 0 or y.max() >= n_classes)):
        raise MetricError(
            "a label is not a class",
            found=f"{y.dtype} {y.min() if y.size else ''} .. {y.max() if y.size else ''}",
            expected=f"integers 0 .. {n_classes - 1}",
            hint="leave unlabelled images out",
        )
    if not np.isfinite(x).all():
        raise MetricError("a logit is not finite", found=f"{int((~np.isfinite(x)).sum())} of {x.size}")
    return (x[None] if x.ndim == 2 else x), y.astype(np.int64)


def _check_settings(
    per_class: int, learning_rate: float, epochs: int, trials: int, mode: str, selection: str
) -> None:
    valid = {
        "per_class": (per_class >= 1, per_class, "at least 1"),
        "learning_rate": (learning_rate > 0, learning_rate, "positive"),
        "epochs": (epochs >= 1, epochs, "at least 1"),
        "trials": (trials >= 1, trials, "at least 1"),
        "mode": (mode in ("multiplicative", "additive"), mode, "multiplicative or additive"),
        "selection": (
            selection in _SELECTIONS,
            selection,
            "train_loss, train_accuracy or released",
        ),
    }
    for name, (holds, found, expected) in valid.items():
        if not holds:
            raise MetricError(
                "a setting of the logit adjustment is out of range",
                where=name,
                found=found,
                expected=expected,
            )
