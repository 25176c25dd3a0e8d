"""Maxima over groups: do their intervals hold the truth, with 2 to 14 groups, near parity and far from it?"""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import ndtr, ndtri

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.metrics import MetricSettings
from plumbline.metrics.disparities import RANGE_STATISTICS, SKEW_STATISTICS, ImageOutcomes, Resamples, Statistic
from plumbline.metrics.rankings.ranking import RankedGroups
from plumbline.metrics.rankings.skew_at_k import sample_top, skew_estimates
from plumbline.metrics.robustness.directional_bias import gap_of_codes
from plumbline.statistics import bca, jackknife_tables, percentile, permute_tables, resample_tables
from plumbline.statistics.groups import Groups

RESAMPLES, PERMUTATIONS = 400, 399
GROUPS, IMAGES, BASE_RATES = (2, 5, 7, 14), (50, 300, 1000, 10_000), (0.02, 0.1, 0.4)
TRUTHS = ("parity", "tiny", "one apart", "clear")
STATISTICS = (*SKEW_STATISTICS, *RANGE_STATISTICS)


def group_rates(groups: int, base: float, truth: str) -> NDArray[np.float64]:
    """Return how often the event happens in each group.

    Tiny and clear differences are spread evenly over the groups, from the lowest to 5% and to twice as much; one apart
    is 30% higher than the others, which are equal.
    """
    place = np.linspace(-0.5, 0.5, groups)
    if truth == "one apart":
        return base * np.where(place == 0.5, 1.3, 1.0)
    return base * {"parity": 1.0, "tiny": 1.05, "clear": 2.0}[truth] ** place


def before(draws: Resamples, statistic: Statistic, p: float) -> tuple[float, float]:
    """Return the interval of version 0.5: BCa, where the test does not reject with parity and the percentile ends."""
    value, replicates = float(statistic.of_events(draws.table)), statistic.of_events(draws.resampled)
    parity = 1.0 if statistic.scale == "ratio" else 0.0
    corrected = bca(value, replicates, acceleration=float(draws.jackknife(statistic.of_events).acceleration))
    ends = [corrected.ci_low, corrected.ci_high]
    if p > 0.05:
        wider = percentile(value, replicates)
        ends += [parity, wider.ci_low, wider.ci_high]
    return min(ends), max(ends)


def as_events(tables: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (..., 2, g) events and sizes of (..., g, 2) tables."""
    return np.stack([tables[..., 0], tables.sum(axis=-1)], axis=-2)


def drawn(seed: int, *, groups: int, images: int, base: float, truth: str) -> dict[str, Drawn]:
    """Return every statistic of one event, of groups of one size."""
    rng = np.random.default_rng([seed, groups, images])
    rates = group_rates(groups, base, truth)
    events = rng.binomial(images, rates)
    table = np.stack([events, images - events], axis=1)
    draws = Resamples(
        table,
        resample_tables(table, resamples=RESAMPLES, rng=rng),
        permute_tables(table, permutations=PERMUTATIONS, rng=rng),
        partial(jackknife_tables, table),
    ).mapped(as_events)
    found = {}
    for statistic in STATISTICS:
        estimate = draws.estimate(statistic.disparity_of_events(), confidence=0.95)
        true = float(statistic.of_events(np.stack([rates, np.ones(groups)]) * 1e12))
        low, high = before(draws, statistic, estimate.p) if np.isfinite(estimate.ci_low) else (np.nan, np.nan)
        found[f"{statistic.metric} {statistic.definition}"] = Drawn(
            estimate.value, true, estimate.ci_low, estimate.ci_high, estimate.p, truth == "parity",
            high - low, bool(low <= true <= high),
        )  # fmt: skip
    return found


def normal_means(groups: int, truth: str, *, step: float) -> NDArray[np.float64]:
    """Return means of groups: equal, one or half of them `step` higher, or each `step` above the one before."""
    place = np.arange(groups)
    above = {"parity": 0 * place, "one apart": place == groups - 1, "two camps": place >= groups // 2, "clear": place}
    return step * above[truth]


def gap_drawn(seed: int, *, groups: int, truth: str) -> dict[str, Drawn]:
    """Return the directional bias gap of groups of 15 to 120 images, the smaller ones with the larger spread."""
    rng = np.random.default_rng([seed, groups])
    codes = np.repeat(np.arange(groups), np.round(15 * 8 ** np.linspace(0, 1, groups)).astype(int))
    means = normal_means(groups, truth, step=0.5)
    values = means[codes] + rng.normal(size=len(codes)) * np.linspace(1.5, 0.7, groups)[codes]
    found = gap_of_codes(values, codes, tuple(range(groups)))
    drawn = Drawn(found.value, float(np.ptp(means)), found.ci_low, found.ci_high, found.p, truth == "parity")
    return {"directional bias gap": drawn}


def ranking_drawn(seed: int, *, groups: int, truth: str) -> dict[str, Drawn]:
    """Return MaxSkew@1000 of 4,000 ranked images of groups whose scores are normal."""
    rng = np.random.default_rng([seed, groups])
    codes, means = rng.integers(0, groups, 4000), normal_means(groups, truth, step=0.25)
    scores = means[codes] + rng.normal(size=len(codes))
    ranked = RankedGroups(np.argsort(-scores, kind="stable")[None], codes, groups)
    settings = MetricSettings(resamples=RESAMPLES, permutations=PERMUTATIONS)
    top = sample_top(ranked, k=1000, settings=settings, labels=[str(seed)], with_totals=True)
    bar = optimize.brentq(lambda at: ndtr(means - at).mean() - 0.25, -9, 9 + means.max())
    true = float(np.log(ndtr(means - bar) / 0.25).max()) if truth != "parity" else 0.0
    found = {desired: skew_estimates(top, desired).largest[0] for desired in ("equal", "ranked")}
    return {
        f"MaxSkew@k, {desired} shares": Drawn(e.value, true, e.ci_low, e.ci_high, e.p, truth == "parity")
        for desired, e in found.items()
    }


def sets_drawn(seed: int, *, groups: int, truth: str) -> dict[str, Drawn]:
    """Return the disparities of 150 sets with one image of each group, which have a normal score in common."""
    rng = np.random.default_rng([seed, groups])
    rates, sets = group_rates(groups, 0.4, truth), 150
    score = np.sqrt(0.5) * (rng.normal(size=(sets, 1)) + rng.normal(size=(sets, groups)))
    hit = (score < ndtri(rates)).ravel()
    codes, own = np.tile(np.arange(groups), sets), np.repeat(np.arange(sets), groups)
    outcomes = ImageOutcomes(
        Groups("group", tuple(map(str, range(groups))), codes), np.where(hit, 0, 1), np.array([[1, 0]]), own
    )
    settings = MetricSettings(seed=seed, resamples=RESAMPLES, permutations=PERMUTATIONS)
    draws = outcomes.draws(["sets"], settings).mapped(outcomes.events)
    found = {}
    for statistic in STATISTICS:
        e = draws.estimate(statistic.disparity_of_events(), confidence=0.95)
        true = float(statistic.of_events(np.stack([rates, np.ones(groups)]) * 1e12))
        name = f"{statistic.metric} {statistic.definition}"
        found[name] = Drawn(e.value, true, e.ci_low, e.ci_high, e.p, truth == "parity")
    return found


CAMPS = ("parity", "one apart", "two camps", "clear")
BLOCK = Block(
    title="Maxima over groups: groups x images of each x base rate x truth; sets, directional bias gap, MaxSkew@k",
    cells=(
        *(
            Cell(
                f"{groups} x {images}, {base:.0%}, {truth}",
                partial(drawn, groups=groups, images=images, base=base, truth=truth),
            )
            for groups, images, base, truth in product(GROUPS, IMAGES, BASE_RATES, TRUTHS)
        ),
        *(
            Cell(f"{groups} groups in sets, {truth}", partial(sets_drawn, groups=groups, truth=truth))
            for groups, truth in product((2, 7), TRUTHS)
        ),
        *(
            Cell(f"{groups} uneven groups, {truth}", partial(gap_drawn, groups=groups, truth=truth))
            for groups, truth in product((2, 7, 14), CAMPS)
        ),
        *(
            Cell(f"{groups} groups ranked, {truth}", partial(ranking_drawn, groups=groups, truth=truth))
            for groups, truth in product((2, 7, 14), CAMPS)
        ),
    ),
    worlds=400,
    few=(
        "14 x 1000, 40%, one apart",
        "7 groups in sets, one apart",
        "14 uneven groups, two camps",
        "14 groups ranked, two camps",
    ),
)
