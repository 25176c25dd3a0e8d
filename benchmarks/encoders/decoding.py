"""From JPEG files to CLIP's 224 pixels on one core: Pillow against the fast decoder."""

import torch
from PIL import Image

from benchmarks.encoders.materials import PHOTOGRAPH_SIZE, photograph, timed
from plumbline.encoders.encoder import Crop, EncoderIdentity
from plumbline.encoders.images import FastDecoder, with_pillow
from plumbline.encoders.torch_encoder import grey_levels

FILES, CROP = 60, 224


class ClipPixels:
    """CLIP's preprocessing without a model: shorter side to 224 pixels, centre."""

    family, crop = "preprocessing", Crop(CROP, "bicubic")
    identity = EncoderIdentity("", "", "", "pillow", "")

    def __init__(self) -> None:
        from torchvision.transforms import CenterCrop, InterpolationMode, Resize

        self._steps = (Resize(CROP, interpolation=InterpolationMode.BICUBIC), CenterCrop(CROP))

    def prepare(self, image: Image.Image) -> torch.Tensor:
        """Return (3, 224, 224) grey levels."""
        for step in self._steps:
            image = step(image)
        return grey_levels(image)


def run() -> None:
    """Print files a second of both, and how far their pixels are apart."""
    files, pixels = [photograph(seed) for seed in range(FILES)], ClipPixels()
    pillow, decoder = with_pillow(pixels), FastDecoder(pixels)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        slow, own = timed(lambda: [pillow(file) for file in files])
        quick, fast = timed(lambda: [decoder(file) for file in files])
    finally:
        torch.set_num_threads(threads)
    apart = max(int((a.int() - b.int()).abs().max()) for a, b in zip(own, fast, strict=True))
    width, height = PHOTOGRAPH_SIZE
    print(f"\nDecoding on one core, JPEG files of {width} x {height} pixels to {CROP} x {CROP}")
    print(f"  pillow               {FILES / slow:8.0f} images/s")
    print(f"  fast                 {FILES / quick:8.0f} images/s   {slow / quick:.1f} x")
    print(f"  largest difference   {apart} grey levels")
