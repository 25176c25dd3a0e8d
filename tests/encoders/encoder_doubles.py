"""Encoders small enough to see through, and folders of images for them."""

import io

import numpy as np
import torch
from PIL import Image

from plumbline.digests import digest_file
from plumbline.encoders.encoder import EncoderIdentity
from plumbline.encoders.torch_encoder import grey_levels


class Double:
    """What both kinds share: an image is prepared as it is, and passes are noted."""

    family, crop, device, weights_sha256, parameters = "double", None, "cpu", "w", 0

    def __init__(self, weights="w", *, most_rows=None):
        self.identity = EncoderIdentity(weights, "p", "b", "pillow-1", "float32")
        self.batches, self.prepared, self.spoil, self.most_rows = [], 0, {}, most_rows

    def prepare(self, image):
        self.prepared += 1
        return grey_levels(image)

    def enter(self, batch):
        """Note a pass; as a device does, fail where it is too large."""
        if self.most_rows is not None and len(batch) > self.most_rows:
            raise torch.OutOfMemoryError(f"CUDA out of memory. {len(batch)} rows")
        self.batches.append(len(batch))

    def spoilt(self, rows):
        """Put the values of `spoil` into the first pass."""
        if len(self.batches) == 1:
            for i, value in self.spoil.items():
                rows[i] = value
        return rows


class MeanColour(Double):
    """A whole dual encoder: an image is its mean colour, a text its letter counts."""

    width, logit_scale, logit_bias = 3, 10.0, 0.0

    def embed_images(self, batch):
        self.enter(batch)
        return self.spoilt(batch.float().mean(dim=(2, 3)).numpy() + 1)

    def embed_texts(self, texts):
        self.enter(texts)
        return np.array([[len(t), t.count("a") + 1, 1] for t in texts], dtype=np.float32)


class PairProducts(Double):
    """A whole pair encoder: the products of mean colours and letter counts."""

    def __init__(self, weights="w", **options):
        super().__init__(weights, **options)
        self.texts = []

    def score_pairs(self, batch, *suites):
        self.enter(batch)
        self.texts.append([list(texts) for texts in suites])
        texts = [text for suite in suites for text in suite]
        counts = np.array([[len(t), t.count("a") + 1, 1] for t in texts], dtype=np.float32)
        return self.spoilt(batch.float().mean(dim=(2, 3)).numpy() @ counts.T)


def write_images(folder, n, *, seed=1, size=(8, 8)):
    """Return paths and ids of n noisy PNG files."""
    rng, paths = np.random.default_rng(seed), []
    for i in range(n):
        paths.append(folder / f"{i}.png")
        Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8)).save(paths[-1])
    return paths, [digest_file(path) for path in paths]


def photograph(seed, size, *, mode="RGB"):
    """Return a smooth picture with some grain, of (width, height)."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC)).astype(int)
    grain = rng.integers(-6, 7, smooth.shape)
    return Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8)).convert(mode)


def jpeg_bytes(image, **options):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **{"quality": 90, **options})
    return buffer.getvalue()
