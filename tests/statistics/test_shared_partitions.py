"""Draws of partitions that several statistics share."""

import numpy as np

from plumbline.statistics import partitions as shared_partitions
from plumbline.statistics.partitions import random_subset_chains, random_subsets


def test_small_draws_are_shared_and_large_ones_are_not_kept(monkeypatch):
    monkeypatch.setattr(shared_partitions, "_KEPT", 60_000)
    first, second = (
        [blocks for _, blocks in random_subset_chains(640, [100, 110, 300], count=100, seed=1)] for _ in range(2)
    )
    assert [a is b for a, b in zip(first, second)] == [True, True]
    chains = [sizes for sizes, _ in random_subset_chains(640, [300, 110, 100, 110], count=100, seed=1)]
    assert chains == [[100, 110], [300]]
    ((_, drawn),) = random_subset_chains(640, [300], count=1000, seed=1)
    assert not isinstance(drawn, tuple), "too large to keep"
    again = next(iter(drawn))
    other = next(random_subsets(640, [300], count=1000, rng=shared_partitions.generator(1, "subsets", 640, 300)))
    np.testing.assert_array_equal(again.bits, other.bits)
