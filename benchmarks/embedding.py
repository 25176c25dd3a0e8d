"""Fifteen probes on a folder of images: `python -m benchmarks.embedding`.

The peer has the shape of the released Trident code: for every probe it goes through all images again, decodes and
embeds one at a time, embeds the candidate texts with it, and takes the dot products. Here: every image once, in
batches, and every prompt once; a probe more is a text and a matrix product. Both use the same planted checkpoint,
the same files and the same transform. The peer runs on fewer images and is scaled up; logits are compared there.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from upath import UPath

from plumbline.datasets import ingest, reader_for
from plumbline.encoders.embedding import embed_images, embed_texts
from plumbline.encoders.encoder import Placement
from plumbline.encoders.loading import checkpoint_files, load_encoder
from plumbline.images import decode
from plumbline.storage import ShardCache
from plumbline.tables.suites import load_suite
from plumbline.world.folders import ensure

PROJECT = Path(__file__).parent.parent
CHECKPOINT = "local-dir:plumbline/world/checkpoints/large-atlas-3k"
PEER_IMAGES = 40


def main() -> None:
    """Print both times, the ratio and the largest difference of logits."""
    suite = load_suite("trident", classes="fairface")
    with tempfile.TemporaryDirectory() as folder:
        root = ensure("fairface", Path(folder) / "world")
        records = ingest(reader_for("fairface"), root, dataset="fairface").records
        files = checkpoint_files("planted", CHECKPOINT, project=PROJECT, fetched=Path(folder))
        encoder = load_encoder(files, placement=Placement())
        paths, ids = [root / p for p in records["path"]], records["image_id"].to_list()

        def whole(cache: ShardCache) -> np.ndarray:
            images = embed_images(encoder, paths, ids, cache, shard_rows=512, batch_rows=64)
            texts = embed_texts(encoder, suite.texts, cache, batch_rows=64)
            return images.array @ texts.array.T

        whole(ShardCache(UPath(folder) / "warm-up"))
        cache = ShardCache(UPath(folder) / "cache")
        fast, logits = timed(lambda: whole(cache))
        again, _ = timed(lambda: whole(cache))
        slow, peer = timed(lambda: one_at_a_time(encoder, paths[:PEER_IMAGES], suite))
    slow *= len(paths) / PEER_IMAGES
    print(f"{len(paths)} images, 15 probes, {encoder.parameters:,} parameters, CPU")
    print(f"  once, in batches   {fast:8.2f} s   {len(paths) / fast:8.0f} images/s")
    print(f"  found in the cache {again:8.2f} s")
    print(f"  one at a time      {slow:8.2f} s   (scaled up from {PEER_IMAGES} images)")
    print(f"  ratio              {slow / fast:8.0f} x")
    print(f"  largest difference {np.abs(peer - logits[:PEER_IMAGES]).max():.1e}")


def timed(call) -> tuple[float, np.ndarray]:
    """Return seconds and the result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def one_at_a_time(encoder, paths, suite) -> np.ndarray:
    """Return the (n, m) logits, gathered scenario by scenario as the released code runs them."""
    classes, probes = suite.columns("class"), suite.columns("negative", "neutral", "positive")
    logits = np.empty((len(paths), len(suite.texts)), dtype=np.float32)
    for probe in probes:
        columns = [*classes, probe]
        for i, path in enumerate(paths):
            image = encoder.embed_images(encoder.prepare(decode(path))[None])
            logits[i, columns] = image[0] @ encoder.embed_texts([suite.texts[c] for c in columns]).T
    return logits


if __name__ == "__main__":
    main()
