"""Tiny checkpoints of every family, written and loaded once, and pictures to show them."""

from functools import cache

import numpy as np
import pytest
from every_encoder import CASES, files_of
from PIL import Image
from tiny_architectures import BUILDERS

from plumbline.checkpoints.device import Placement
from plumbline.encoders.folders import load_encoder

SIZES = [(50, 70), (64, 40), (33, 33), (120, 31), (40, 47)]


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Return a folder with a tiny checkpoint of every family."""
    root = tmp_path_factory.mktemp("tiny")
    for name, build in BUILDERS.items():
        build(root / name)
    return root


@pytest.fixture(scope="session")
def encoders(folders):
    """Return every case, loaded on the CPU."""
    return {case: load_encoder(files_of(folders, case), Placement()) for case in CASES}


@pytest.fixture(scope="session")
def encoder_on(folders, encoders):
    """Return a function from a case and a device to its encoder."""
    return cache(
        lambda case, device: (
            encoders[case] if device == "cpu" else load_encoder(files_of(folders, case), Placement(device))
        )
    )


@pytest.fixture(scope="session")
def pictures():
    """Return images of several sizes and shapes."""
    rng = np.random.default_rng(5)
    small = [Image.fromarray(rng.integers(0, 256, (9, 11, 3), dtype=np.uint8)) for _ in SIZES]
    # Smooth as photographs are, so that the resizes are compared where they differ.
    return [image.resize(size, Image.Resampling.BICUBIC) for image, size in zip(small, SIZES, strict=True)]
