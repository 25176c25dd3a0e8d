"""The engine against the released loop, a plain DataLoader, decoding alone and the forward pass alone."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from upath import UPath

from benchmarks.encoders.materials import Images, load, timed
from plumbline.catalog.suites import Suite
from plumbline.concurrency import usable_cores
from plumbline.encoders.embedding import embed_images, embed_texts
from plumbline.images.decoding import decode
from plumbline.storage import ShardCache

SHARD_ROWS, BATCH_ROWS = 512, 64
PEER_IMAGES = {True: 40, False: 3}
TURNS = 3


def run(checkpoint: Path, images: Images, suite: Suite, folder: UPath, *, device: str) -> None:
    """Print images a second of each side, and the ratios."""
    encoder, paths = load(checkpoint, device=device), images[0]
    small = encoder.parameters < 10_000_000
    peer_images, turns = PEER_IMAGES[small], TURNS if small else 1
    print(f"\n{checkpoint.name}: {len(paths)} images, 15 probes, {encoder.parameters:,} parameters, {device}")
    plain, ready = Plain(checkpoint, device), load_all(encoder, paths[: 4 * BATCH_ROWS])
    warm(encoder, plain, paths)
    # By turns, and the best of each: other work on the machine then falls on all.
    seconds, results = {}, {}
    for turn in range(turns):
        for name, rows, call in (
            ("engine", len(paths), lambda turn=turn: engine(encoder, images, folder / f"turn-{turn}")),
            ("prompts", len(paths), lambda turn=turn: prompts(encoder, suite, folder / f"turn-{turn}")),
            ("dataloader", len(paths), lambda: plain.loop(paths)),
            ("decode", len(paths), lambda: decode_all(encoder, paths)),
            ("forward", len(ready), lambda: forward_all(encoder, ready)),
        ):
            took, results[name] = timed(call)
            seconds[name] = min(took / rows, seconds.get(name, np.inf))
        shutil.rmtree(folder / f"turn-{turn}")
    took, released = timed(lambda: one_at_a_time(encoder, paths[:peer_images], suite))
    seconds["released"] = took / peer_images
    # The released loop embeds prompts too.
    seconds["suite"] = seconds["engine"] + seconds.pop("prompts")
    apart = np.abs(released - results["engine"][:peer_images] @ results["prompts"].T).max()
    print_rates({name: 1 / each for name, each in seconds.items()}, peer_images, device)
    print(f"  largest difference of logits from (a) {apart:.1e}, of embeddings from (b) "
          f"{np.abs(results['dataloader'] - results['engine']).max():.1e}")  # fmt: skip


def print_rates(rate: dict[str, float], peer_images: int, device: str) -> None:
    """Print images a second, and each ratio beside its bar."""
    slower = min(rate["decode"], rate["forward"])
    print(f"  engine, files checked and shards committed  {rate['engine']:9.1f} images/s")
    print(f"  engine, prompts of the suite included       {rate['suite']:9.1f} images/s")
    for name, label, ours, bar in (
        ("released", f"(a) one at a time, {peer_images} images", "suite", "15"),
        ("dataloader", "(b) open_clip and a DataLoader", "engine", "1.0"),
    ):
        print(f"  {label:43} {rate[name]:9.1f} images/s   {rate[ours] / rate[name]:6.2f} x  (bar {bar})")
    print(f"  decoding alone                              {rate['decode']:9.1f} images/s")
    print(f"  (c) the forward pass alone                  {rate['forward']:9.1f} images/s")
    print(f"  of the slower of decoding and (c)           {rate['engine'] / slower:9.2f}      (bar 0.85)")
    if device == "cpu":
        # Both need the same cores: what one takes the other lacks.
        shared = 1 / (1 / rate["decode"] + 1 / rate["forward"])
        print(f"  of decoding and (c) one after the other     {rate['engine'] / shared:9.2f}")


def warm(encoder, plain: "Plain", paths: Sequence[Path]) -> None:
    """Run everything once on a few images."""
    batch = load_all(encoder, paths[:BATCH_ROWS])
    forward_all(encoder, batch)
    encoder.embed_texts(["a photo of a person"])
    plain.loop(paths[:BATCH_ROWS])


def engine(encoder, images: Images, root: UPath) -> np.ndarray:
    """Return image embeddings, every file checked and every shard committed."""
    cache = ShardCache(root)
    return embed_images(encoder, *images, cache, shard_rows=SHARD_ROWS, batch_rows=BATCH_ROWS).array


def prompts(encoder, suite: Suite, root: UPath) -> np.ndarray:
    """Return the embeddings of a suite's prompts."""
    return embed_texts(encoder, suite.texts, ShardCache(root)).array


def one_at_a_time(encoder, paths: Sequence[Path], suite: Suite) -> np.ndarray:
    """Return the (n, m) logits, gathered scenario by scenario as the released code runs them."""
    classes, probes = suite.columns("class"), suite.columns("negative", "neutral", "positive")
    logits = np.empty((len(paths), len(suite.texts)), dtype=np.float32)
    for probe in probes:
        columns = [*classes, probe]
        for i, path in enumerate(paths):
            image = encoder.embed_images(encoder.prepare(decode(path))[None])
            logits[i, columns] = image[0] @ encoder.embed_texts([suite.texts[c] for c in columns]).T
    return logits


class Files(Dataset):
    """Image files, as a plain loop reads them."""

    def __init__(self, paths: Sequence[Path], transform) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.transform(Image.open(self.paths[row]).convert("RGB"))


class Plain:
    """A user's own loop: open_clip's model and transform, and a DataLoader with as many workers as the engine has."""

    def __init__(self, checkpoint: Path, device: str) -> None:
        import open_clip

        address = f"local-dir:{checkpoint}"
        self.model, _, self.transform = open_clip.create_model_and_transforms(address, device=device)
        self.model.eval()
        self.device = device

    def loop(self, paths: Sequence[Path]) -> np.ndarray:
        """Return the (n, d) embeddings."""
        rows, kind = [], self.device.split(":")[0]
        loader = DataLoader(
            Files(paths, self.transform), batch_size=BATCH_ROWS, num_workers=usable_cores(), pin_memory=kind == "cuda"
        )
        with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            for batch in loader:
                pixels = batch.to(self.device, non_blocking=True)
                rows.append(self.model.encode_image(pixels).float().cpu().numpy())
        return np.concatenate(rows)


def decode_all(encoder, paths: Sequence[Path]) -> int:
    """Decode and transform every file with as many threads as the engine uses."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        return sum(len(pixels) for pixels in pool.map(lambda path: encoder.prepare(decode(path)), paths))


def load_all(encoder, paths: Sequence[Path]) -> torch.Tensor:
    """Return prepared pixels, in memory."""
    return torch.stack([encoder.prepare(decode(path)) for path in paths])


def forward_all(encoder, ready: torch.Tensor) -> np.ndarray:
    """Embed pixels that are in memory."""
    return np.concatenate([encoder.embed_images(batch) for batch in ready.split(BATCH_ROWS)])
