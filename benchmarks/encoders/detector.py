"""OWLv2: one pass of the image tower for all probes, against the model's own forward pass for each probe."""

from pathlib import Path

import numpy as np
import torch
from upath import UPath

from benchmarks.encoders.materials import Images, load, timed
from plumbline.catalog.suites import Suite
from plumbline.encoders.embedding import embed_images, embed_texts
from plumbline.images.decoding import decode
from plumbline.storage import ShardCache

IMAGES, PEER_IMAGES = 64, 8


def run(checkpoint: Path, images: Images, suite: Suite, folder: UPath) -> None:
    """Print images a second, the ratio, passes of the image tower and the largest difference."""
    encoder, (paths, ids) = load(checkpoint), images
    own, own_passes = released(checkpoint, suite)
    tower = encoder._model.owlv2.vision_model
    seen: list[int] = []
    tower.register_forward_pre_hook(lambda *_: seen.append(1))

    def ours() -> np.ndarray:
        cache, options = ShardCache(folder / "detector"), {"shard_rows": 512, "batch_rows": 1}
        rows = embed_images(encoder, paths[:IMAGES], ids[:IMAGES], cache, **options).array
        return rows @ embed_texts(encoder, suite.texts, cache).array.T

    fast, logits = timed(ours)
    slow, expected = timed(lambda: np.stack([own(path) for path in paths[:PEER_IMAGES]]))
    slow *= IMAGES / PEER_IMAGES
    print(f"\n{checkpoint.name}: {IMAGES} images, 15 probes, {encoder.parameters:,} parameters, CPU")
    print(f"  one pass an image    {IMAGES / fast:8.1f} images/s   {len(seen) / IMAGES:.1f} passes of the image tower")
    print(f"  the model's own      {IMAGES / slow:8.1f} images/s   {own_passes} passes   {slow / fast:.1f} x")
    apart, most = np.abs(expected - logits[:PEER_IMAGES]).max(), np.abs(expected).max()
    print(f"  largest difference   {apart:.1e} of logits up to {most:.0f}")


def released(checkpoint: Path, suite: Suite):
    """Return the released way, from a path to (m,) patch-mean logits, and its passes an image."""
    import transformers as t

    model = t.Owlv2ForObjectDetection.from_pretrained(checkpoint).eval()
    images = t.Owlv2ImageProcessorPil.from_pretrained(checkpoint)
    processor = t.Owlv2Processor(images, t.AutoTokenizer.from_pretrained(checkpoint))
    classes, probes = suite.columns("class"), suite.columns("negative", "neutral", "positive")

    def score(path: Path) -> np.ndarray:
        logits = np.empty(len(suite.texts), dtype=np.float32)
        for probe in probes:
            columns = [*classes, probe]
            prompts = [suite.texts[column] for column in columns]
            inputs = processor(text=prompts, images=decode(path), return_tensors="pt")
            with torch.inference_mode():
                logits[columns] = model(**inputs).logits.mean(dim=1)[0].numpy()
        return logits

    return score, len(probes)
