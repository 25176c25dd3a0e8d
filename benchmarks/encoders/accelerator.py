"""Forward passes on a GPU alone, in bfloat16, with the share of its peak."""

import numpy as np
import torch

from benchmarks.encoders.materials import timed

# An H200's dense bfloat16 peak as it is reached in practice, and floating-point operations an image.
PEAK_TFLOPS = 790
GFLOP = {"ViT-B/32": 8.8, "ViT-L/14@336": 382.0}
BARS = {"ViT-B/32": 40_000, "ViT-L/14@336": 1_200}
BATCHES, PASSES = (64, 128, 256, 512, 1024, 2048), 20


def run(encoder, name: str, *, compiled: bool) -> None:
    """Print images a second at every size of batch, and the best with its share of the peak."""
    how = "torch.compile" if compiled else "as it is"
    print(f"\n{name}, forward only, {how}, {encoder.identity.dtype}, {torch.cuda.get_device_name(encoder.device)}")
    side, rates = encoder.crop.size, {}
    for rows in BATCHES:
        batch = torch.randint(0, 256, (rows, 3, side, side), dtype=torch.uint8, device=encoder.device)
        try:
            encoder.embed_images(batch)
            took, _ = timed(lambda batch=batch: [encoder.embed_images(batch) for _ in range(PASSES)])
        except torch.OutOfMemoryError:
            break
        rates[rows] = rows * PASSES / took
        print(f"  {rows:5} rows           {rates[rows]:9.0f} images/s")
    best = max(rates.values(), default=np.nan)
    tflops = best * GFLOP[name] / 1000
    share = f"{tflops:.0f} TFLOP/s, {tflops / PEAK_TFLOPS:.0%} of {PEAK_TFLOPS}"
    print(f"  best                 {best:9.0f} images/s (bar {BARS[name]}), {share}")
