from pathlib import Path

import pytest

from plumbline.world import folders


@pytest.fixture(scope="session")
def planted_fairface(planted_base: Path) -> Path:
    return folders.ensure("fairface", planted_base)


@pytest.fixture(scope="session")
def planted_utkface(planted_base: Path) -> Path:
    return folders.ensure("utkface", planted_base)
