"""Small dataset folders that the tests of the readers write themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

HEADER = "file,age,gender,race,service_test"


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
