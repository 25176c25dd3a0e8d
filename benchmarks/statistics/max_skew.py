"""Intervals of Max Skew and the harm rate: multinomials on counts, against resampled images."""

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.statistics.contest import RACES, RESAMPLES, Peer, Row, race_codes, timed, warmed
from plumbline.metrics import harm_rate
from plumbline.metrics.disparities import skew_values
from plumbline.statistics import bca, jackknife_tables, percentile, resample_tables

RATES = np.array([0.13, 0.11, 0.10, 0.09, 0.12, 0.10, 0.08])
REACHED = {"percentile": 61, "BCa": 135}
PANDAS_REACHED, PANDAS_RESAMPLES = 1_200, 40
BATCH = 100
ALLOWED = 0.12
"""Standard errors by which the ends of two independent runs of 10,000 may differ."""


def run() -> list[Row]:
    """Return the rows of percentile and of BCa intervals."""
    groups = images(np.random.default_rng(0))
    table = np.array([[int(group.sum()), int(len(group) - group.sum())] for group in groups])
    replicates = skew_of_tables(resample_tables(table, resamples=RESAMPLES, rng=np.random.default_rng(3)))
    rows = []
    for method, reached in REACHED.items():
        seconds, ours = warmed(lambda method=method: from_counts(table, method))
        slow, theirs = timed(lambda method=method: by_scipy(groups, method), repeats=2)
        peers = [Peer(f"scipy.stats.bootstrap, batches of {BATCH}", slow, *compared(ours, theirs, replicates), reached)]
        if method == "percentile":
            peers.append(pandas_peer(groups, ours, replicates))
        rows.append(Row(f"Max Skew and harm rate, {method} (the peers: Max Skew only)", seconds, peers))
    return rows


def images(rng: np.random.Generator) -> list[np.ndarray]:
    """Draw each race's images as 1 for the event, 0 for not."""
    sizes = np.bincount(race_codes(), minlength=RACES)
    return [(rng.random(n) < rate).astype(float) for n, rate in zip(sizes, RATES)]


def skew_of_tables(tables: np.ndarray) -> np.ndarray:
    """Return mean Max Skew of (..., g, 2) counts."""
    return skew_values(tables[..., 0], tables.sum(axis=-1))


def skew_of_rates(rates: np.ndarray) -> np.ndarray:
    """Return mean Max Skew of (g, ...) rates, pair by pair."""
    first, second = np.triu_indices(len(rates), k=1)
    gap = np.maximum(rates[first], rates[second]) / np.minimum(rates[first], rates[second]) - 1
    return gap.mean(axis=0)


def skew_of_images(*groups: np.ndarray, axis: int) -> np.ndarray:
    """Return mean Max Skew of each race's images."""
    return skew_of_rates(np.stack([group.mean(axis=axis) for group in groups]))


def from_counts(table: np.ndarray, method: str) -> tuple[float, float]:
    """Return the interval of Max Skew, having computed the harm rate's too."""
    harm_rate(table[:, 0], table.sum(axis=1))
    replicates = skew_of_tables(resample_tables(table, resamples=RESAMPLES, rng=np.random.default_rng(1)))
    if method == "percentile":
        interval = percentile(float(skew_of_tables(table)), replicates)
    else:
        acceleration = jackknife_tables(table, skew_of_tables).acceleration
        interval = bca(float(skew_of_tables(table)), replicates, acceleration=acceleration)
    return interval.ci_low, interval.ci_high


def by_scipy(groups: list[np.ndarray], method: str) -> tuple[float, float]:
    """Return the same interval by `scipy.stats.bootstrap` over images, vectorised."""
    rng = np.random.default_rng(2)
    result = stats.bootstrap(groups, skew_of_images, n_resamples=RESAMPLES, batch=BATCH, method=method, rng=rng)
    return result.confidence_interval.low, result.confidence_interval.high


def compared(ours: tuple, theirs: tuple, replicates: np.ndarray, allowed: float = ALLOWED) -> tuple[bool, str]:
    """Say how many standard errors the ends of two intervals lie apart."""
    apart = np.abs(np.subtract(ours, theirs)).max() / replicates.std()
    ends = f"[{ours[0]:.4f}, {ours[1]:.4f}] and [{theirs[0]:.4f}, {theirs[1]:.4f}]"
    return bool(apart < allowed), f"{ends}, {apart:.3f} standard errors apart, {allowed} allowed"


def pandas_peer(groups: list[np.ndarray], ours: tuple, replicates: np.ndarray) -> Peer:
    """Resample the rows of a data frame within races, a few times."""
    race = np.repeat(np.arange(RACES), [len(group) for group in groups])
    frame = pd.DataFrame({"race": race, "event": np.concatenate(groups)})

    def loop() -> tuple[float, float]:
        values = []
        for seed in range(PANDAS_RESAMPLES):
            drawn = frame.groupby("race").sample(frac=1, replace=True, random_state=seed)
            values.append(skew_of_rates(drawn.groupby("race")["event"].mean().to_numpy()))
        return tuple(np.quantile(values, [0.025, 0.975]))

    part, theirs = timed(loop, repeats=3)
    # So few resamples fix an end to within about half a standard error; a gross difference would still show.
    agreement = compared(ours, theirs, replicates, allowed=1.5)
    whole = part * RESAMPLES / PANDAS_RESAMPLES
    return Peer("pandas loop", whole, *agreement, PANDAS_REACHED, part=f"{PANDAS_RESAMPLES} resamples")
