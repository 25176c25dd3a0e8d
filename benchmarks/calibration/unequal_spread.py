"""SC-WEAT and WEAT between groups of unequal size and unequal spread that differ in nothing else."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.metrics import sc_weat, weat

PERMUTATIONS = 999
SIZES = ((40, 160), (200, 1000))
"""Images of the first and of the second group."""
ENUMERATED = (12, 5)
"""So few that all partitions are compared: where the spread is equal, the level is exact."""
RATIOS = (1.2, 1.5, 2.0)
"""Standard deviation of one group over that of the other."""
WORDS = 3
DIMENSIONS = 6


def drawn(seed: int, *, sizes: tuple[int, int], spread: tuple[float, float]) -> dict[str, Drawn]:
    """Return the p-values of one world in which both groups have the same means."""
    rng = np.random.default_rng([seed, *sizes])
    in_a = np.arange(sum(sizes)) < sizes[0]
    deviation = np.where(in_a, *spread)[:, None]
    cosines = 0.2 + 0.03 * deviation * rng.normal(size=(len(in_a), WORDS))

    def of_words(alternative: str) -> float:
        draws = np.random.default_rng([seed, 1])
        found = sc_weat(cosines, in_a, permutations=PERMUTATIONS, seed=draws, alternative=alternative)
        return found.category.p_value

    # Both groups lie on both sides of the plane between the two attributes alike.
    faces = deviation * rng.normal(size=(len(in_a), DIMENSIONS)) + 4 * (np.arange(DIMENSIONS) == 1)
    pole = np.eye(DIMENSIONS)[:1]
    dimension = weat(
        faces[in_a], faces[~in_a], pole, -pole,
        permutations=PERMUTATIONS, seed=np.random.default_rng([seed, 2]), alternative="two-sided",
    )  # fmt: skip
    return {
        "SC-WEAT, two-sided": Drawn(p=of_words("two-sided"), null=True),
        "SC-WEAT, one-sided": Drawn(p=of_words("greater"), null=True),
        "WEAT, two-sided": Drawn(p=dimension.p_value, null=True),
    }


def _cells() -> list[Cell]:
    settings = [(sizes, (1.0, 1.0)) for sizes in (ENUMERATED, *SIZES)]
    settings += [
        (sizes, spread) for sizes in (ENUMERATED, *SIZES) for ratio in RATIOS for spread in ((ratio, 1.0), (1.0, ratio))
    ]
    return [
        Cell(
            f"{sizes[0]} and {sizes[1]} images, sd {spread[0]:g} and {spread[1]:g}",
            partial(drawn, sizes=sizes, spread=spread),
        )
        for sizes, spread in settings
    ]


BLOCK = Block(
    title="SC-WEAT and WEAT under unequal spread", cells=tuple(_cells()), few=("40 and 160 images, sd 2 and 1",)
)
