"""Random generators derived from a seed and labels, so that no result depends on the order of computation."""

from __future__ import annotations

import numpy as np

from plumbline.digests import digest_json


def generator(seed: int, *labels: str | int) -> np.random.Generator:
    """Return the generator that belongs to a seed and a name.

    A metric that draws from `generator(seed, model, dataset, suite, "bootstrap")` gives the same numbers
    whether it runs first, last, alone or in another process; one shared generator would not.

    Parameters
    ----------
    seed : int
        The audit's seed.
    *labels : str or int
        What the draws are for. Their order matters; equal seeds and labels give equal streams.
    """
    return np.random.default_rng(int(digest_json([seed, *labels]), 16))
