"""What the benchmarks run on: checkpoints, photographs, and a clock."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.digests import digest_bytes
from plumbline.encoders.folders import checkpoint_files, load_encoder
from resources.checkout import PROJECT

PLANTED = PROJECT / "plumbline" / "world" / "checkpoints"
PHOTOGRAPH_SIZE = (500, 375)
Images = tuple[list[Path], list[str]]
Result = TypeVar("Result")


def load(checkpoint: Path, *, device: str = "cpu", compiled: bool = False):
    """Return the encoder of a folder."""
    files = checkpoint_files(checkpoint.name, f"local-dir:{checkpoint}", project=PROJECT, fetched=checkpoint)
    return load_encoder(files, Placement.choose(device=device, compiled=compiled))


def random_clip(architecture: str, folder: Path) -> Path:
    """Write an open_clip checkpoint of a published size, with random weights; return its folder."""
    declare_missing_operators()
    import open_clip
    import torch
    from safetensors.torch import save_file

    config = {"model_cfg": open_clip.get_model_config(architecture), "preprocess_cfg": {}}
    # open_clip draws from the global generator; whatever else runs here keeps its own draws.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = open_clip.CLIP(**config["model_cfg"])
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")
    return folder


def photographs(n: int, folder: Path) -> Images:
    """Write n JPEG files of different content; return paths and ids."""
    folder.mkdir()
    paths, ids = [], []
    for i in range(n):
        # Some hundred different ones, and a comment that gives every file bytes of its own.
        data = photograph(i % 200, comment=str(i).encode())
        paths.append(folder / f"{i:06}.jpg")
        paths[-1].write_bytes(data)
        ids.append(digest_bytes(data))
    return paths, ids


def photograph(seed: int, *, comment: bytes = b"") -> bytes:
    """Return a photograph-like JPEG of 500 x 375 pixels: smooth shapes with some grain."""
    rng, buffer = np.random.default_rng(seed), io.BytesIO()
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize(PHOTOGRAPH_SIZE, Image.Resampling.BICUBIC)).astype(int)
    grain = rng.integers(-8, 9, smooth.shape)
    picture = Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))
    picture.save(buffer, "JPEG", quality=90, comment=comment)
    return buffer.getvalue()


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return seconds and the result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result
