"""Small dataset folders that the tests of the readers write themselves."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

# Published index files that cannot lie in the repository: beside it, or where the variable says.
REAL_DATA = Path(
    os.environ.get("PLUMBLINE_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data")
)
HEADER = "file,age,gender,race,service_test"


def _picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8))


@pytest.fixture(scope="session")
def jpeg() -> Callable[..., bytes]:
    """Return a function from a seed to the bytes of a small JPEG that no other seed gives."""

    def encode(seed: int = 0, **options: object) -> bytes:
        buffer = io.BytesIO()
        _picture(seed).save(buffer, "JPEG", **options)
        return buffer.getvalue()

    return encode


@pytest.fixture
def fairface(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a FairFace folder from label lines and the bytes of its files."""

    def write(lines: list[str], images: Mapping[str, bytes], *, split: str = "val") -> Path:
        root = tmp_path / "fairface"
        (root / split).mkdir(parents=True, exist_ok=True)
        (root / f"fairface_label_{split}.csv").write_text("\n".join([HEADER, *lines]) + "\n", "utf-8")
        for name, data in images.items():
            (root / name).write_bytes(data)
        return root

    return write


@pytest.fixture(scope="session")
def real_file() -> Callable[[str], Path]:
    """Return a function from the name of a published index file to its path; the test is skipped without it."""

    def find(name: str) -> Path:
        path = REAL_DATA / name
        if not path.is_file():
            pytest.skip(
                f"the published {name} is not there: put it into ../shared/data or set PLUMBLINE_SHARED_DATA"
            )
        return path

    return find
