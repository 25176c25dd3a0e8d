"""The metrics of a text space: they need prompts alone, so that they are of a model and of no dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.traits import Measure, MetricTraits
from plumbline.metrics.valence_geometry import ValenceGeometry, valence_geometry


def _of_words(read: Callable[[ValenceGeometry], float]) -> Measure:
    """Take each image for a word in two dimensions, of positive valence where the last response is the higher."""

    def measure(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
        own, last = responses[np.arange(len(groups)), groups], responses[:, g]
        # In an order of their own, since sums of cosines in another order differ in the last bits.
        order = np.lexsort((last, own))
        words = np.stack([own, last], axis=1)[order]
        # No word lies exactly at the centre, where a cosine is undefined.
        words[(words == 0).all(axis=1)] = [0.0, -1.0]
        valences = np.where(words[:, 1] > words[:, 0], "positive", "negative").tolist()
        found = valence_geometry(words, dimensions=["agency"] * len(words), valences=valences)
        return np.asarray(read(found))

    return measure


_COMMON: dict[str, Any] = {
    "function": valence_geometry,
    "shape": "scalar",
    "when_identical": None,
    "empty_group": "left_out",
    "ties": "no effect",
    "scale": "invariant",
    "shift": None,
}

TEXT_SPACE = (
    MetricTraits(
        name="valence_cosine",
        meaning="How close the words of one valence, or of opposite ones, lie in a text space.",
        formula="mean over pairs of words of cos(u, v), within a valence or across",
        source="Hausladen et al., Social perception of faces, appendix C.1",
        measure=_of_words(lambda found: found.dimensions[0].positive.value),
        bounds=(-1, 1),
        **_COMMON,
    ),
    MetricTraits(
        name="valence_gap",
        meaning="Whether words of one valence lie closer to each other than to those of the other.",
        formula="mean cosine within the valence - mean cosine across",
        source="Hausladen et al., Social perception of faces, appendix C.1 and table C.3",
        measure=_of_words(lambda found: found.dimensions[0].positive_gap.estimate.value),
        bounds=(-2, 2),
        **_COMMON,
    ),
    MetricTraits(
        name="text_axis_share",
        meaning="How much of the words' variance lies along each of the first three principal axes.",
        formula="eigenvalue of the axis / sum of all eigenvalues of the words' covariance",
        source="Hausladen et al., Social perception of faces, appendix C.1",
        measure=_of_words(lambda found: float(found.shares[0])),
        bounds=(0, 1),
        **_COMMON,
    ),
)
"""What the metrics of `plumbline.metrics.families.geometry_rows` promise."""
