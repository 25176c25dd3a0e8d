"""How a logit adjustment is fitted: rows drawn with a seed, every probe and trial in one optimisation.

Source: Sun et al., "Uncovering Bias in Foundation Models", Method 4.5 and Algorithm 2.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.digests import digest_bytes, digest_json
from plumbline.errors import MetricError
from plumbline.mitigation.adjustment_choice import Learned, Selection, learn
from plumbline.mitigation.adjustment_descent import Mode
from plumbline.mitigation.logit_adjustment import LogitAdjustment
from plumbline.statistics.seeds import generator


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
        Which epoch's factors to keep, see `plumbline.mitigation.adjustment_choice.Selection`.

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
