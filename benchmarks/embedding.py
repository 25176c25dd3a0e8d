"""Images and prompts through encoders, against plain loops: `python -m benchmarks.embedding`.

1. Fifteen probes on a folder of images. The peer has the shape of the released Trident code: for every probe it goes
   through all images again, decodes and embeds one at a time, embeds the candidate texts with it, and takes the dot
   products. Here: every image once, in batches, and every prompt once; a probe more is a text and a matrix product.
2. The engine against a plain loop that decodes, transforms and embeds the same batches in one thread.
3. Decoding alone, on one core: the checkpoint's own preprocessing against the fast decoder, at CLIP's 224 pixels.
4. BridgeTower: pair scoring against the model's own forward pass of each image with all prompts.
5. OWLv2: one pass of the image tower for all probes against the model's own forward pass for each probe.

Both sides use the same planted checkpoint, files and transform. A peer that runs on fewer images is scaled up;
results are compared there. The last two run where the planted world has such a checkpoint.
"""

import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from upath import UPath

from plumbline.datasets import ingest, reader_for
from plumbline.encoders.embedding import embed_images, embed_texts
from plumbline.encoders.encoder import Crop, EncoderIdentity, Placement
from plumbline.encoders.fast_decoding import FastDecoder
from plumbline.encoders.image_batches import with_pillow
from plumbline.encoders.loading import checkpoint_files, load_encoder
from plumbline.encoders.pairs import score_suites
from plumbline.encoders.pixels import grey_levels
from plumbline.images import decode
from plumbline.storage import ShardCache
from plumbline.tables.suites import load_suite
from plumbline.world.folders import ensure

PROJECT = Path(__file__).parent.parent
CHECKPOINTS = PROJECT / "plumbline" / "world" / "checkpoints"
PEER_IMAGES = 40
PAIR_IMAGES, PAIR_PEER_IMAGES = 64, 8
SHARD_ROWS, BATCH_ROWS = 512, 64
TURNS = 3
JPEG_SIZE, JPEGS, CROP = (500, 375), 60, 224


def main() -> None:
    """Print times, ratios and the largest differences of results."""
    suite = load_suite("trident", classes="fairface")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = ensure("fairface", folder / "world")
        records = ingest(reader_for("fairface"), root, dataset="fairface").records
        paths, ids = [root / p for p in records["path"]], records["image_id"].to_list()
        encoder = load(CHECKPOINTS / "large-atlas-3k", folder)
        fifteen_probes(encoder, paths, ids, suite, folder)
        engine(encoder, paths, ids, folder)
        decoding()
        for checkpoint in sorted(CHECKPOINTS.glob("bridgetower-*"))[:1]:
            pair_scoring(checkpoint, paths, ids, suite, folder)
        for checkpoint in sorted(CHECKPOINTS.glob("owlv2-*"))[:1]:
            one_image_pass(checkpoint, paths, ids, suite, folder)


def load(checkpoint: Path, folder: Path):
    """Return the encoder of a folder, on the CPU."""
    files = checkpoint_files(checkpoint.name, f"local-dir:{checkpoint}", project=PROJECT, fetched=folder)
    return load_encoder(files, Placement())


def fifteen_probes(encoder, paths, ids, suite, folder) -> None:
    def whole(cache: ShardCache) -> np.ndarray:
        images = embed_images(encoder, paths, ids, cache, shard_rows=SHARD_ROWS, batch_rows=BATCH_ROWS)
        texts = embed_texts(encoder, suite.texts, cache)
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


def engine(encoder, paths, ids, folder) -> None:
    def plain() -> np.ndarray:
        arrays = []
        for first in range(0, len(paths), BATCH_ROWS):
            batch = [encoder.prepare(decode(path)) for path in paths[first : first + BATCH_ROWS]]
            arrays.append(encoder.embed_images(torch.stack(batch)))
        return np.concatenate(arrays)

    def ours(turn: int) -> np.ndarray:
        cache = ShardCache(UPath(folder) / f"engine-{turn}")
        return embed_images(encoder, paths, ids, cache, shard_rows=SHARD_ROWS, batch_rows=BATCH_ROWS).array

    # By turns, and the best of each: other work on the machine then falls on both.
    turns = [(timed(plain), timed(lambda turn=turn: ours(turn))) for turn in range(TURNS)]
    slow, fast = (min(turn[side][0] for turn in turns) for side in (0, 1))
    (_, peer), (_, array) = turns[0]
    print(f"The engine, files verified and shards committed, against a plain loop, {len(paths)} images")
    print(f"  plain loop         {slow:8.2f} s   {len(paths) / slow:8.0f} images/s")
    print(f"  engine             {fast:8.2f} s   {len(paths) / fast:8.0f} images/s   {slow / fast:.2f} x")
    print(f"  largest difference {np.abs(peer - array).max():.1e}")


class ClipPixels:
    """CLIP's preprocessing without a model: shorter side to 224 pixels, centre."""

    family, crop = "preprocessing", Crop(CROP, "bicubic")
    identity = EncoderIdentity("", "", "", "pillow", "")

    def __init__(self) -> None:
        from plumbline.torchvision_operators import declare_missing_operators

        declare_missing_operators()
        from torchvision.transforms import CenterCrop, InterpolationMode, Resize

        self._steps = (Resize(CROP, interpolation=InterpolationMode.BICUBIC), CenterCrop(CROP))

    def prepare(self, image: Image.Image) -> torch.Tensor:
        for step in self._steps:
            image = step(image)
        return grey_levels(image)


def decoding() -> None:
    files, pixels = [jpeg(seed) for seed in range(JPEGS)], ClipPixels()
    own, fast = with_pillow(pixels), FastDecoder(pixels)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = {
            name: timed(lambda way=way: [way(f) for f in files])
            for name, way in (("own", own), ("fast", fast))
        }
    finally:
        torch.set_num_threads(threads)
    slow, quick = rows["own"][0], rows["fast"][0]
    apart = max(
        int((a.int() - b.int()).abs().max()) for a, b in zip(rows["own"][1], rows["fast"][1], strict=True)
    )
    print(f"Decoding on one core, JPEG files of {JPEG_SIZE[0]} x {JPEG_SIZE[1]} pixels to {CROP} x {CROP}")
    print(f"  pillow             {JPEGS / slow:8.0f} images/s")
    print(
        f"  fast               {JPEGS / quick:8.0f} images/s   {slow / quick:.1f} x, at most {apart} grey levels apart"
    )


def jpeg(seed: int) -> bytes:
    """Return a photograph-like JPEG: smooth shapes with some grain."""
    rng, buffer = np.random.default_rng(seed), io.BytesIO()
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize(JPEG_SIZE, Image.Resampling.BICUBIC)).astype(int)
    grain = rng.integers(-8, 9, smooth.shape)
    Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def pair_scoring(checkpoint, paths, ids, suite, folder) -> None:
    import transformers as t

    encoder = load(checkpoint, folder)
    model = t.BridgeTowerForImageAndTextRetrieval.from_pretrained(checkpoint).eval()
    images = t.BridgeTowerImageProcessorPil.from_pretrained(checkpoint)
    processor = t.BridgeTowerProcessor(images, t.AutoTokenizer.from_pretrained(checkpoint))
    texts = list(suite.texts)

    def own() -> np.ndarray:
        rows = []
        for path in paths[:PAIR_PEER_IMAGES]:
            inputs = processor([decode(path)] * len(texts), texts, padding=True, return_tensors="pt")
            rows.append(model(**inputs).logits[:, 1])
        return torch.stack(rows).numpy()

    def ours() -> np.ndarray:
        cache, n = ShardCache(UPath(folder) / "pairs"), PAIR_IMAGES
        options = {"shard_rows": SHARD_ROWS, "batch_rows": 16}
        return score_suites(encoder, paths[:n], ids[:n], {"trident": texts}, cache, **options)[
            "trident"
        ].array

    fast, logits = timed(ours)
    with torch.inference_mode():
        slow, peer = timed(own)
    slow *= PAIR_IMAGES / PAIR_PEER_IMAGES
    print(
        f"{checkpoint.name}: {PAIR_IMAGES} images, {len(texts)} prompts, {encoder.parameters:,} parameters, CPU"
    )
    print(f"  towers once        {fast:8.2f} s   {PAIR_IMAGES * len(texts) / fast:8.0f} pairs/s")
    print(f"  the model's own    {slow:8.2f} s   (scaled up from {PAIR_PEER_IMAGES} images)")
    print(f"  ratio              {slow / fast:8.1f} x")
    print(f"  largest difference {np.abs(peer - logits[:PAIR_PEER_IMAGES]).max():.1e}")


def one_image_pass(checkpoint, paths, ids, suite, folder) -> None:
    import transformers as t

    encoder = load(checkpoint, folder)
    model = t.Owlv2ForObjectDetection.from_pretrained(checkpoint).eval()
    images = t.Owlv2ImageProcessorPil.from_pretrained(checkpoint)
    processor = t.Owlv2Processor(images, t.AutoTokenizer.from_pretrained(checkpoint))
    classes, probes = suite.columns("class"), suite.columns("negative", "neutral", "positive")
    n, own_passes = PAIR_IMAGES, 0

    def own() -> np.ndarray:
        nonlocal own_passes
        logits = np.empty((PAIR_PEER_IMAGES, len(suite.texts)), dtype=np.float32)
        for probe in probes:
            columns = [*classes, probe]
            for i, path in enumerate(paths[:PAIR_PEER_IMAGES]):
                inputs = processor(
                    text=[suite.texts[c] for c in columns], images=decode(path), return_tensors="pt"
                )
                logits[i, columns] = model(**inputs).logits.mean(dim=1)[0].numpy()
                own_passes += 1
        return logits

    seen, forward = 0, encoder.embed_images

    def counting(batch: torch.Tensor) -> np.ndarray:
        nonlocal seen
        seen += len(batch)
        return forward(batch)

    def ours() -> np.ndarray:
        cache = ShardCache(UPath(folder) / "owlv2")
        rows = embed_images(encoder, paths[:n], ids[:n], cache, shard_rows=SHARD_ROWS, batch_rows=16).array
        return rows @ embed_texts(encoder, suite.texts, cache).array.T

    encoder.embed_images = counting
    fast, logits = timed(ours)
    with torch.inference_mode():
        slow, peer = timed(own)
    slow *= n / PAIR_PEER_IMAGES
    print(f"{checkpoint.name}: {n} images, {len(probes)} probes, {encoder.parameters:,} parameters, CPU")
    print(f"  passes an image    {seen / n:8.1f}     against {own_passes / PAIR_PEER_IMAGES:.1f}")
    print(f"  one image pass     {fast:8.2f} s   {n / fast:8.1f} images/s")
    print(f"  the model's own    {slow:8.2f} s   (scaled up from {PAIR_PEER_IMAGES} images)")
    print(f"  ratio              {slow / fast:8.1f} x")
    print(f"  largest difference {np.abs(peer - logits[:PAIR_PEER_IMAGES]).max():.1e}")


def timed(call):
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
