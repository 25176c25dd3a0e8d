"""Zero-shot accuracy at ImageNet's size: time and memory of the plan and of the whole audit, without a model.

Run `python -m benchmarks.utility`: 50,000 files in 1,000 folders named by wnids, as ImageNet's validation images lie,
vectors of 512 numbers for them and for the 80,000 prompts of open_clip's names and templates, as clip-retrieval writes
them; about 2 GB of disk. Pictures are small, since decoding is `benchmarks.ingestion`'s, and embedding
`benchmarks.encoders`'. Seconds are of the processor, in all processes of a command; wall time beside them.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import yaml
from PIL import Image

from plumbline.catalog.suites import ZeroShotSettings, imagenet_names, zero_shot_suite

WIDTH = 512
PER_CLASS = 50
SIDE = 64


def write_folder(root: Path, wnids: list[str]) -> list[str]:
    """Write each class its images, no two of them alike, and return their paths."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG")
    data, paths = buffer.getvalue(), []
    for place, wnid in enumerate(wnids):
        (root / wnid).mkdir(parents=True)
        for number in range(place * PER_CLASS, (place + 1) * PER_CLASS):
            path = f"{wnid}/ILSVRC2012_val_{number + 1:08d}.JPEG"
            (root / path).write_bytes(data[:2] + b"\xff\xfe\0\x0a%08d" % number + data[2:])
            paths.append(path)
    return paths


def write_vectors(root: Path, wnids: list[str], paths: list[str]) -> None:
    """Write image and text embeddings: a direction a class, and noise in which most images are recognised."""
    rng = np.random.default_rng(1)
    classes = rng.normal(size=(len(wnids), WIDTH)).astype(np.float32)
    suite = zero_shot_suite(wnids, ZeroShotSettings())
    of_text = dict(zip(suite.embedded, np.repeat(np.arange(len(wnids)), len(suite.ensemble))))  # two names stand twice
    kinds = {
        "img": ("image_path", paths, np.repeat(classes, PER_CLASS, axis=0), 6.0),
        "text": ("caption", list(of_text), classes[list(of_text.values())], 1.0),
    }
    for kind, (column, names, directions, noise) in kinds.items():
        vectors = directions + noise * rng.standard_normal(directions.shape, dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        folder = root / kind
        for sub in (f"{kind}_emb", "metadata"):
            (folder / sub).mkdir(parents=True)
        np.save(folder / f"{kind}_emb" / f"{kind}_emb_0.npy", vectors)
        pl.DataFrame({column: names}).write_parquet(folder / "metadata" / "metadata_0.parquet")


def run(command: str, root: Path) -> None:
    """Run a command of Plumbline on the audit file, and print what it took."""
    arguments = ["--config", str(root / "audit.yaml")]
    before = time.monotonic()
    process = subprocess.Popen(
        [Path(sys.executable).with_name("plumbline"), command, *arguments],
        env=os.environ | {"PLUMBLINE_HOME": str(root / "home")},
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"plumbline {command} failed")
    print(
        f"plumbline {command}: {used.ru_utime + used.ru_stime:.0f} s of the processor, "
        f"{time.monotonic() - before:.0f} s; largest process {used.ru_maxrss / 1024:,.0f} MiB"
    )


def main() -> None:
    """Write the folder and its vectors, plan and audit them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=1000, help="of ImageNet's, the first")
    classes = parser.parse_args().classes
    wnids = [*imagenet_names()][:classes]
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        paths = write_folder(root / "val", wnids)
        write_vectors(root / "vectors", wnids, paths)
        audit = {
            "datasets": {"imagenet": {"reader": "image_folder", "root": str(root / "val")}},
            "encoders": {
                "vectors": {
                    "address": f"stored:{root / 'vectors' / 'img'}",
                    "embeddings": {"texts": f"stored:{root / 'vectors' / 'text'}"},
                }
            },
            "audit": [{"datasets": "all"}],
        }
        (root / "audit.yaml").write_text(yaml.safe_dump(audit))
        run("plan", root)
        run("audit", root)
        table = pl.read_parquet(next((root / "home" / "lake" / "metric_table").glob("*.parquet")))
        print(table.select("metric", "definition", "value", "ci_low", "ci_high", "n"))


if __name__ == "__main__":
    main()
