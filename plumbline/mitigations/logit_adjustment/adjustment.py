"""Adaptive Logit Adjustment: one factor a candidate, learned from a few labelled images of each class.

z' = z ⊙ α, or z + α when additive: what it is, how it is applied, and how it is fitted.

Source: Sun et al., "Uncovering Bias in Foundation Models", Method 4.5 and Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, ValidationError

from plumbline.digests import digest_bytes, digest_json
from plumbline.errors import MetricError
from plumbline.mitigations.settings import MitigationSettings
from plumbline.statistics.seeds import generator

Mode = Literal["multiplicative", "additive"]
Candidates = Literal["single", "composite"]
Selection = Literal["train_loss", "train_accuracy", "released"]
"""Which epoch's factors are kept.

`train_loss`: those of the lowest training loss. `train_accuracy`: of the highest training macro accuracy, ties to the
lower loss. `released`: as the published code does, which compares the training accuracy with the test accuracy of the
last accepted epoch and so lets test labels in; for comparison with published numbers only, and marked `leaking`.
"""


class LogitAdjustmentSettings(MitigationSettings):
    """Adaptive Logit Adjustment (paper: N = 20, learning rate 0.01, 20 epochs, 3 trials)."""

    method: Literal["logit_adjustment"] = "logit_adjustment"
    """which mitigation these settings are of"""
    per_class: int = Field(default=20, ge=1)
    """images of each class that are fitted on"""
    learning_rate: float = Field(default=0.01, gt=0)
    """of the factors"""
    epochs: int = Field(default=20, ge=1)
    """passes over the images that are fitted on"""
    trials: int = Field(default=3, ge=1)
    """draws of these images; the first is the one judged"""
    mode: Mode = "multiplicative"
    """whether a logit is multiplied by its factor, or the factor is added"""
    candidates: Candidates = "single"
    """composite: one factor a class × automatic gender label, fitted on the composite suite"""
    selection: Selection = "train_loss"
    """released: as the published code, which lets test accuracy choose"""
    ablation: bool = False
    """also try N of 10 to 200 and learning rates of 0.001 to 0.1, for a table"""

    @property
    def trained_on(self) -> str:
        """Return what it is fitted on, in words."""
        return f"{self.per_class} images of each class of the judged dataset, which it is not judged on"

    @property
    def leaking(self) -> bool:
        """Return whether the choice of the factors uses test labels."""
        return self.selection == "released"


# --- What an adjustment is, and how it is applied.

_TEXT_SETTINGS = ("mode", "selection", "candidates", "per_class", "learning_rate", "epochs", "trials")


@dataclass(frozen=True)
class LogitAdjustment:
    """Fitted factors, for one probe or for several.

    Attributes
    ----------
    factors : (t, K) or (p, t, K) float64
        One a trial and candidate, the C classes first and then the probe.
    train_rows : (t, m) int64
        Rows used for fitting, by trial, sorted; shared by the probes. All other rows are test rows.
    losses : (t, epochs + 1) or (p, t, epochs + 1) float64
        Training loss after 0, 1, .. epochs steps.
    chosen_epochs : (t,) or (p, t) int64
        Steps after which the factors were taken; 0 is no adjustment.
    settings : LogitAdjustmentSettings
    n_classes, seed : int
    fitted_on : str
        sha256 of the training logits and labels.
    """

    factors: NDArray[np.float64]
    train_rows: NDArray[np.int64]
    losses: NDArray[np.float64]
    chosen_epochs: NDArray[np.int64]
    settings: LogitAdjustmentSettings
    n_classes: int
    seed: int
    fitted_on: str

    def test_rows(self, n: int) -> NDArray[np.bool_]:
        """Return the (t, n) mask of the rows that no trial of that number was fitted on."""
        return held_out_rows(self.train_rows, n)

    def adjust(self, logits: NDArray[Any], *, trial: int) -> NDArray[np.float64]:
        """Return (..., n, K) logits with the factors of one trial.

        Raises
        ------
        MetricError
            If the logits are not those of the adjustment's probes and candidates.
        """
        n = logits.shape[-2] if logits.ndim > 1 else 0
        expected = (*self.factors.shape[:-2], n, self.factors.shape[-1])
        if logits.shape != expected:
            raise MetricError("these logits do not fit the adjustment", found=logits.shape, expected=expected)
        return adjust(logits.astype(np.float64), self.factors[..., trial, :], self.settings.mode)

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Return the arrays, ready for safetensors."""
        return {
            "factors": self.factors,
            "train_rows": self.train_rows,
            "losses": self.losses,
            "chosen_epochs": self.chosen_epochs,
        }

    def metadata(self) -> dict[str, str]:
        """Return all settings and facts that are not arrays, as text."""
        numbers = {"n_classes": self.n_classes, "seed": self.seed, "fitted_on": self.fitted_on}
        stated = self.settings.model_dump(include=set(_TEXT_SETTINGS)) | numbers
        return {name: str(value) for name, value in stated.items()} | {"leaking": str(self.settings.leaking).lower()}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> LogitAdjustment:
        """Rebuild an adjustment from `parameters()` and `metadata()`.

        Raises
        ------
        MetricError
            If an entry is missing.
        """
        try:
            return cls(
                **{name: parameters[name] for name in ("factors", "train_rows", "losses", "chosen_epochs")},
                settings=LogitAdjustmentSettings.model_validate_strings(
                    {name: metadata[name] for name in _TEXT_SETTINGS}
                ),
                n_classes=int(metadata["n_classes"]),
                seed=int(metadata["seed"]),
                fitted_on=metadata["fitted_on"],
            )
        except KeyError as error:
            raise MetricError("stored parameters of a logit adjustment lack an entry", found=str(error)) from error


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
    return np.stack([adjustment.adjust(x, trial=t) for t in range(adjustment.settings.trials)], axis=-3)


def winners_by_trial(adjustment: LogitAdjustment, logits: ArrayLike) -> NDArray[np.int64]:
    """Return the top-1 of the logits adjusted with every trial's factors, (t, n) or (p, t, n), ties to the lower index.

    As `apply_logit_adjustment(...).argmax(axis=-1)`, with the adjusted logits of one trial in memory at a time.
    """
    x = np.asarray(logits)
    tops = [adjustment.adjust(x, trial=t).argmax(axis=-1) for t in range(adjustment.settings.trials)]
    return np.stack(tops, axis=-2)


def adjust(x: NDArray[Any], factors: NDArray[np.float64], mode: Mode) -> NDArray[Any]:
    """Return logits (..., n, K) times, or plus, factors (..., K)."""
    per_row = factors[..., None, :].astype(x.dtype, copy=False)
    return x * per_row if mode == "multiplicative" else x + per_row


def held_out_rows(train: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
    """Return the (t, n) mask of the rows that are no training rows, (t, m), of their trial."""
    mask = np.ones((len(train), n), dtype=bool)
    np.put_along_axis(mask, train, False, axis=1)
    return mask


# --- How it is fitted: rows drawn with a seed, full-batch Adam for all probes and trials at once, and an epoch chosen.

# Adam as published (Kingma & Ba 2015) and as torch has it by default.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


def fit_logit_adjustment(
    logits: ArrayLike, labels: ArrayLike, *, n_classes: int, seed: int, **settings: Any
) -> LogitAdjustment:
    """Learn factors that make the true classes win, for all probes and trials in one optimisation.

    Minimises the mean cross-entropy of softmax(z ⊙ α) on the class labels, full batch, by Adam from α = 1
    (b = 0 for the additive mode). The loss is convex in α, and probes and trials do not interact: each gets
    the factors that a run of its own would give.

    Parameters
    ----------
    logits : (n, K) or (p, n, K) float
        The C classes are the first candidates, and at least one other follows: the probe of a one-probe test,
        or every other text of a suite.
    labels : (n,) int
        True class, 0 .. C - 1.
    seed : int
        Equal seeds draw the same images, whatever the logits.
    **settings
        Those of `LogitAdjustmentSettings`: `per_class` (20), `learning_rate` (0.01), `epochs` (20), `trials` (3),
        `mode` ("multiplicative") and `selection` ("train_loss").

    Raises
    ------
    MetricError
        If the shapes disagree, a label is no class, a logit is not finite, a setting is out of range, or no
        class has the two images that a training row takes.
    """
    try:
        chosen = LogitAdjustmentSettings(**settings)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise MetricError(
            "a setting of the logit adjustment is out of range",
            where=".".join(map(str, wrong["loc"])),
            found=wrong["input"],
            expected=wrong["msg"],
        ) from error
    x, y = _checked(logits, labels, n_classes)
    train = drawn_rows(y, n_classes, per_class=chosen.per_class, trials=chosen.trials, seed=seed)
    learned = learn(x, y, train, n_classes=n_classes, settings=chosen)
    probes: int | slice = 0 if np.ndim(logits) == 2 else slice(None)
    return LogitAdjustment(
        factors=learned.factors[probes],
        train_rows=train,
        losses=np.moveaxis(learned.losses, 0, -1)[probes],
        chosen_epochs=learned.chosen[probes],
        settings=chosen,
        n_classes=n_classes,
        seed=seed,
        fitted_on=_digest(x, y, train, n_classes, seed, chosen),
    )


def _digest(
    x: NDArray[Any],
    y: NDArray[np.int64],
    train: NDArray[np.int64],
    n_classes: int,
    seed: int,
    settings: LogitAdjustmentSettings,
) -> str:
    """Return the digest of settings and training rows, and of all rows where the test rows have a say too."""
    trained_on = x[:, train].astype("<f8").tobytes() + y[train].astype("<i8").tobytes()
    every = digest_bytes(x.tobytes() + y.tobytes()) if settings.leaking else None
    stated = (
        settings.mode, settings.selection, n_classes, settings.per_class, settings.learning_rate, settings.epochs,
        settings.trials, seed,
    )  # fmt: skip
    return digest_json([digest_bytes(trained_on), every, stated])


def drawn_rows(
    labels: NDArray[np.int64], n_classes: int, *, per_class: int, trials: int, seed: int
) -> NDArray[np.int64]:
    """Draw the training rows of every trial: (t, m), each trial's sorted.

    `per_class` of each class without replacement, ⌊n/2⌋ of a class with fewer than twice as many. A draw
    depends on the labels, the seed and the trial's number alone.

    Raises
    ------
    MetricError
        If no class has two images.
    """
    members = [np.flatnonzero(labels == c) for c in range(n_classes)]
    takes = [per_class if len(rows) >= 2 * per_class else len(rows) // 2 for rows in members]
    if not sum(takes):
        raise MetricError("no class has two images, one to fit on and one to test on", found=len(labels))
    draws = []
    for trial in range(trials):
        rng = generator(seed, "logit_adjustment", trial)
        drawn = [rng.choice(rows, size=take, replace=False) for rows, take in zip(members, takes)]
        draws.append(np.sort(np.concatenate(drawn)))
    return np.stack(draws)


class Learned(NamedTuple):
    """Result of one optimisation.

    Attributes
    ----------
    factors : (p, t, K) float64
        Those of the chosen epoch.
    chosen : (p, t) int64
        The epoch; 0 is no adjustment.
    losses : (epochs + 1, p, t) float64
        Training loss of every epoch.
    """

    factors: NDArray[np.float64]
    chosen: NDArray[np.int64]
    losses: NDArray[np.float64]


def learn(
    x: NDArray[Any],
    y: NDArray[np.int64],
    train: NDArray[np.int64],
    *,
    n_classes: int,
    settings: LogitAdjustmentSettings,
    learning_rates: NDArray[np.float64] | None = None,
) -> Learned:
    """Optimise on the training rows, and keep the epoch that the settings' rule selects.

    Parameters
    ----------
    x : (p, n, K) float
        Logits of all labelled rows; only the released rule looks at those that are no training rows.
    y : (n,) int64
        True classes.
    train : (t, m) int64
        Training rows by trial. Equal rows may come in several trials, each with its own learning rate.
    learning_rates : (t,) float64, optional
        Of each trial, in place of the settings' one.
    """
    rates = np.full(len(train), settings.learning_rate) if learning_rates is None else learning_rates
    inputs = x[:, train].astype(np.float64)
    path, losses = _descend(inputs, y[train], settings, rates)
    if settings.selection == "train_loss":
        chosen = losses.argmin(axis=0)
    else:
        accuracy = _train_accuracy(path, inputs, y[train], n_classes, settings.mode)
        if settings.selection == "released":
            chosen = _released_choice(path, accuracy, x, y, train, n_classes, settings.mode)
        else:
            best = accuracy >= accuracy.max(axis=0) - 1e-12
            chosen = np.where(best, losses, np.inf).argmin(axis=0)
    return Learned(np.take_along_axis(path, chosen[None, ..., None], axis=0)[0], chosen, losses)


def _descend(
    x: NDArray[np.float64], y: NDArray[np.int64], settings: LogitAdjustmentSettings, rates: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Run Adam from the factors that change nothing, on every probe's and trial's training rows at once.

    Takes (p, t, m, K) logits and the (t, m) classes that the probes share; gives the factors (epochs + 1, p, t, K)
    after 0, 1, .. epochs steps, and their mean cross-entropy (epochs + 1, p, t).
    """
    multiplies = settings.mode == "multiplicative"
    factors = np.full((*x.shape[:2], x.shape[-1]), 1.0 if multiplies else 0.0)
    first, second = np.zeros_like(factors), np.zeros_like(factors)
    target = np.broadcast_to(y[None, ..., None], (*x.shape[:-1], 1))
    path, losses = [factors], []
    for step in range(1, settings.epochs + 2):
        z = adjust(x, factors, settings.mode)
        z = z - z.max(axis=-1, keepdims=True)
        e = np.exp(z)
        total = e.sum(axis=-1, keepdims=True)
        losses.append((np.log(total) - np.take_along_axis(z, target, axis=-1)).mean(axis=(-2, -1)))
        if step > settings.epochs:
            break
        excess = e / total
        np.put_along_axis(excess, target, np.take_along_axis(excess, target, axis=-1) - 1, axis=-1)
        gradient = (excess * x if multiplies else excess).mean(axis=-2)
        first = _BETA1 * first + (1 - _BETA1) * gradient
        second = _BETA2 * second + (1 - _BETA2) * gradient**2
        scale = np.sqrt(second / (1 - _BETA2**step)) + _EPSILON
        factors = factors - rates[:, None] * (first / (1 - _BETA1**step)) / scale
        path.append(factors)
    return np.stack(path), np.stack(losses)


def _train_accuracy(
    path: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, mode: Mode
) -> NDArray[np.float64]:
    """Return the macro accuracy (epochs + 1, p, t) of every epoch's factors on the training rows."""
    accuracy = np.empty(path.shape[:-1])
    for trial in range(y.shape[0]):
        correct = adjust(x[None, :, trial], path[:, :, trial], mode).argmax(axis=-1) == y[trial]
        accuracy[:, :, trial] = macro_accuracy(correct, y[trial], n_classes)
    return accuracy


def _released_choice(
    path: NDArray[np.float64],
    train_accuracy: NDArray[np.float64],
    x: NDArray[Any],
    y: NDArray[np.int64],
    train: NDArray[np.int64],
    n_classes: int,
    mode: Mode,
) -> NDArray[np.int64]:
    """Choose as the published code does: (p, t).

    The factors after a step are kept if the training accuracy before it exceeds the *test* accuracy of the
    last kept ones.
    """
    kept, bar = np.zeros(path.shape[1:-1], dtype=np.int64), np.zeros(path.shape[1:-1])
    for trial, rows in enumerate(train):
        test = np.delete(np.arange(len(y)), rows)
        x_test, y_test = np.ascontiguousarray(x[:, test]), y[test]
        for epoch in range(1, len(path)):
            accepted = train_accuracy[epoch - 1, :, trial] > bar[:, trial]
            if not accepted.any():
                continue
            adjusted = adjust(x_test[accepted], path[epoch, accepted, trial], mode)
            bar[accepted, trial] = macro_accuracy(adjusted.argmax(axis=-1) == y_test, y_test, n_classes)
            kept[accepted, trial] = epoch
    return kept


def macro_accuracy(correct: NDArray[np.bool_], labels: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Return the mean over the classes that are not empty of the share correct.

    Parameters
    ----------
    correct : (..., n) bool
    labels : (n,) int
    """
    member = (labels == np.arange(n_classes)[:, None]).astype(np.float64)
    size = member.sum(axis=1)
    seen = size > 0
    return (correct @ (member[seen] / size[seen, None]).T).mean(axis=-1)


def _checked(logits: ArrayLike, labels: ArrayLike, n_classes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return (p, n, K) logits and (n,) labels."""
    x, y = np.asarray(logits), np.asarray(labels)
    if x.ndim not in (2, 3) or y.ndim != 1 or n_classes < 1 or x.shape[-2] != len(y) or x.shape[-1] <= n_classes:
        raise MetricError(
            "logits must have a row for each label and a column for each class and another candidate",
            found=f"logits {x.shape}, labels {y.shape}",
            expected=f"(n, K) or (p, n, K) with K > {n_classes}, and (n,)",
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
