"""Every metric family on a grid of 8 encoders x 4 datasets: `python -m benchmarks.statistics.grid`.

Each cell has 10,954 images with random answers: what is timed is the statistics, as an audit calls them, with 10,000
resamples and permutations. Cells are made and dropped one by one. Two cores are used in both ways there are: by one
process whose families use all cores, as in an audit, and by one process a core that take whole cells in turn, as
Dagster's multiprocess executor does. Peak memory is that of the processes together, with all their imports.
"""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import polars as pl

from benchmarks.statistics.contest import IMAGES, RESAMPLES, Budget, timed
from benchmarks.statistics.memory import in_a_process, peak_mib
from plumbline.catalog.suites import GENDERS, Suite, load_suite, suite_names
from plumbline.concurrency import usable_cores
from plumbline.metrics import Cell, MetricSettings, SuiteLogits
from plumbline.metrics.registry import FAMILIES

ENCODERS, DATASETS = 8, 4
SECONDS, MIB = 60, 4 * 1024
DIMENSIONS = 64


def run() -> list[Budget]:
    """Return what the whole grid took."""
    alone = in_a_process(__name__)
    with ThreadPoolExecutor(usable_cores()) as pool:
        apart = list(pool.map(lambda part: in_a_process(__name__, part, usable_cores()), range(usable_cores())))
    rows = sum(part["rows"] for part in apart)
    title = f"Grid of {ENCODERS} encoders x {DATASETS} datasets, {IMAGES:,} images each, {rows:,} rows"
    longest = max(sum(part["seconds"].values()) for part in apart)
    parts = alone["seconds"] | {
        "all of these, in one process whose families use all cores": sum(alone["seconds"].values()),
        "processor time of that process, making the cells included": alone["cpu"],
    }
    return [Budget(title, longest, SECONDS, sum(part["mib"] for part in apart), MIB, parts)]


def read_suites() -> list[Suite]:
    """Return every suite that some family reads, the Trident ones over FairFace's races."""
    wanted = {family for each in FAMILIES.values() for family in each.needs}
    suites = [load_suite(name, classes="fairface" if "trident" in name else None) for name in suite_names()]
    return [suite for suite in suites if suite.family in wanted]


def cells(images: int = IMAGES, *, suites: Sequence[Suite] | None = None) -> Iterator[Cell]:
    """Draw the cells of the grid: 7 races and 2 genders, images whose answers depend on both a little.

    Parameters
    ----------
    images : int
        Of each cell.
    suites : sequence of Suite, optional
        What the encoders are asked; by default all that some family reads.
    """
    every = read_suites()
    races = next(suite.class_labels for suite in every if suite.id == "trident")
    for dataset in range(DATASETS):
        rng = np.random.default_rng([0, dataset])
        gender, race = rng.integers(0, len(GENDERS), images), rng.integers(0, len(races), images)
        records = pl.DataFrame(
            {
                "image_id": [f"{i:016x}" for i in rng.integers(0, 2**63, images)],
                "gender": np.array(GENDERS)[gender],
                "race": np.array(races)[race],
                "auto_gender": rng.choice(GENDERS, images),
                "auto_gender_margin": rng.random(images),
            }
        )
        for encoder in range(ENCODERS):
            drawn = np.random.default_rng([1, dataset, encoder])
            faces = drawn.normal(size=(images, DIMENSIONS)).astype(np.float32)
            faces[:, 0] += 0.5 * gender
            faces[:, 1] += 0.2 * race
            answers = {suite.id: answer(suite, faces, drawn) for suite in suites or every}
            yield Cell(f"encoder {encoder}", f"dataset {dataset}", records, logits=answers, keep={})


def answer(suite: Suite, faces: np.ndarray, rng: np.random.Generator) -> SuiteLogits:
    """Draw the responses of one encoder to one suite."""
    texts = rng.normal(size=(len(suite.candidates), DIMENSIONS)).astype(np.float32)
    logits = faces @ texts.T
    cosine = logits / np.linalg.norm(faces, axis=1, keepdims=True) / np.linalg.norm(texts, axis=1)
    return SuiteLogits(suite, logits, cosine, logit_scale=100.0)


def main() -> None:
    """Compute every family of every cell; print rows, seconds a family, processor time and peak memory as JSON."""
    settings = MetricSettings(resamples=RESAMPLES, permutations=RESAMPLES)
    seconds: dict[str, float] = defaultdict(float)
    rows, begun = 0, time.process_time()
    part, of = (int(argument) for argument in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 1)
    if of > 1:
        own = sorted(os.sched_getaffinity(0))[part]
        os.sched_setaffinity(0, {own})
    for cell in islice(cells(), part, None, of):
        for family in FAMILIES.values():
            took, frame = timed(lambda cell=cell, family=family: family.compute(cell, settings=settings))
            seconds[family.name] += took
            rows += frame.height
    cpu = time.process_time() - begun
    print(json.dumps({"rows": rows, "seconds": seconds, "cpu": cpu, "mib": peak_mib()}))


if __name__ == "__main__":
    main()
