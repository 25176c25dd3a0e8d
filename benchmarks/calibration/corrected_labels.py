"""Rates by the true label from rates by an automatic one, in classes of few images."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.metrics.trident.label_error import corrected_rates

IMAGES = (60, 200, 800)
ERRORS = (0.05, 0.15)
RATES = ((0.1, 0.1), (0.1, 0.4), (0.5, 0.5), (0.9, 0.6))
"""Of the outcome, by true label."""


def drawn(seed: int, *, images: int, error: float, rates: tuple[float, float], known: float) -> dict[str, Drawn]:
    """Draw one class: true labels, outcomes, automatic labels, and the share of images whose truth is known."""
    rng = np.random.default_rng([seed, images])
    truth = rng.integers(0, 2, images)
    outcome = rng.random(images) < np.array(rates)[truth]
    label = truth ^ (rng.random(images) < error)
    seen = rng.random(images) < known
    hits, sizes = (np.bincount(label[chosen], minlength=2) for chosen in (outcome, np.ones(images, bool)))
    confusion = np.zeros((1, 2, 2), dtype=np.int64)
    np.add.at(confusion[0], (truth[seen], label[seen]), 1)
    found = corrected_rates(hits[None], sizes[None], confusion)
    of_label = {
        f"rate of label {t}": Drawn(
            float(found.rates.value[0, t]), rates[t], float(found.rates.ci_low[0, t]), float(found.rates.ci_high[0, t])
        )
        for t in (0, 1)
    }
    mean = found.mean
    return of_label | {
        "mean of both": Drawn(float(mean.value), float(np.mean(rates)), float(mean.ci_low), float(mean.ci_high))
    }


BLOCK = Block(
    title="Rates corrected for errors of automatic labels, one class",
    cells=tuple(
        Cell(
            f"{images} images, errors {100 * error:.0f}%, rates {100 * rates[0]:.0f} and {100 * rates[1]:.0f}%, "
            f"truth of {100 * known:.0f}% known",
            partial(drawn, images=images, error=error, rates=rates, known=known),
        )
        for images in IMAGES
        for error in ERRORS
        for rates in RATES
        for known in (0.3, 1.0)
    ),
    few=("200 images, errors 15%, rates 10 and 40%, truth of 100% known",),
)
