"""Files per second of ingestion, beside the plain loop that learns less about the same files in the same run.

Run `python -m benchmarks.ingestion [--files 20000] [--workers 2]`; 100,000 files take about 2 GB of disk. The loop,
in one thread, opens each file, reads it, hashes it and lets Pillow look at its header, so a JPEG that ends in the
middle passes; ingestion also maps labels, proves each file whole, finds duplicates and makes the tables. Two
folders: files as one encoder writes them, of one size and with the usual tables, as face datasets have them, and
files of which each has another size or its own tables. Rounds alternate and the fastest of each counts, so that
other load decides less.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from plumbline.datasets import Ingested, ingest, reader_for

PICTURES = 200


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


def write_utkface(root: Path, *, files: int, own_tables: bool, seed: int = 0) -> list[Path]:
    """Write the pictures again and again, each time with another comment, so that no two files are the same."""
    pictures = encoded(np.random.default_rng(seed), own_tables=own_tables)
    root.mkdir()
    paths = []
    for number in range(files):
        data, comment = pictures[number % PICTURES], b"\xff\xfe\0\x0a%08d" % number
        paths.append(root / f"{number % 117}_{number % 2}_{number % 5}_{number:017d}.jpg")
        paths[-1].write_bytes(data[:2] + comment + data[2:])
    return paths


def hash_and_header(paths: list[Path]) -> None:
    """Do the least that a dataset's table needs."""
    for path in paths:
        with path.open("rb") as file:
            data = file.read()
        hashlib.sha256(data).hexdigest()
        Image.open(io.BytesIO(data)).close()


def ingest_all(root: Path, *, files: int, workers: int | None) -> None:
    """Ingest, with the progress that the pipeline shows."""
    seen: list[int] = []
    ingested: Ingested = ingest(
        reader_for("utkface"),
        root,
        dataset="benchmark",
        progress=lambda done, _: seen.append(done),
        workers=workers,
    )
    steps = np.diff([0, *seen])
    if ingested.records.height != files or steps.max() > 300:
        sys.exit(
            f"accepted {ingested.records.height} of {files}, {steps.max()} files between two words of progress"
        )


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall time and processor time; the second hardly notices what else the machine does."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def peak_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(root: Path, paths: list[Path], *, name: str, workers: int | None, rounds: int) -> None:
    hash_and_header(paths[:PICTURES])
    before = peak_mebibytes()
    ways: dict[str, Callable[[], object]] = {
        "ingest": lambda: ingest_all(root, files=len(paths), workers=workers),
        "ingest, one thread": lambda: ingest_all(root, files=len(paths), workers=1),
        "open, read, sha256, header": lambda: hash_and_header(paths),
    }
    taken = [{way: seconds(work) for way, work in ways.items()} for _ in range(rounds)]
    best = {way: [min(times) for times in zip(*(one[way] for one in taken))] for way in ways}
    kilobytes = sum(path.stat().st_size for path in paths) / len(paths) / 1000
    print(f"{name}: {len(paths)} JPEGs of {kilobytes:.0f} KB, fastest of {rounds} rounds")
    loop, _ = best["open, read, sha256, header"]
    for way, (wall, used) in best.items():
        print(
            f"  {way:<28}{len(paths) / wall:>8.0f} files/s   {loop / wall:.2f} × the loop"
            f"   {used / len(paths) * 1e6:>4.0f} µs of processor a file"
        )
    print(f"  memory: {peak_mebibytes() - before:.0f} MiB more at the peak than before")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for name, own_tables in (("One encoder", False), ("Sizes and tables of their own", True)):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "utkface"
            paths = write_utkface(root, files=options.files, own_tables=own_tables)
            measure(root, paths, name=name, workers=options.workers, rounds=options.rounds)


if __name__ == "__main__":
    main()
