"""What the tests of endpoints do not wait for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stamina


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Let stamina try again at once, but as often as the settings say."""
    with stamina.set_testing(True, attempts=20, cap=True):
        yield
