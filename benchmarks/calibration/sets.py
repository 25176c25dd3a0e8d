"""Sets with several images of a person of each group: no group differs, but a person answers otherwise as each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.catalog.schema import Row
from plumbline.metrics import MetricSettings
from plumbline.metrics.disparities import RANGE_STATISTICS, SKEW_STATISTICS, ImageOutcomes, disparity_rows
from plumbline.metrics.rankings.ndkl import ndkl_estimates
from plumbline.metrics.rankings.ranking import ImageClusters, RankedGroups
from plumbline.metrics.rankings.skew_at_k import default_k, sample_top, skew_estimates
from plumbline.metrics.trident.rows import ProbeTest, probe_gap_rows
from plumbline.metrics.trident.scores import OTHER, PROBE
from plumbline.statistics.groups import Groups
from plumbline.statistics.rankings import rank_order

RACES = ("Asian", "Black", "White")
PERSON = 1.0
"""Standard deviation between persons of the latent score, whose images vary by 1."""
PROBES = 4

Sizes = Callable[[np.random.Generator], NDArray[np.int64]]
"""Images of each person and group, (sets, groups)."""


def _even(sets: int, images: int, _: np.random.Generator) -> NDArray[np.int64]:
    return np.full((sets, len(RACES)), images)


def _uneven(sets: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(2, 19, (sets, len(RACES)))


def _one_small(sets: int, _: np.random.Generator) -> NDArray[np.int64]:
    return np.tile([16, 12, 2], (sets, 1))


def _of_one_group(sets: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Persons of one group each, such as identities, and a few of two by a wrong label."""
    sizes = np.zeros((sets, len(RACES)), dtype=np.int64)
    sizes[np.arange(sets), np.arange(sets) % len(RACES)] = rng.integers(1, 30, sets)
    sizes[:2] = 5
    return sizes


def drawn(seed: int, *, sizes: Sizes, spread: float, ranked: bool) -> dict[str, Drawn]:
    """Return the disparities of one world: of outcomes and probes, or of a ranking."""
    rng = np.random.default_rng([seed, 19])
    images = sizes(rng)
    sets, codes = (each.repeat(images.ravel()) for each in np.indices(images.shape).reshape(2, -1))
    latent = rng.normal(0, PERSON, (len(images), 1)) + rng.normal(0, spread, images.shape)
    scores = latent[sets, codes] + rng.normal(size=(PROBES, len(sets)))
    order = rng.permutation(len(sets))
    sets, codes, scores = sets[order], codes[order], scores[:, order]
    settings = MetricSettings(seed=seed, resamples=400, permutations=999)
    return _of_ranking(scores[0], codes, sets, settings) if ranked else _of_answers(scores, codes, sets, settings)


def _of_answers(
    scores: NDArray[np.float64], codes: NDArray[np.int64], sets: NDArray[np.int64], settings: MetricSettings
) -> dict[str, Drawn]:
    groups = Groups("race", RACES, codes)
    outcomes = ImageOutcomes(groups, np.where(scores[0] > 0.8, 0, 1), np.array([[1, 0]]), sets)
    names = {"model": "null", "dataset": "sets", "suite": "crime"}
    words = {f"probe {i}": "negative" for i in range(PROBES)}
    test = ProbeTest(names, settings, words, np.where(scores > 0.8, PROBE, OTHER), groups, len(RACES) + 1, sets)
    rows = [*disparity_rows(names, outcomes, (*SKEW_STATISTICS, *RANGE_STATISTICS), settings)]
    return _drawn([*rows, *probe_gap_rows(test, "negative")])


def _drawn(rows: Iterable[Row]) -> dict[str, Drawn]:
    found = {}
    for row in rows:
        value, low, high, p = (float(row[name]) for name in ("value", "ci_low", "ci_high", "p"))  # type: ignore[arg-type]
        truth = 1.0 if row["metric"] == "impact_ratio" else 0.0
        found[f"{row['metric']}, {row['definition']}"] = Drawn(value, truth, low, high, p, null=True)
    return found


def _of_ranking(
    scores: NDArray[np.float64], codes: NDArray[np.int64], sets: NDArray[np.int64], settings: MetricSettings
) -> dict[str, Drawn]:
    clusters = ImageClusters.of(sets, codes, settings=settings, labels=["null"])
    ranked = RankedGroups(rank_order(scores), codes, len(RACES), clusters)
    top = sample_top(ranked, k=default_k(len(codes)), settings=settings, labels=["null"], with_totals=True)
    skew = skew_estimates(top, "ranked")
    ndkl = ndkl_estimates(ranked, "ranked", settings=settings).estimate[0]
    group, largest = skew.by_group[0, 0], skew.largest[0]
    return {
        "skew_at_k of a group": Drawn(p=_known(group.p), null=True),
        "max_skew_at_k": Drawn(largest.value, 0.0, largest.ci_low, largest.ci_high, _known(largest.p), null=True),
        "ndkl": Drawn(p=_known(ndkl.p), null=True),
    }


def _known(p: float | None) -> float:
    return np.nan if p is None else p


def _cell(name: str, sizes: Sizes, spread: float, *, ranked: bool = False) -> Cell:
    return Cell(name, partial(drawn, sizes=sizes, spread=spread, ranked=ranked))


_SIZES: tuple[tuple[str, Sizes, float], ...] = (
    ("4 sets x 20 images a race, 0.5 sd", partial(_even, 4, 20), 0.5),
    ("20 x 10, 0.5 sd", partial(_even, 20, 10), 0.5),
    ("20 x 10, 1 sd", partial(_even, 20, 10), 1.0),
    ("50 x 10, 0.5 sd", partial(_even, 50, 10), 0.5),
    ("20 x 10, no variation of person x race", partial(_even, 20, 10), 0.0),
    ("20 x 2 to 18, 0.5 sd", partial(_uneven, 20), 0.5),
    ("20 x 16, 12 and 2, 0.5 sd", partial(_one_small, 20), 0.5),
    ("60 persons of one race, two of all by a wrong label", partial(_of_one_group, 60), 0.5),
    ("2 x 20, too few to test", partial(_even, 2, 20), 0.5),
)
BLOCK = Block(
    title="Sets with several images of a person of each race: nothing differs but for persons",
    cells=(
        *(_cell(*each) for each in _SIZES),
        _cell("ranking, 4 x 66, 0.5 sd", partial(_even, 4, 66), 0.5, ranked=True),
        *(_cell(f"ranking, {name}", sizes, spread, ranked=True) for name, sizes, spread in _SIZES[1:]),
    ),
    few=("4 sets x 20 images a race, 0.5 sd", "ranking, 20 x 10, 1 sd"),
)
