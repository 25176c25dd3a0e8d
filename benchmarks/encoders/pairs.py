"""BridgeTower: each tower once, and only the cross-modal layers for a pair, against the model's own forward pass."""

from pathlib import Path

import numpy as np
import torch
from upath import UPath

from benchmarks.encoders.materials import Images, load, timed
from plumbline.catalog.suites import Suite
from plumbline.encoders.pairs import score_suites
from plumbline.images.decoding import decode
from plumbline.storage import ShardCache

IMAGES, PEER_IMAGES = 64, 8


def run(checkpoint: Path, images: Images, suite: Suite, folder: UPath) -> None:
    """Print pairs a second, the ratio and the largest difference."""
    encoder, (paths, ids), texts = load(checkpoint), images, list(suite.texts)
    peer = released(checkpoint)

    def own() -> np.ndarray:
        return np.concatenate([peer(path, texts) for path in paths[:PEER_IMAGES]])

    def ours() -> np.ndarray:
        cache, options = ShardCache(folder / "pairs"), {"shard_rows": 512, "batch_rows": 16}
        scored = score_suites(encoder, paths[:IMAGES], ids[:IMAGES], {"trident": texts}, cache, **options)
        return scored.suites["trident"].array

    fast, logits = timed(ours)
    slow, expected = timed(own)
    slow *= IMAGES / PEER_IMAGES
    n = IMAGES * len(texts)
    print(f"\n{checkpoint.name}: {IMAGES} images, {len(texts)} prompts, {encoder.parameters:,} parameters, CPU")
    print(f"  towers once          {n / fast:8.0f} pairs/s")
    print(f"  the model's own      {n / slow:8.0f} pairs/s   {slow / fast:.1f} x   ({PEER_IMAGES} images)")
    apart, most = np.abs(expected - logits[:PEER_IMAGES]).max(), np.abs(expected).max()
    print(f"  largest difference   {apart:.1e} of logits up to {most:.0f}")


def released(checkpoint: Path):
    """Return the released way: from a path and texts to (1, m) matching logits of one image with all prompts."""
    import transformers as t

    model = t.BridgeTowerForImageAndTextRetrieval.from_pretrained(checkpoint).eval()
    images = t.BridgeTowerImageProcessorPil.from_pretrained(checkpoint)
    processor = t.BridgeTowerProcessor(images, t.AutoTokenizer.from_pretrained(checkpoint))

    def score(path: Path, texts: list[str]) -> np.ndarray:
        inputs = processor([decode(path)] * len(texts), texts, padding=True, return_tensors="pt")
        with torch.inference_mode():
            return model(**inputs).logits[None, :, 1].numpy()

    return score
