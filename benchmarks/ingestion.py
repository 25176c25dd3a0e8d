"""Files per second of ingestion, beside two plain loops over the same files in the same run.

Run `python -m benchmarks.ingestion [--files 3000] [--workers 2]`. `hash + verify` reads a file, hashes it and
lets Pillow look at its header, so a JPEG that ends in the middle passes. `hash + load` decodes it in full, the
plain way to find what ingestion finds. Rounds alternate and the fastest of each counts, so that other load
decides less.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from plumbline.datasets import ingest, reader_for

SIDE = 200


def write_utkface(root: Path, *, files: int, seed: int = 0) -> list[Path]:
    """Write JPEGs of 200 × 200 pixels, smooth shapes under light noise, about the size of a UTKFace file."""
    rng = np.random.default_rng(seed)
    paths = []
    for number in range(files):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((SIDE, SIDE))
        noisy = np.asarray(coarse).astype(np.int16) + rng.integers(-6, 7, (SIDE, SIDE, 3))
        path = root / f"{number % 117}_{number % 2}_{number % 5}_{number:017d}.jpg"
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=85)
        paths.append(path)
    return paths


def hash_and_verify(paths: list[Path]) -> None:
    """Look at each header, as Pillow's `verify` does for JPEG."""
    for path in paths:
        data = path.read_bytes()
        hashlib.sha256(data).hexdigest()
        Image.open(io.BytesIO(data)).verify()


def hash_and_load(paths: list[Path]) -> None:
    """Decode each file in full."""
    for path in paths:
        data = path.read_bytes()
        hashlib.sha256(data).hexdigest()
        Image.open(io.BytesIO(data)).load()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        paths = write_utkface(root, files=options.files)
        reader = reader_for("utkface")
        ways: dict[str, Callable[[], object]] = {
            "hash + verify, one thread": lambda: hash_and_verify(paths),
            "hash + load, one thread": lambda: hash_and_load(paths),
            "ingest": lambda: ingest(reader, root, dataset="benchmark", workers=options.workers),
            "ingest, one thread": lambda: ingest(reader, root, dataset="benchmark", workers=1),
        }
        rounds = [{name: seconds(work) for name, work in ways.items()} for _ in range(options.rounds)]
    best = {name: min(taken[name] for taken in rounds) for name in ways}
    print(f"{options.files} JPEGs of {SIDE} × {SIDE}, fastest of {options.rounds} rounds")
    for name, taken in best.items():
        print(f"  {name:<28}{options.files / taken:>8.0f} files/s   ingest: {taken / best['ingest']:.2f} ×")


if __name__ == "__main__":
    main()
