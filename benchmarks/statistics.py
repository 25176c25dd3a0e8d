"""Intervals from counts against intervals from images: `python -m benchmarks.statistics`.

Max Skew over 7 races on 10,954 images (FairFace's validation split), 10,000 resamples. The fast way also gives the
harm rate's interval; the peers give Max Skew only. The pandas loop is run on a few resamples and scaled up.
"""

import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
from scipy import stats

from plumbline.metrics import Cell, MetricSettings, SuiteLogits, harm_rate
from plumbline.metrics.registry import metric_families
from plumbline.metrics.skew import skew_values
from plumbline.statistics import bca, jackknife_tables, percentile, resample_tables
from plumbline.tables.suites import load_suite

IMAGES, RESAMPLES, PANDAS_RESAMPLES = 10_954, 10_000, 40
RATES = np.array([0.13, 0.11, 0.10, 0.09, 0.12, 0.10, 0.08])


def images(rng: np.random.Generator) -> list[np.ndarray]:
    """Draw each race's images as 1 for the event, 0 for not."""
    sizes = np.full(7, IMAGES // 7) + (np.arange(7) < IMAGES % 7)
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


def fast(table: np.ndarray, method: str) -> tuple[float, float]:
    """Return the interval of Max Skew, having computed the harm rate's too."""
    harm_rate(table[:, 0], table.sum(axis=1))
    replicates = skew_of_tables(resample_tables(table, resamples=RESAMPLES, rng=np.random.default_rng(1)))
    if method == "percentile":
        interval = percentile(replicates)
    else:
        acceleration = jackknife_tables(table, skew_of_tables).acceleration
        interval = bca(float(skew_of_tables(table)), replicates, acceleration=acceleration)
    return interval.low, interval.high


def by_scipy(groups: list[np.ndarray], method: str, batch: int | None) -> tuple[float, float]:
    """Return the same interval by `scipy.stats.bootstrap` over images, vectorised."""
    result = stats.bootstrap(
        groups,
        skew_of_images,
        n_resamples=RESAMPLES,
        batch=batch,
        method=method,
        rng=np.random.default_rng(2),
    )
    return result.confidence_interval.low, result.confidence_interval.high


def by_pandas(frame: pd.DataFrame, resamples: int) -> tuple[float, float]:
    """Return the percentile interval by resampling a data frame's rows within races."""
    values = []
    for seed in range(resamples):
        drawn = frame.groupby("race").sample(frac=1, replace=True, random_state=seed)
        values.append(skew_of_rates(drawn.groupby("race")["event"].mean().to_numpy()))
    return tuple(np.quantile(values, [0.025, 0.975]))


def timed(call: Callable[[], object], repeats: int = 1) -> tuple[float, object]:
    """Return the shortest of some runs in seconds, and the result."""
    shortest = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest, result


def whole_cell(rng: np.random.Generator) -> Cell:
    """Draw a cell of FairFace's size: 7 races, 4 outcome suites, 15 probes, composite probes."""
    suites = [load_suite(name) for name in ("crime", "crime_pooled", "communion", "agency")]
    suites += [load_suite(name, classes="fairface") for name in ("trident", "trident_composite")]
    genders, races = ("man", "woman"), suites[4].class_labels
    records = pl.DataFrame(
        {
            "gender": rng.choice(genders, IMAGES),
            "race": rng.choice(races, IMAGES),
            "auto_gender": rng.choice(genders, IMAGES),
            "auto_gender_margin": rng.random(IMAGES),
        }
    )
    faces = rng.normal(size=(IMAGES, 64)).astype(np.float32)
    logits = {}
    for suite in suites:
        texts = rng.normal(size=(len(suite.candidates), 64)).astype(np.float32)
        cosine = faces @ texts.T / np.linalg.norm(faces, axis=1)[:, None] / np.linalg.norm(texts, axis=1)
        logits[suite.id] = SuiteLogits(suite, faces @ texts.T, cosine, logit_scale=100.0)
    return Cell(model="encoder", dataset="fairface", records=records, logits=logits, keep={})


def main() -> None:
    """Print times, ratios and whether the results agree."""
    groups = images(np.random.default_rng(0))
    table = np.array([[int(group.sum()), int(len(group) - group.sum())] for group in groups])
    frame = pd.DataFrame(
        {"race": np.repeat(np.arange(7), table.sum(axis=1)), "event": np.concatenate(groups)}
    )
    replicates = skew_of_tables(resample_tables(table, resamples=RESAMPLES, rng=np.random.default_rng(3)))
    # Ends of two independent runs of 10,000 differ by some hundredths of a standard error.
    allowed = 0.12 * replicates.std()
    print(f"Max Skew {skew_of_tables(table):.4f}, {IMAGES:,} images, 7 races, {RESAMPLES:,} resamples")
    for method in ("percentile", "BCa"):
        fast(table, method)
        seconds, ours = timed(lambda method=method: fast(table, method), repeats=5)
        print(f"{method:>10}:  from counts      {seconds * 1e3:8.1f} ms  [{ours[0]:.4f}, {ours[1]:.4f}]")
        for batch, how in ((100, "scipy, batch=100 "), (None, "scipy, by default")):
            slow, theirs = timed(lambda method=method, batch=batch: by_scipy(groups, method, batch))
            agree = bool(np.abs(np.subtract(ours, theirs)).max() < allowed)
            print(f"{'':>12}{how} {slow * 1e3:8.1f} ms  [{theirs[0]:.4f}, {theirs[1]:.4f}]", end="")
            print(f"  {slow / seconds:,.0f}x, agree: {agree}")
        if method == "percentile":
            part, theirs = timed(lambda: by_pandas(frame, PANDAS_RESAMPLES))
            whole = part * RESAMPLES / PANDAS_RESAMPLES
            print(
                f"{'':>10}  pandas loop {whole * 1e3:8.1f} ms  (scaled up from {PANDAS_RESAMPLES} resamples)",
                end="",
            )
            print(f"  {whole / seconds:,.0f}x")
    cell = whole_cell(np.random.default_rng(4))
    for family in metric_families():
        seconds, rows = timed(lambda family=family: family.compute(cell, settings=MetricSettings()))
        print(f"whole cell, {family.name}: {seconds:.1f} s, {rows.height} rows")


if __name__ == "__main__":
    main()
