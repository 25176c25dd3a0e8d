"""What a caller gives a metric: a seed or a generator."""

from __future__ import annotations

import numpy as np


def as_seed(seed: int | np.random.Generator) -> int:
    """Return a seed; a generator gives its next number."""
    return int(seed.integers(2**62)) if isinstance(seed, np.random.Generator) else int(seed)
