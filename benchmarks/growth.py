"""How time and memory grow with the records of a dataset: 1,000 to 1,000,000, each size in a process of its own.

Run `python -m benchmarks.growth [--sizes 1000 10000] [--tasks ingestion embeddings]`; the largest size takes 5 GB of
disk for a while. What grows with n is measured without any model: ingestion of tiny JPEGs, and beside it a plain loop
that reads and hashes the same files; embeddings that the benchmark gives itself, kept and found again shard by shard;
metric families of one cell, whose stored responses to all suites are random and are checked and read anew, for the
confounds of faces in sets of 120; what the report reads of a dataset. Times are of the processor, which hardly notices
what else the machine does. The exponent is the slope of log time over log n, of all sizes and of the last two: at most
1.1. Memory is the peak of the process, below 3 GiB. Beside them stands what `plumbline plan` forecasts for the images
of one encoder.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from upath import UPath

from benchmarks.ingestion import picture
from benchmarks.statistics.grid import DIMENSIONS, read_suites
from benchmarks.statistics.memory import in_a_process, peak_mib
from plumbline.blocks import blocks
from plumbline.catalog.suites import GENDERS
from plumbline.datasets.extended import label_shares
from plumbline.datasets.ingestion import dataset_digest, ingest
from plumbline.datasets.records import RECORD_SCHEMA
from plumbline.datasets.registry import reader_for
from plumbline.digests import digest_bytes, digest_file, digest_sequence
from plumbline.encoders.embedding import read_embedded
from plumbline.encoders.sharding import ShardedArray, ShardPlan, Span, fill
from plumbline.metrics import MetricSettings
from plumbline.metrics.cell import build_cell
from plumbline.metrics.registry import FAMILIES
from plumbline.parts import Parts, keeping
from plumbline.storage import Lake, ShardCache
from plumbline.storage.files import arrays_in_file

SIZES = (1_000, 10_000, 100_000, 1_000_000)
EXPONENT, MIB = 1.1, 3 * 1024
SHARD_ROWS, WIDTH = 2_048, 512
RACES = ("Asian", "Black", "Indian", "Others", "White")
# What `plumbline plan` assumes of a device.
IMAGES_PER_SECOND = 200

Work = Callable[[], object]


def ingestion(images: int, folder: Path, *, plainly: bool = False) -> Work:
    """Write pictures of 16 x 16, of which no two are the same, in folders of 1,000; `plainly` are read and hashed."""
    files, rng = [], np.random.default_rng(0)
    for _ in range(200):
        picture(rng, 16).save(buffer := io.BytesIO(), "JPEG")
        files.append(buffer.getvalue())
    for number in range(images):
        below = folder / f"{number // 1000:04d}"
        if number % 1000 == 0:
            below.mkdir()
        data, comment = files[number % len(files)], b"\xff\xfe\0\x0a%08d" % number
        path = below / f"{number % 117}_{number % 2}_{number % 5}_{number:017d}.jpg"
        path.write_bytes(data[:2] + comment + data[2:])

    def work() -> None:
        ingested = ingest(reader_for("utkface"), folder, dataset="benchmark")
        dataset_digest(ingested.records, ingested.quarantine)
        if ingested.records.height != images:
            sys.exit(f"accepted {ingested.records.height} of {images}")

    def plain_loop() -> None:
        for path in sorted(folder.rglob("*.jpg")):
            digest_bytes(path.read_bytes())

    return plain_loop if plainly else work


def embeddings(images: int, folder: Path) -> Work:
    """Keep vectors of 512 in shards, as an encoder without any cost gives them, and read them again."""
    ids = [f"{number:064x}" for number in range(images)]
    cache, plan = ShardCache(UPath(folder)), ShardPlan(images, SHARD_ROWS, 64)

    def sharded() -> ShardedArray:
        return ShardedArray("embedding", WIDTH, plan, lambda span: digest_sequence(span.of(ids)), cache)

    def batches(spans: list[Span]) -> AbstractContextManager[Iterator[Span]]:
        return nullcontext(iter(spans))

    def forward(batch: Span, _lacking: list[int]) -> np.ndarray:
        return np.full((len(batch), WIDTH), batch.start, dtype=np.float32)

    def work() -> None:
        made = sharded()
        fill([made], plan, cache, batches=batches, forward=forward, refuse=lambda *_: None, device="cpu")
        shards, rows = made.shards, len(made.array)
        del made
        found = sharded()
        if found.missing or rows != images or len(found.array) != images:
            sys.exit(f"{len(found.missing)} shards are missing")
        del found
        read_embedded(shards, cache)

    return work


def metrics(images: int, folder: Path, *, family: str) -> Work:
    """Store the responses of an encoder to all suites, drawn block by block, of which the family reads its own."""
    every = read_suites()
    texts, rng = list(dict.fromkeys(text for suite in every for text in suite.texts)), np.random.default_rng(0)
    races = next(suite.class_labels for suite in every if suite.id == "trident")
    gender, race = rng.integers(0, len(GENDERS), images), rng.integers(0, len(races), images)
    prompts = rng.normal(size=(len(texts), DIMENSIONS)).astype(np.float32)
    shapes = {"raw": [images, len(texts)], "image_norm": [images], "text_norm": [len(texts)]}
    ends = np.cumsum([0, *(4 * int(np.prod(shape)) for shape in shapes.values())]).tolist()
    header = json.dumps({
        name: {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
        for (name, shape), (start, end) in zip(shapes.items(), pairwise(ends))
    }).encode()  # fmt: skip
    norms, path = [], folder / "responses.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for rows in blocks(0, images, len(texts)):
            faces = rng.normal(size=(rows.stop - rows.start, DIMENSIONS)).astype(np.float32)
            faces[:, 0] += 0.5 * gender[rows]
            faces[:, 1] += 0.2 * race[rows]
            (faces @ prompts.T).tofile(file)
            norms.append(np.linalg.norm(faces, axis=1))
        for values in (*norms, np.linalg.norm(prompts, axis=1)):
            values.tofile(file)
    names: dict[str, Any] = {
        "image_id": [digest_bytes(b"%d" % i) for i in range(images)],
        "gender": np.array(GENDERS)[gender],
        "race": np.array(races)[race],
        "auto_gender": rng.choice(GENDERS, images),
        "auto_gender_margin": rng.random(images),
    }
    if family == "confound_metrics":
        names |= sets(images)
    records = pl.DataFrame(names)

    def work() -> None:
        digest_file(path)
        needs = FAMILIES[family].needs
        cell = build_cell(
            model="encoder", dataset="dataset", records=records, arrays=arrays_in_file(path), texts=texts,
            suites=[suite for suite in every if suite.family in needs], filters={},
            shared_space=True, scaled=True, logit_scale=100.0,
        )  # fmt: skip
        with keeping(Parts()):  # as an audit does, which names every part by what it is computed from
            FAMILIES[family].compute(cell, settings=MetricSettings())

    return work


def sets(images: int) -> dict[str, Any]:
    """Return labels of faces in sets of 120: each gender and three races at five levels of four things."""
    place = np.arange(images)
    return {
        "set_id": [f"{i // 120:06d}" for i in range(images)],
        "gender": np.array(GENDERS)[place % 2],
        "race": np.array(RACES)[place // 2 % 3],
        "level": [f"{i // 6 % 5 - 2}" for i in range(images)],
        "dimension": np.array(["age", "lighting", "pose", "smiling"])[place // 30 % 4],
    }


def report(images: int, folder: Path) -> Work:
    """Keep a dataset's records, of which the report shows counts and shares."""
    rng = np.random.default_rng(0)
    labels: dict[str, Any] = {
        "gender": rng.choice(["Man", "Woman"], images), "race": rng.choice(RACES, images),
        "age_group": rng.choice(["20-29", "30-39"], images),
    }  # fmt: skip
    names = {"image_id": [f"{i:064x}" for i in range(images)], "path": [f"{i}.jpg" for i in range(images)]}
    records = pl.DataFrame(names | labels).select(
        pl.col(name) if name in names | labels else pl.lit("x" if name == "dataset" else None, pl.String).alias(name)
        for name in RECORD_SCHEMA
    )
    lake = Lake(UPath(folder))
    manifest, declaration = lake.write_table("records", records), reader_for("utkface").declaration
    balance = {"gender": (0.4, 0.6), "race": (0.1, 0.3)}
    return lambda: label_shares(lake.read_table("records", manifest=manifest), declaration, balance, composite=False)


TASKS: dict[str, Callable[[int, Path], Work]] = {
    "ingestion": ingestion,
    "a plain loop": partial(ingestion, plainly=True),
    "embeddings": embeddings,
    **{name: partial(metrics, family=name) for name in FAMILIES},
    "report": report,
}


def measure(task: str, images: int) -> None:
    """Print seconds of one task at one size, by the clock and of the processor, and the peak of this process.

    Of the processor's seconds `system` are those that it spent in the kernel, such as on files.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = TASKS[task](images, Path(folder))
        begun, used, kernel = time.perf_counter(), time.process_time(), in_the_kernel()
        work()
        taken = {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - used}
        taken |= {"system": in_the_kernel() - kernel, "mib": peak_mib()}
    print(json.dumps(taken))


def in_the_kernel() -> float:
    """Return the seconds of the processor that this process has spent in the kernel."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime


def exponents(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """Return the slope of log time over log n of all sizes, and of the last two."""
    logs = np.log(sizes), np.log(seconds)
    slopes = [(later[1] - former[1]) / (later[0] - former[0]) for former, later in pairwise(zip(*logs))]
    return float(np.polyfit(*logs, 1)[0]), float(slopes[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--measure", action="store_true", help="one task at one size, in this process")
    options = parser.parse_args()
    if options.measure:
        return measure(options.tasks[0], options.sizes[0])
    sizes, missed = sorted(options.sizes), []
    print(f"{'':<24}" + "".join(f"{size:>22,}" for size in sizes) + "   exponent, last")
    for task in options.tasks:
        taken = [in_a_process("benchmarks.growth", "--measure", "--tasks", task, "--sizes", size) for size in sizes]
        row = "".join(f"{one['cpu']:>12.2f} s{one['mib']:>6,.0f} MiB"[-22:].rjust(22) for one in taken)
        slopes = exponents(sizes, [one["cpu"] for one in taken]) if len(sizes) > 1 else (0.0, 0.0)
        print(f"{task:<24}{row}   {slopes[0]:.2f}, {slopes[1]:.2f}", flush=True)
        if max(slopes) > EXPONENT or taken[-1]["mib"] > MIB:
            missed.append(task)
    forecast = "".join(f"{size / IMAGES_PER_SECOND:>12,.0f} s{size * WIDTH * 4 / 2**20:>6,.0f} MiB" for size in sizes)
    print(f"{'forecast of one encoder':<24}{forecast}   its images at {IMAGES_PER_SECOND}/s; on disk")
    return sys.exit(f"bar missed: {', '.join(missed)}") if missed else None


if __name__ == "__main__":
    main()
