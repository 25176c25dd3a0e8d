"""Coverage, level and power of what the metric families report: `python -m benchmarks.calibration [worlds]`.

Each world is a cell of 400 faces of two groups drawn by the numeric planted encoder; its rows are those of an audit,
with 400 resamples and 399 permutations. At strength 0 a right p is uniform and a right interval holds "no
difference" in 95 of 100 worlds; with the strength the power must rise.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import polars as pl
from scipy import stats

from benchmarks.calibration.readings import READINGS, Calibrated
from benchmarks.calibration.worlds import world
from plumbline.concurrency import usable_cores
from plumbline.metrics import MetricSettings
from plumbline.metrics.registry import FAMILIES

IMAGES = 400
STRENGTHS = (0.0, 0.1, 0.2, 0.4)
LEVEL = 0.05
Rows = list[dict[str, float]]


def measure(seed: int, *, beta: float) -> Rows:
    """Return value, ends and p of every reading in one world."""
    cell = world(seed, beta=beta, n=IMAGES)
    settings = MetricSettings(seed=seed, resamples=400, permutations=399)
    names = dict.fromkeys(reading.family for reading in READINGS)
    tables = {name: FAMILIES[name].compute(cell, settings=settings) for name in names}
    return [reading.row(tables[reading.family]) for reading in READINGS]


def measured(worlds: int) -> dict[float, list[pl.DataFrame]]:
    """Return for every strength one frame a reading, with one row a world."""
    found = {}
    with ProcessPoolExecutor(usable_cores()) as pool:
        for beta in STRENGTHS:
            rows = list(pool.map(partial(measure, beta=beta), range(worlds), chunksize=20))
            found[beta] = [pl.DataFrame(list(of_reading)) for of_reading in zip(*rows)]
            print(f"strength {beta}: {worlds} worlds", file=sys.stderr)
    return found


def coverage(frame: pl.DataFrame, truth: float) -> float:
    """Return the share of intervals that hold the truth; a world without an interval does not."""
    value = frame["value"].mean() if np.isnan(truth) else truth
    slack = 1e-9 * max(1.0, abs(value))
    return float(((frame["ci_low"] <= value + slack) & (frame["ci_high"] >= value - slack)).mean())


def rejected(frame: pl.DataFrame) -> float:
    """Return how often p is at most 5%."""
    return float((frame["p"] <= LEVEL).mean())


def excess(p: np.ndarray) -> float:
    """Return by how much the share of p below a level exceeds the level, at most: 0 for a valid test."""
    levels = np.linspace(0.01, 1, 100)
    return float(max((p[:, None] <= levels + 1e-12).mean(axis=0) - levels))


def line(reading: Calibrated, frames: dict[float, pl.DataFrame]) -> str:
    """Return the row of a reading: coverage by strength, then level and power."""
    held = " ".join(f"{100 * coverage(frames[b], reading.truth(b)):6.1f}" for b in STRENGTHS)
    if not reading.tested:
        return f"{reading.title:36} {held}"
    power = " ".join(f"{100 * rejected(frames[b]):6.1f}" for b in STRENGTHS)
    p = frames[0.0]["p"].to_numpy()
    uniform = stats.kstest(p, "uniform").statistic
    return f"{reading.title:36} {held}   {power}   {uniform:5.3f} {excess(p):6.3f}"


def main() -> None:
    """Print the table."""
    worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    found = measured(worlds)
    error = 1.96 * np.sqrt(0.05 * 0.95 / worlds)
    print(f"{worlds} worlds of {IMAGES} images, two groups; 95.0 and 5.0 are right to about ±{100 * error:.1f}")
    print(f"KS: distance of p from uniform at strength 0 (5% critical: {1.358 / np.sqrt(worlds):.3f})")
    strengths = " ".join(f"{beta:6}" for beta in STRENGTHS)
    print(f"{'':36} {'% of intervals that hold the truth':31} {'% with p <= 0.05':27}    KS excess")
    print(f"{'planted strength':36} {strengths}   {strengths}")
    for i, reading in enumerate(READINGS):
        print(line(reading, {beta: found[beta][i] for beta in STRENGTHS}))


if __name__ == "__main__":
    main()
