"""Images and prompts through encoders, against plain loops: `python -m benchmarks.encoders` or `make bench-encoders`.

1. The engine with a planted model and with a random one of the size of ViT-B/32, against the released loop, against
   open_clip with a DataLoader, and against decoding alone and the forward pass alone.
2. Every type of encoder, the 15 probes against the library's own classes, probe by probe.
3. Decoding alone, on one core: the checkpoint's own preprocessing against the fast decoder.
4. Where there is a GPU: forward passes in bfloat16 of ViT-B/32 and ViT-L/14@336, as they are and compiled, with the
   share of its peak.

Both sides of a ratio use the same weights, files and batches. A peer that runs on fewer images is scaled up; results
are compared there. The exit status is not 0 where results of a type differ or its bar is missed.
"""

import sys
import tempfile
from pathlib import Path

import torch
from upath import UPath

from benchmarks.encoders import accelerator, contests, decoding, types
from benchmarks.encoders.materials import PLANTED, load, photographs, random_clip
from benchmarks.statistics.contest import judged
from plumbline.catalog.suites import load_suite
from plumbline.datasets.ingestion import ingest
from plumbline.datasets.registry import reader_for
from plumbline.world.folders import ensure

PHOTOGRAPHS = {"cpu": 160, "cuda": 20_000}


def main() -> int:
    """Print times, ratios and the largest differences of results; return 1 where a type differs or misses its bar."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    suite = load_suite("trident", classes="fairface")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = ensure("fairface", folder / "world")
        records = ingest(reader_for("fairface"), root, dataset="fairface").records
        faces = [root / path for path in records["path"]], records["image_id"].to_list()
        contests.run(PLANTED / "large-atlas-3k", faces, suite, UPath(folder), device=device)
        large = random_clip("ViT-B-32", folder / "vit-b-32")
        pictures = photographs(PHOTOGRAPHS[device], folder / "photographs")
        contests.run(large, pictures, suite, UPath(folder), device=device)
        status = judged([types.Types(faces, suite)])
        decoding.run()
        if device == "cuda":
            larger = random_clip("ViT-L-14-336", folder / "vit-l-14-336")
            for checkpoint, name in ((large, "ViT-B/32"), (larger, "ViT-L/14@336")):
                for compiled in (False, True):
                    accelerator.run(load(checkpoint, device=device, compiled=compiled), name, compiled=compiled)
        return status


if __name__ == "__main__":
    sys.exit(main())
