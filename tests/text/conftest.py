"""Where published word lists are that cannot lie in the repository."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REAL_DATA = Path(
    os.environ.get("PLUMBLINE_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data")
)


@pytest.fixture(scope="session")
def real_file() -> Callable[[str], Path]:
    """Return a function from the name of a published file to its path; the test is skipped without it."""

    def find(name: str) -> Path:
        path = REAL_DATA / name
        if not path.is_file():
            pytest.skip(
                f"the published {name} is not there: put it into ../shared/data or set PLUMBLINE_SHARED_DATA"
            )
        return path

    return find
