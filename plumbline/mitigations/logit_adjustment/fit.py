"""What can be set of each mitigation, as the audit file says it; defaults are the published settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from plumbline.digests import digest_bytes, digest_json
from plumbline.errors import MetricError
from plumbline.mitigations.settings import MitigationSettings
from plumbline.statistics.seeds import generator


class LogitAdjustmentSettings(MitigationSettings):
    """Adaptive Logit Adjustment (paper: N = 20, learning rate 0.01, 20 epochs, 3 trials)."""

    method: Literal["logit_adjustment"] = Field(
        default="logit_adjustment", description="which mitigation these settings are of"
    )
    per_class: int = Field(default=20, ge=1, description="images of each class that are fitted on")
    learning_rate: float = Field(default=0.01, gt=0, description="of the factors")
    epochs: int = Field(default=20, ge=1, description="passes over the images that are fitted on")
    trials: int = Field(default=3, ge=1, description="draws of these images; the first is the one judged")
    mode: Literal["multiplicative", "additive"] = Field(
        default="multiplicative",
        description="whether a logit is multiplied by its factor, or the factor is added",
    )
    candidates: Literal["single", "composite"] = Field(
        default="single",
        description="composite: one factor a class × automatic gender label, fitted on the composite suite",
    )
    selection: Literal["train_loss", "train_accuracy", "released"] = Field(
        default="train_loss", description="released: as the published code, which lets test accuracy choose"
    )
    ablation: bool = Field(
        default=False, description="also try N of 10 to 200 and learning rates of 0.001 to 0.1, for a table"
    )

    @property
    def of_fit(self) -> dict[str, Any]:
        """Return what `plumbline.mitigations.fit_logit_adjustment` takes."""
        return self.model_dump(exclude={"method", "candidates", "ablation"})


def is_leaking(settings: MitigationSettings) -> bool:
    """Return whether what is fitted so has seen the labels that it is judged by."""
    return isinstance(settings, LogitAdjustmentSettings) and settings.selection == "released"


# --- The optimisation behind the logit adjustment: full-batch Adam, all probes and trials at once.

Mode = Literal["multiplicative", "additive"]

# Adam as published (Kingma & Ba 2015) and as torch has it by default.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


def macro_accuracy(
    correct: NDArray[np.bool_], labels: NDArray[np.int64], n_classes: int
) -> NDArray[np.float64]:
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


def adjust(x: NDArray[Any], factors: NDArray[np.float64], mode: Mode) -> NDArray[Any]:
    """Return logits (..., n, K) times, or plus, factors (..., K)."""
    spread = factors[..., None, :].astype(x.dtype, copy=False)
    return x * spread if mode == "multiplicative" else x + spread


class Descent(NamedTuple):
    """What a descent went through.

    Attributes
    ----------
    factors : (epochs + 1, p, t, K) float64
        After 0, 1, .. epochs steps.
    losses : (epochs + 1, p, t) float64
        The mean cross-entropy that they give.
    """

    factors: NDArray[np.float64]
    losses: NDArray[np.float64]


def descend(
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    *,
    mode: Mode,
    learning_rate: float | NDArray[np.float64],
    epochs: int,
) -> Descent:
    """Run Adam from the factors that change nothing, on every probe's and trial's training rows at once.

    Parameters
    ----------
    x : (p, t, m, K) float64
        Logits of the training rows.
    y : (t, m) int64
        True classes, which the probes share.
    learning_rate : float or (t,) float64
        One for all trials, or each its own.
    """
    rate = np.asarray(learning_rate, dtype=np.float64)[..., None]
    factors = np.full((*x.shape[:2], x.shape[-1]), 1.0 if mode == "multiplicative" else 0.0)
    first, second = np.zeros_like(factors), np.zeros_like(factors)
    target = np.broadcast_to(y[None, ..., None], (*x.shape[:-1], 1))
    path, losses = [factors], []
    for step in range(1, epochs + 2):
        loss, gradient = _loss_and_gradient(x, target, factors, mode)
        losses.append(loss)
        if step > epochs:
            break
        first = _BETA1 * first + (1 - _BETA1) * gradient
        second = _BETA2 * second + (1 - _BETA2) * gradient**2
        scale = np.sqrt(second / (1 - _BETA2**step)) + _EPSILON
        factors = factors - rate * (first / (1 - _BETA1**step)) / scale
        path.append(factors)
    return Descent(np.stack(path), np.stack(losses))


def _loss_and_gradient(
    x: NDArray[np.float64], target: NDArray[np.int64], factors: NDArray[np.float64], mode: Mode
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    z = adjust(x, factors, mode)
    z = z - z.max(axis=-1, keepdims=True)
    e = np.exp(z)
    total = e.sum(axis=-1, keepdims=True)
    loss = (np.log(total) - np.take_along_axis(z, target, axis=-1)).mean(axis=(-2, -1))
    excess = e / total
    np.put_along_axis(excess, target, np.take_along_axis(excess, target, axis=-1) - 1, axis=-1)
    return loss, (excess * x if mode == "multiplicative" else excess).mean(axis=-2)


# --- Which epoch's factors a logit adjustment keeps: by training rows alone, or as the published code
# does.

Selection = Literal["train_loss", "train_accuracy", "released"]
"""Which epoch's factors are kept.

`train_loss`: those of the lowest training loss. `train_accuracy`: of the highest training macro accuracy, ties to the
lower loss. `released`: as the published code does, which compares the training accuracy with the test accuracy of the
last accepted epoch and so lets test labels in; for comparison with published numbers only, and marked `leaking`.
"""


def rows_left(train: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
    """Return the (t, n) mask of the rows that are no training rows, (t, m), of their trial."""
    mask = np.ones((len(train), n), dtype=bool)
    np.put_along_axis(mask, train, False, axis=1)
    return mask


class Learned(NamedTuple):
    """What one descent learned.

    Attributes
    ----------
    factors : (p, t, K) float64
        Those of the chosen epoch.
    chosen : (p, t) int64
        The epoch; 0 is no adjustment.
    losses : (epochs + 1, p, t) float64
        Training loss of every epoch.
    inputs : (p, t, m, K) float64
        The training logits.
    targets : (t, m) int64
        Their classes.
    """

    factors: NDArray[np.float64]
    chosen: NDArray[np.int64]
    losses: NDArray[np.float64]
    inputs: NDArray[np.float64]
    targets: NDArray[np.int64]


def learn(
    x: NDArray[Any],
    y: NDArray[np.int64],
    train: NDArray[np.int64],
    *,
    n_classes: int,
    mode: Mode,
    learning_rate: float | NDArray[np.float64],
    epochs: int,
    selection: Selection,
) -> Learned:
    """Descend on the training rows, and keep the epoch that the rule chooses.

    Parameters
    ----------
    x : (p, n, K) float
        Logits of all labelled rows; only the released rule looks at those that are no training rows.
    y : (n,) int64
        True classes.
    train : (t, m) int64
        Training rows by trial. Equal rows may come in several trials, each with its own learning rate.
    learning_rate : float or (t,) float64
    """
    inputs, targets = x[:, train].astype(np.float64), y[train]
    path, losses = descend(inputs, targets, mode=mode, learning_rate=learning_rate, epochs=epochs)
    if selection == "train_loss":
        chosen = losses.argmin(axis=0)
    elif selection == "train_accuracy":
        chosen = _by_train_accuracy(path, losses, inputs, targets, n_classes, mode)
    else:
        chosen = _by_released_rule(path, inputs, targets, x, y, train, n_classes, mode)
    factors = np.take_along_axis(path, chosen[None, ..., None], axis=0)[0]
    return Learned(factors, chosen, losses, inputs, targets)


def _train_accuracy(
    path: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, mode: Mode
) -> NDArray[np.float64]:
    """Return the macro accuracy (epochs + 1, p, t) of every epoch's factors on the training rows."""
    accuracy = np.empty(path.shape[:-1])
    for trial in range(y.shape[0]):
        correct = adjust(x[None, :, trial], path[:, :, trial], mode).argmax(axis=-1) == y[trial]
        accuracy[:, :, trial] = macro_accuracy(correct, y[trial], n_classes)
    return accuracy


def _by_train_accuracy(
    path: NDArray[np.float64],
    losses: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    n_classes: int,
    mode: Mode,
) -> NDArray[np.int64]:
    """Choose the epoch of the highest training macro accuracy, ties to the lower loss: (p, t)."""
    accuracy = _train_accuracy(path, x, y, n_classes, mode)
    best = accuracy >= accuracy.max(axis=0) - 1e-12
    return np.where(best, losses, np.inf).argmin(axis=0)


def _by_released_rule(
    path: NDArray[np.float64],
    inputs: NDArray[np.float64],
    targets: NDArray[np.int64],
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
    before = _train_accuracy(path, inputs, targets, n_classes, mode)
    kept, bar = np.zeros(path.shape[1:-1], dtype=np.int64), np.zeros(path.shape[1:-1])
    for trial, rows in enumerate(train):
        test = np.delete(np.arange(len(y)), rows)
        x_test, y_test = np.ascontiguousarray(x[:, test]), y[test]
        for epoch in range(1, len(path)):
            accepted = before[epoch - 1, :, trial] > bar[:, trial]
            if not accepted.any():
                continue
            adjusted = adjust(x_test[accepted], path[epoch, accepted, trial], mode)
            bar[accepted, trial] = macro_accuracy(adjusted.argmax(axis=-1) == y_test, y_test, n_classes)
            kept[accepted, trial] = epoch
    return kept


# --- Adaptive Logit Adjustment: one factor a candidate, learned from a few labelled images; how it is
# applied.
#
# Source: Sun et al., "Uncovering Bias in Foundation Models", Method 4.5 and Algorithm 2.

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


# --- How a logit adjustment is fitted: rows drawn with a seed, every probe and trial in one optimisation.
#
# Source: Sun et al., "Uncovering Bias in Foundation Models", Method 4.5 and Algorithm 2.


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
    logits : (n, K) or (p, n, K) float
        The C classes are the first candidates, and at least one other follows: the probe of a one-probe test,
        or every other text of a suite.
    labels : (n,) int
        True class, 0 .. C - 1.
    per_class : int
        Images of each class drawn for training, without replacement; ⌊n/2⌋ of a class with fewer than twice
        as many.
    trials : int
        Independent draws.
    seed : int
        Equal seeds draw the same images, whatever the logits.
    selection : Selection
        Which epoch's factors to keep, see `plumbline.mitigations.logit_adjustment.fit.Selection`.

    Raises
    ------
    MetricError
        If the shapes disagree, a label is no class, a logit is not finite, a setting is out of range, or no
        class has the two images that a training row takes.
    """
    x, y = _checked(logits, labels, n_classes)
    _check_settings(per_class, learning_rate, epochs, trials, mode, selection)
    train = drawn_rows(y, n_classes, per_class=per_class, trials=trials, seed=seed)
    learned = learn(
        x, y, train, n_classes=n_classes, mode=mode, learning_rate=learning_rate, epochs=epochs, selection=selection
    )  # fmt: skip
    settings: dict[str, Any] = {
        "mode": mode, "selection": selection, "n_classes": n_classes, "per_class": per_class,
        "learning_rate": learning_rate, "epochs": epochs, "trials": trials, "seed": seed,
    }  # fmt: skip
    probes: int | slice = 0 if np.ndim(logits) == 2 else slice(None)
    return LogitAdjustment(
        factors=learned.factors[probes],
        train_rows=train,
        losses=np.moveaxis(learned.losses, 0, -1)[probes],
        chosen_epochs=learned.chosen[probes],
        fitted_on=digest_json([*_digests(learned, x, y, selection), tuple(settings.values())]),
        **settings,
    )


def _digests(
    learned: Learned, x: NDArray[Any], y: NDArray[np.int64], selection: Selection
) -> list[str | None]:
    """Return the digest of the training rows, and of all rows where the test rows have a say too."""
    trained_on = learned.inputs.astype("<f8").tobytes() + learned.targets.astype("<i8").tobytes()
    every = digest_bytes(x.tobytes() + y.tobytes()) if selection == "released" else None
    return [digest_bytes(trained_on), every]


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


def _checked(logits: ArrayLike, labels: ArrayLike, n_classes: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    x, y = np.asarray(logits), np.asarray(labels)
    if (
        x.ndim not in (2, 3)
        or y.ndim != 1
        or n_classes < 1
        or x.shape[-2] != len(y)
        or x.shape[-1] <= n_classes
    ):
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


def _check_settings(
    per_class: int, learning_rate: float, epochs: int, trials: int, mode: str, selection: str
) -> None:
    valid = {
        "per_class": (per_class >= 1, per_class, "at least 1"),
        "learning_rate": (learning_rate > 0, learning_rate, "positive"),
        "epochs": (epochs >= 1, epochs, "at least 1"),
        "trials": (trials >= 1, trials, "at least 1"),
        "mode": (mode in ("multiplicative", "additive"), mode, "multiplicative or additive"),
        "selection": (selection in get_args(Selection), selection, ", ".join(get_args(Selection))),
    }
    for name, (holds, found, expected) in valid.items():
        if not holds:
            raise MetricError(
                "a setting of the logit adjustment is out of range",
                where=name,
                found=found,
                expected=expected,
            )
