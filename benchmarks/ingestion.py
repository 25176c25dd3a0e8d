"""Files per second of ingestion, beside the plain loop that learns less about the same files in the same run.

Run `python -m benchmarks.ingestion [--files 100000] [--workers 2]`; 100,000 files take about 2 GB of disk. The loop,
in one thread, opens each file, reads it, hashes it and lets Pillow look at its header, so a JPEG that ends in the
middle passes; ingestion also maps labels, proves each file whole, finds duplicates and makes the tables. Two
folders: files as one encoder writes them, of one size and with the usual tables, as face datasets have them, and
files of which each has another size or its own tables. Each measurement has a process of its own, so that memory
which one way has taken is not counted as another's. Rounds alternate and the fastest of each counts, so that other
load decides less.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import Ingested
from plumbline.datasets.registry import reader_for

PICTURES = 200
LOOP = "open, read, sha256, header"


def picture(rng: np.random.Generator, side: int) -> Image.Image:
    """Draw smooth shapes under light noise, about as hard to compress as a face."""
    coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((side, side))
    noisy = np.asarray(coarse).astype(np.int16) + rng.integers(-12, 13, (side, side, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def encoded(rng: np.random.Generator, *, own_tables: bool) -> list[bytes]:
    """Encode the pictures, 10 to 30 KB each."""
    files = []
    for _ in range(PICTURES):
        buffer = io.BytesIO()
        side = int(rng.integers(200, 300)) if own_tables else 224
        picture(rng, side).save(buffer, "JPEG", quality=90, optimize=own_tables)
        files.append(buffer.getvalue())
    return files


def write_utkface(root: Path, *, files: int, own_tables: bool, seed: int = 0) -> None:
    """Write the pictures again and again, each time with another comment, so that no two files are the same."""
    pictures = encoded(np.random.default_rng(seed), own_tables=own_tables)
    root.mkdir()
    for number in range(files):
        data, comment = pictures[number % PICTURES], b"\xff\xfe\0\x0a%08d" % number
        path = root / f"{number % 117}_{number % 2}_{number % 5}_{number:017d}.jpg"
        path.write_bytes(data[:2] + comment + data[2:])


def hash_and_header(root: Path, paths: list[Path]) -> None:
    """Do the least that a dataset's table needs."""
    for path in paths:
        with path.open("rb") as file:
            data = file.read()
        hashlib.sha256(data).hexdigest()
        Image.open(io.BytesIO(data)).close()


def ingest_all(root: Path, paths: list[Path], *, workers: int | None) -> None:
    """Ingest, with the progress that the pipeline shows."""
    seen: list[int] = []
    ingested: Ingested = ingest(
        reader_for("utkface"), root, dataset="benchmark", progress=lambda done, _: seen.append(done), workers=workers
    )
    accepted, steps = ingested.records.height, np.diff([0, *seen])
    if accepted != len(paths) or steps.max() > 300:
        sys.exit(f"accepted {accepted} of {len(paths)}, {steps.max()} files between two words of progress")


class Taken(NamedTuple):
    """What one measurement took: wall and processor time in seconds, and memory in MiB beyond that before it.

    The processor time hardly notices what else the machine does.
    """

    wall: float
    processor: float
    memory: float


def peak_mebibytes() -> float:
    """Return the most memory that this process has held. Not `ru_maxrss`, which a new process takes from its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


Way = Callable[[Path, list[Path]], None]


def measured(way: Way, root: Path) -> Taken:
    """Measure one way in this process; what both need is loaded and the folder is listed before the clock starts."""
    paths = sorted(root.iterdir())
    hash_and_header(root, paths[:PICTURES])
    before, start, used = peak_mebibytes(), time.perf_counter(), time.process_time()
    way(root, paths)
    return Taken(time.perf_counter() - start, time.process_time() - used, peak_mebibytes() - before)


def in_its_own_process(way: Way, root: Path) -> Taken:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as child:
        return child.submit(measured, way, root).result()


def _best(rounds: list[Taken]) -> Taken:
    """Return the least time and the most memory."""
    wall, processor, memory = zip(*rounds)
    return Taken(min(wall), min(processor), max(memory))


def compare(root: Path, *, name: str, workers: int | None, rounds: int) -> None:
    """Print files per second of each way, and how many times as fast as the loop it is."""
    ways: dict[str, Way] = {
        LOOP: hash_and_header,
        "ingest": partial(ingest_all, workers=workers),
        "ingest, one thread": partial(ingest_all, workers=1),
    }
    taken = [{way: in_its_own_process(work, root) for way, work in ways.items()} for _ in range(rounds)]
    best = {way: _best([one[way] for one in taken]) for way in ways}
    sizes = [path.stat().st_size for path in root.iterdir()]
    print(f"{name}: {len(sizes):,} JPEGs of {np.mean(sizes) / 1000:.0f} KB, fastest of {rounds} rounds")
    for way, (wall, processor, memory) in best.items():
        print(
            f"  {way:<28}{len(sizes) / wall:>8,.0f} files/s   {best[LOOP].wall / wall:.2f} × the loop"
            f"   {processor / len(sizes) * 1e6:>4.0f} µs of processor a file   {memory:>4.0f} MiB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=None, help="threads of ingestion; one per core without it")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for name, own_tables in (("One encoder", False), ("Sizes and tables of their own", True)):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "utkface"
            write_utkface(root, files=options.files, own_tables=own_tables)
            compare(root, name=name, workers=options.workers, rounds=options.rounds)


if __name__ == "__main__":
    main()
