"""Partitions of images: enumerated or drawn, they are all there are, each as likely as any other."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy import stats

from plumbline.errors import MetricError
from plumbline.statistics import partitions
from plumbline.statistics.partitions import (
    count_subsets,
    exact_partition_test,
    is_enumerable,
    random_partition_test,
    random_subsets,
    smaller_size,
    subset_sums,
    variance_slope,
)


def membership(block, size):
    """Return the (rows, n) membership, 0 or 1, of a block's subsets at the given place in the order of sizes."""
    inside = np.unpackbits(block.bits, axis=1, count=block.n).astype(np.float64)
    for step in block.added[:size]:
        np.put_along_axis(inside, step.astype(np.int64), 1.0, axis=1)
    return inside


def members(n, sizes, *, count, seed=0):
    """Return the (count, n) memberships of random subsets of every size."""
    blocks = list(random_subsets(n, sizes, count=count, rng=np.random.default_rng(seed)))
    return [np.concatenate([membership(block, place) for block in blocks]) for place in range(len(sizes))]


@pytest.mark.parametrize(("n", "size"), [(1, 1), (5, 0), (5, 5), (7, 1), (7, 3), (8, 4), (9, 7), (13, 2)])
def test_subset_sums_are_those_of_the_combinations(n, size):
    columns = np.random.default_rng(n).normal(size=(n, 3))
    slow = np.array([columns[list(chosen)].sum(axis=0) for chosen in combinations(range(n), size)])
    fast = subset_sums(columns, size)
    assert fast.shape == slow.shape
    np.testing.assert_allclose(np.sort(fast, axis=0), np.sort(slow, axis=0), atol=1e-12)


@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 1), (7, 3), (10, 5), (11, 9), (40, 2)])
def test_counting_subsets_equals_looking_at_each(n, size):
    columns = np.random.default_rng(n).integers(-2, 3, (n, 4)).astype(float)
    sums = subset_sums(columns, size)
    low, high = np.array([-1.0, -0.5, 0.0, 2.0]), np.array([-1.0, 0.5, 0.0, 3.0])
    below, above = count_subsets(columns, size, low, high)
    np.testing.assert_array_equal(below, (sums < low).sum(axis=0))
    np.testing.assert_array_equal(above, (sums > high).sum(axis=0))


def test_what_is_enumerated():
    assert is_enumerable(20, 10) and not is_enumerable(21, 10)
    assert is_enumerable(30, 0) and is_enumerable(30, 30) and is_enumerable(30, 29)
    assert not is_enumerable(10**9, 5 * 10**8), "without writing that number down"
    assert is_enumerable(200_000, 1) and not is_enumerable(633, 2) and is_enumerable(632, 2)


@pytest.mark.parametrize(("n", "sizes"), [(7, [1]), (7, [6]), (64, [32]), (65, [1, 2, 64]), (200, [13, 60, 100])])
def test_subsets_have_their_sizes_and_grow(n, sizes):
    found = members(n, sizes, count=50)
    for inside, size in zip(found, sizes):
        assert inside.shape == (50, n) and set(np.unique(inside)) <= {0.0, 1.0}
        assert (inside.sum(axis=1) == size).all()
    for smaller, larger in pairwise(found):
        assert (smaller <= larger).all()


@pytest.mark.parametrize("sizes", [[1], [4], [2, 3], [1, 3, 4]])
def test_every_subset_is_equally_likely(sizes):
    n, count = 8, 30_000
    for inside, size in zip(members(n, sizes, count=count, seed=3), sizes):
        code = inside.astype(int) @ (1 << np.arange(n))
        all_codes = [sum(1 << i for i in chosen) for chosen in combinations(range(n), size)]
        seen = [np.count_nonzero(code == c) for c in all_codes]
        assert sum(seen) == count
        assert stats.chisquare(seen).pvalue > 1e-4


@pytest.mark.parametrize("share", [0.02, 0.14, 0.3, 0.5])
def test_large_subsets_take_every_image_alike_and_in_every_pair(share):
    n, count = 1000, 4000
    size = int(share * n)
    (inside,) = members(n, [size], count=count, seed=4)
    z = (inside.mean(axis=0) - share) / np.sqrt(share * (1 - share) / count)
    assert stats.kstest(z, "norm").pvalue > 1e-4 and abs(z).max() < 5
    # Without replacement two images are in together less often than by chance.
    together = (inside[:, 0::2] * inside[:, 1::2]).mean()
    pair = share * (size - 1) / (n - 1)
    assert together == pytest.approx(pair, abs=5 * np.sqrt(pair / (count * n / 2)))


@pytest.mark.parametrize("sizes", [[], [0, 3], [3, 3], [5, 3], [3, 10]])
def test_sizes_that_make_no_sense(sizes):
    with pytest.raises(MetricError, match=r"within 1 \.\. 9"):
        next(random_subsets(10, sizes, count=5, rng=np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("block_size", "summed", "width", "rows"), [(70 * 9, 1, 64, [9, 9, 9, 4]), (31 * 16, 31, 2, [31])]
)
def test_block_sums_are_the_sums(monkeypatch, block_size, summed, width, rows):
    """Of some subsets with all images, or of all subsets with 16 images at a time."""
    monkeypatch.setattr(partitions, "_BLOCK", block_size)
    monkeypatch.setattr(partitions, "_SUMMED", summed)
    monkeypatch.setattr(partitions, "_WIDTH", width)
    columns = np.random.default_rng(0).normal(size=(70, 3))
    (block,) = random_subsets(70, [20, 25, 40], count=31, rng=np.random.default_rng(1))
    parts = list(block.parts())
    assert [len(part.bits) for part in parts] == rows
    for place in range(3):
        fast = np.concatenate([list(part.sums(columns))[place] for part in parts])
        np.testing.assert_allclose(fast, membership(block, place) @ columns, atol=1e-12)


def test_memory_is_bounded_by_drawing_in_blocks(monkeypatch):
    monkeypatch.setattr(partitions, "_DRAWN", 100 * 40)
    blocks = list(random_subsets(100, [30], count=90, rng=np.random.default_rng(1)))
    assert [len(block.bits) for block in blocks] == [40, 40, 10]


def slow_counts(columns, in_a, inside, *, studentised, slack=1e-12):
    """Compare the difference of means, over its standard error or not, with that of every given membership."""

    def difference(mask):
        first, second = columns[mask], columns[~mask]
        apart = first.mean(axis=0) - second.mean(axis=0)
        if not studentised:
            return apart
        error = np.sqrt(first.var(axis=0, ddof=1) / len(first) + second.var(axis=0, ddof=1) / len(second))
        return np.divide(apart, error, out=np.zeros_like(apart), where=np.ptp(columns, axis=0) > 1e-12)

    observed = difference(in_a)
    others = np.array([difference(row.astype(bool)) for row in inside])
    return (others > observed + slack).sum(axis=0), (others < observed - slack).sum(axis=0)


def test_random_counts_are_those_of_each_partition_whatever_ties():
    n, rng = 60, np.random.default_rng(2)
    groups = np.repeat([0, 1, 2], [10, 14, 36])
    columns = np.column_stack(
        [
            rng.normal(size=n) * 0.02 + 0.25,  # cosines
            rng.integers(0, 2, n),  # ties with most partitions
            rng.integers(0, 5, n) * 0.1,  # ties up to the rounding of tenths
            np.full(n, 0.1),  # ties with all
            1e6 + rng.normal(size=n),  # single precision would tell none apart
            rng.standard_cauchy(n),  # one image has most of the variance
        ]
    )
    mixtures = np.array([[0.5, 0.5, 0, 0, 0, 0], [0, 1, 0, 3, 0, 0], [1, 0, 0, 0, 0, 0]]).T
    sizes = [10, 14, 24]
    blocks = list(random_subsets(n, sizes, count=400, rng=rng))
    masks = [groups == g for g in range(3)]
    assert [smaller_size(mask) for mask in masks] == sizes
    everything = np.concatenate([columns, columns @ mixtures], axis=1)
    found = random_partition_test(everything, masks, sizes, blocks, raw=slice(1, None))
    for place, (tests, mask) in enumerate(zip(found, masks)):
        inside = np.concatenate([membership(b, place) for b in blocks])
        # The third group is the larger side: its subsets are those of the others.
        inside = inside if place < 2 else 1 - inside
        # A million with differences of means near 1e-9 has no 1e-12 to tell.
        above, below = slow_counts(everything, mask, inside, studentised=True, slack=1e-9)
        np.testing.assert_array_equal(tests.studentised.above, above)
        np.testing.assert_array_equal(tests.studentised.below, below)
        above, below = slow_counts(everything, mask, inside, studentised=False, slack=1e-10)
        np.testing.assert_array_equal(tests.raw.above, above[1:])
        np.testing.assert_array_equal(tests.raw.below, below[1:])
        for counts in tests:
            assert counts.total == 400 and not counts.exact
        assert tests.studentised.above[3] == tests.studentised.below[3] == 0, "what does not vary ties"


def test_of_large_groups_the_spread_follows_from_the_sum(monkeypatch):
    """Without sums of squares p changes by less than ten thousand draws can tell, also where values are skewed."""
    n, size, rng = 7000, 1000, np.random.default_rng(4)
    in_a = np.arange(n) < size
    # Differences of -3 to 3 standard errors; the group has half, or twice, the spread of the others.
    shifts = np.linspace(-3, 3, 7) / np.sqrt(size)
    columns = np.concatenate(
        [(rng.exponential(1, (n, 7)) - 1) * np.where(in_a, f, 1)[:, None] for f in (0.5, 2)], axis=1
    )
    columns[in_a] += np.tile(shifts, 2)
    blocks = list(random_subsets(n, [size], count=2000, rng=rng))
    quick = random_partition_test(columns, [in_a], [size], blocks)[0].studentised
    monkeypatch.setattr(partitions, "MANY_IMAGES", n)
    full = random_partition_test(columns, [in_a], [size], blocks)[0].studentised
    noise = np.sqrt(full.above * full.below / 2000)
    assert (noise > 0).sum() > 6
    assert (np.abs(quick.above - full.above) <= 0.5 * noise + 1).all()


def test_sums_of_mixtures_follow_from_those_of_their_columns(monkeypatch):
    n, rng = 300, np.random.default_rng(5)
    monkeypatch.setattr(partitions, "MANY_IMAGES", 20)
    groups, columns = np.repeat([0, 1, 2], [60, 80, 160]), rng.normal(size=(n, 5)) + 3 * rng.normal(size=(n, 1))
    columns[:, 4] = 0.5
    # A mean, a difference of much less spread, one of columns that tie, a constant, and one column twice over.
    mixtures = np.array([[1, 1, 1, 0, 0], [1, -1, 0, 0, 0], [0, 0, 0, 1, 7], [0, 0, 0, 0, 2], [2, 0, 0, 0, 0]]).T
    columns[:, 3] = rng.integers(0, 3, n)
    sizes, masks = [60, 80, 140], [groups == g for g in range(3)]
    blocks = list(random_subsets(n, sizes, count=500, rng=rng))
    every = np.column_stack([columns, columns @ mixtures])
    found = [
        random_partition_test(every, masks, sizes, blocks, raw=slice(5, None), mixtures=each)
        for each in (None, mixtures)
    ]
    for alone, mixed in zip(*found):
        for one, other in zip(alone, mixed):
            np.testing.assert_array_equal(one.above, other.above)
            np.testing.assert_array_equal(one.below, other.below)


@pytest.mark.parametrize(("n", "size"), [(9, 2), (9, 7), (10, 5), (12, 5), (9, 1)])
def test_exact_counts_compare_with_all(n, size):
    rng = np.random.default_rng(3)
    columns = np.column_stack([rng.normal(size=n), rng.integers(0, 3, n), np.ones(n)])
    in_a = np.arange(n) < size
    inside = np.array([np.isin(np.arange(n), chosen) for chosen in combinations(range(n), size)])
    tests = exact_partition_test(columns, in_a, raw=slice(1))
    above, below = slow_counts(columns, in_a, inside, studentised=False)
    np.testing.assert_array_equal(tests.raw.above, above[:1])
    np.testing.assert_array_equal(tests.raw.below, below[:1])
    if size > 1:  # the spread of one image is unknown: both tests are then the raw one
        above, below = slow_counts(columns, in_a, inside, studentised=True, slack=1e-9)
    np.testing.assert_array_equal(tests.studentised.above, above)
    np.testing.assert_array_equal(tests.studentised.below, below)
    assert tests.raw.total == len(inside) and tests.raw.exact


@pytest.mark.parametrize(("size", "n"), [(3, 10), (40, 100), (60, 100), (50, 100)])
def test_the_studentised_sum_orders_partitions_as_welchs_t_does(size, n):
    rng = np.random.default_rng(size)
    x = rng.normal(size=n) ** 3
    z = (x - x.mean()) / x.std()
    masks = np.array([rng.permutation(n) < size for _ in range(300)])
    t = [stats.ttest_ind(x[mask], x[~mask], equal_var=False).statistic for mask in masks]
    slope = variance_slope(size, n)
    studentised = masks @ z / np.sqrt(1 + slope * (masks @ (z**2 - 1)))
    np.testing.assert_array_equal(np.argsort(t), np.argsort(studentised))
    assert variance_slope(1, 50) == 0 and variance_slope(25, 50) == 0
