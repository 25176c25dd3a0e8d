"""Blocks, all images of one group in one set, are dealt out whole, as the slow way does set by set."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from plumbline.statistics import cluster_permutation, count_table
from plumbline.statistics.cluster_gaps import group_gap
from plumbline.statistics.cluster_permutation import ClusterPermutation, relabelling_reason
from plumbline.statistics.permutation import permute_strata, strata_mixing

SHAPE = {"n_groups": 2, "n_outcomes": 2}


def gap(tables):
    rates = tables[..., 0] / tables.sum(axis=-1)
    return np.ptp(rates, axis=-1)


def dealt_slowly(group, member, rng):
    """Return the labels after dealing the blocks of every set to its groups, one by one; blocks of equal size."""
    dealt = group.copy()
    for s in np.unique(member):
        held = np.unique(group[member == s])
        for own, new in zip(held, rng.permutation(held)):
            dealt[(member == s) & (group == own)] = new
    return dealt


def test_one_image_a_group_is_dealt_as_labels_are_shuffled_within_sets():
    rng = np.random.default_rng(0)
    member = np.concatenate([np.repeat(np.arange(20), 3), np.repeat(np.arange(20, 30), 2)])
    group = np.concatenate([np.tile(np.arange(3), 20), np.tile([2, 0], 10)])
    order = rng.permutation(len(group))
    group, member = group[order], member[order]
    dealt = ClusterPermutation.of(group, member)
    found = dealt.draw(7, np.random.default_rng(5)).labels[:, dealt.blocks]
    expected, again = np.empty((7, len(group)), dtype=int), np.random.default_rng(5)
    by_set = np.argsort(member, kind="stable")
    for places in (by_set[60:].reshape(10, 2), by_set[:60].reshape(20, 3)):
        expected[:, places] = again.permuted(np.broadcast_to(group[places], (7, *places.shape)), axis=-1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("images", [1, 4])
def test_blocks_are_dealt_as_the_slow_way_does(images):
    rng = np.random.default_rng(1)
    group, member = np.tile(np.repeat([0, 1, 2], images), 12), np.repeat(np.arange(12), 3 * images)
    outcome = rng.integers(0, 2, len(group))
    order = rng.permutation(len(group))
    group, member, outcome = group[order], member[order], outcome[order]
    shape = {"n_groups": 3, "n_outcomes": 2}
    fast = ClusterPermutation.of(group, member).tables(outcome, **shape, permutations=4000, rng=rng)
    slow = np.array([count_table(dealt_slowly(group, member, rng), outcome, **shape) for _ in range(2000)])
    assert (fast.sum(axis=2) == 12 * images).all()
    for cell in np.ndindex(3, 2):
        assert fast[:, *cell].mean() == pytest.approx(slow[:, *cell].mean(), abs=0.25)
        assert fast[:, *cell].std() == pytest.approx(slow[:, *cell].std(), rel=0.06)
    assert stats.ks_2samp(gap(fast), gap(slow)).pvalue > 1e-3


def test_sets_of_one_group_are_dealt_among_themselves():
    rng = np.random.default_rng(2)
    group, member = np.repeat([0, 1], 15).repeat(4), np.repeat(np.arange(30), 4)
    hits = np.repeat(rng.integers(0, 2, 30), 4)  # all images of a set agree
    moved = ClusterPermutation.of(group, member).tables(hits, **SHAPE, permutations=500, rng=rng)
    assert (moved % 4 == 0).all() and len(np.unique(moved[:, 0, 0])) > 3
    # A set with both groups does not keep those of one group from being dealt.
    group[:2], hits[:4] = 1 - group[0], [1, 1, 0, 0]
    moved = ClusterPermutation.of(group, member).tables(hits, **SHAPE, permutations=500, rng=rng)
    assert len(np.unique(moved[:, 0, 0])) > 3


def test_groups_keep_their_sizes_where_blocks_differ_in_size():
    rng = np.random.default_rng(3)
    group = np.concatenate([[0] * 5, [1] * 2, [0] * 1, [1] * 3, [0] * 4, [-1]])
    member = np.concatenate([[0] * 7, [1] * 4, [2] * 4, [2]])
    value = np.arange(16)
    dealt = ClusterPermutation.of(group, member)
    drawn = dealt.draw(2000, rng)
    assert not dealt.even
    for labels, weights in zip(drawn.labels[:200], drawn.weights[:200]):
        labels = labels[dealt.blocks]
        for s, g in product(range(3), range(2)):
            # The place of a group in a set holds as many images as before, all of one block, as evenly as possible.
            own = (member[:15] == s) & (labels == g)
            assert weights[own].sum() == ((group == g) & (member == s)).sum()
            assert not own.any() or (np.ptp(weights[own]) <= 1 and len(np.unique(group[:15][own])) == 1)
    for block in range(5):  # every image of a block counts equally often
        often = drawn.weights[:, dealt.blocks == block].mean(axis=0)
        assert np.ptp(often) < 0.1
    sums = dealt.sums(np.stack([value, np.ones(16, int)], axis=1), n_groups=2, permutations=50, rng=rng)
    assert (sums[..., 1] == [10, 5]).all()
    np.testing.assert_array_equal(
        dealt.tables(value % 2, **SHAPE, permutations=50, rng=np.random.default_rng(1)).sum(axis=2), [[10, 5]] * 50
    )


def test_parts_of_bounded_memory_change_nothing(monkeypatch):
    group, member = np.tile(np.repeat([0, 1], 3), 20), np.repeat(np.arange(20), 6)
    dealt, outcome = ClusterPermutation.of(group, member), np.arange(120) % 2
    whole = dealt.tables(outcome, **SHAPE, permutations=400, rng=np.random.default_rng(0))
    monkeypatch.setattr(cluster_permutation, "_BLOCK", 1000)
    parts = dealt.tables(outcome, **SHAPE, permutations=400, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(whole, parts)


def rejections(worlds, *, sets, sizes, spread, own, seed=0):
    """Return the p of worlds without a difference, in which a person answers otherwise as each group."""
    p, rng = [], np.random.default_rng(seed)
    group = np.concatenate([np.repeat(np.arange(len(size)), size) for size in sizes(sets)])
    member = np.concatenate([np.full(sum(size), s) for s, size in enumerate(sizes(sets))])
    dealt = ClusterPermutation.of(group, member)
    shape = {"n_groups": int(group.max()) + 1, "n_outcomes": 2}
    for _ in range(worlds):
        latent = rng.normal(0, own, (sets, 1)) + rng.normal(0, spread, (sets, shape["n_groups"]))
        outcome = np.where(rng.normal(size=len(group)) < latent[member, group] - 0.5, 0, 1)
        drawn = gap(dealt.tables(outcome, **shape, permutations=199, rng=rng))
        p.append((1 + np.count_nonzero(drawn >= gap(count_table(group, outcome, **shape)) - 1e-12)) / 200)
    return np.array(p)


@pytest.mark.parametrize(
    "sizes",
    [
        lambda sets: [(20, 20, 20)] * sets,
        lambda sets: [(20, 19, 20), (20, 20, 18)] * (sets // 2),
        lambda sets: [(20, 4)] * sets,
        lambda sets: [(6, 0), (0, 6)] * (sets // 2),
        lambda sets: [(6, 6), (6, 0), (0, 3)] * (sets // 3),
    ],
    ids=["even", "nearly even", "uneven", "one group a set", "both kinds"],
)
def test_the_test_keeps_its_level_where_a_person_varies_with_the_group(sizes):
    p = rejections(300, sets=12, sizes=sizes, spread=0.5, own=0.5)
    for level in (0.05, 0.1, 0.25):
        assert np.count_nonzero(p <= level) <= stats.binom.ppf(1 - 5e-4, 300, level)
    assert np.count_nonzero(p <= 0.3) >= stats.binom.ppf(5e-4, 300, 0.2)


@pytest.mark.parametrize(
    ("group", "member"),
    [
        ([0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2]),
        ([0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1]),
        ([0, 0, 0, 1, 1], [0, 1, 2, 3, 4]),
        ([0, 0, 1, 1], [0, 1, 2, 3]),
        ([0, 1, 0, 1, 0], [0, 0, 1, 1, 2]),
        ([0, 1, 2, 0, 1, 0, 1], [0, 0, 0, 1, 1, 2, 2]),
        ([0, 0], [0, 1]),
    ],
)
def test_the_least_p_is_that_of_listing_all_relabellings(group, member):
    group, member = np.array(group), np.array(member)
    dealt = ClusterPermutation.of(group, member)
    counts = np.bincount(member)
    own = [group[member == s] for s in np.flatnonzero(counts > 1)]
    alone = group[counts[member] == 1]
    places = np.concatenate([np.flatnonzero(counts[member] > 1), np.flatnonzero(counts[member] == 1)])
    ways = {
        tuple(np.concatenate([*choice]))
        for choice in product(*(set(permutations(each.tolist())) for each in [*own, alone]))
    }
    # Random values tell all relabellings apart but those that rename groups.
    values = np.random.default_rng(0).normal(size=len(group))[places]
    gaps, means = [], []
    for labels in np.array(sorted(ways)):
        of_group = np.array([values[labels == g].mean() for g in np.unique(group)])
        gaps.append(np.ptp(of_group))
        means.append(of_group[0])
    extreme = np.mean(np.isclose(gaps, np.max(gaps)))
    if dealt.groups.max() < 2:  # of three groups, the gap leaves out the middle one
        assert dealt.least_gap_p == pytest.approx(extreme)
    assert dealt.least_gap_p <= extreme + 1e-12
    assert dealt.least_count_p(0) == pytest.approx(min(1, 2 * np.mean(np.isclose(means, np.max(means)))))


def test_too_few_relabellings_are_said():
    def least(sets, groups):
        return ClusterPermutation.of(np.tile(np.arange(groups), sets), np.repeat(np.arange(sets), groups)).least_gap_p

    assert least(5, 2) == pytest.approx(1 / 16) and least(6, 2) == pytest.approx(1 / 32)
    assert least(1, 14) == pytest.approx(1)
    assert str(relabelling_reason(least(5, 2), 0.95)) == (
        "too few sets to test: no difference, however large, gives a p below 0.062"
    )
    assert relabelling_reason(least(6, 2), 0.95) is None and relabelling_reason(0.0, 0.95) is None


def test_mixing_is_where_the_images_of_a_group_come_from_on_average():
    """Sets of three groups, of two, and of one, some of several images: against the mean of many permutations."""
    rng = np.random.default_rng(21)
    sizes = np.array([[2, 2, 2], [1, 4, 0], [3, 0, 3], [0, 5, 0], [0, 0, 2], [6, 0, 0], [1, 1, 1]])
    member, group = (each.repeat(sizes.ravel()) for each in np.indices(sizes.shape).reshape(2, -1))
    dealt = ClusterPermutation.of(group, member)
    shape = {"n_groups": 3, "n_outcomes": 3, "permutations": 20_000}
    origins = dealt.tables(group, **shape, rng=rng).mean(axis=0)
    np.testing.assert_allclose(dealt.mixing(3), origins / sizes.sum(axis=0)[:, None], atol=0.01)
    shuffled = permute_strata(sizes[:, :, None] * np.eye(3, dtype=int), permutations=20_000, rng=rng)
    origins = shuffled.sum(axis=1).mean(axis=0)
    np.testing.assert_allclose(strata_mixing(sizes), origins / sizes.sum(axis=0)[:, None], atol=0.01)


def persons_of_one_group(sizes, groups):
    """Return how labels are dealt to persons of one group each, in the order of `sizes`, and the images' persons."""
    member = np.repeat(np.arange(len(sizes)), sizes)
    return ClusterPermutation.of(np.asarray(groups)[member], member), member


def test_sets_of_one_group_change_places_with_those_of_about_their_size():
    sizes, groups = np.tile([1, 2, 9, 14, 30], 16), np.repeat([0, 1], 40)
    dealt, member = persons_of_one_group(sizes, groups)
    assert [sorted(set(sizes[places.ravel()])) for places in dealt.strata] == [[1, 2], [9, 14], [30]]
    labels = dealt.draw(300, np.random.default_rng(0)).labels
    for of_class in ([1, 2], [9, 14], [30]):
        assert (np.isin(sizes, of_class) @ labels.T == np.isin(sizes, of_class).sum() / 2).all()
    # Chance is smaller than where the one image of a person stands for 30.
    hits = (np.random.default_rng(1).random(len(member)) < 0.4).astype(int)
    together, _ = persons_of_one_group(sizes, groups)
    together.__dict__["_alone"] = (np.arange(80),)
    narrow, wide = (
        gap(each.tables(hits, **SHAPE, permutations=1000, rng=np.random.default_rng(2))).mean()
        for each in (dealt, together)
    )
    assert narrow < 0.8 * wide


def test_sets_whose_sizes_go_with_their_groups_are_dealt_together():
    sizes = np.repeat([2, 20], 30)
    assert len(persons_of_one_group(sizes, np.repeat([0, 1], 30))[0].strata) == 1
    assert len(persons_of_one_group(sizes, np.tile([0, 1], 30))[0].strata) == 2


def test_the_least_p_of_sets_in_classes_is_that_of_listing_them(monkeypatch):
    monkeypatch.setattr(cluster_permutation, "FEWEST_OF_A_SIZE", 3)
    sizes, groups = np.array([1, 1, 1, 1, 5, 5, 5]), np.array([0, 1, 0, 1, 0, 1, 1])
    dealt, member = persons_of_one_group(sizes, groups)
    assert [len(places.ravel()) for places in dealt.strata] == [4, 3]
    small, large = (sorted(set(permutations(each))) for each in ([0, 1, 0, 1], [0, 1, 1]))
    labels = np.array([np.concatenate(each) for each in product(small, large)])[:, member]
    values = np.random.default_rng(0).normal(size=7)[member]
    means = np.array([[values[of == g].mean() for g in (0, 1)] for of in labels])
    gaps = np.ptp(means, axis=1)
    assert dealt.least_gap_p == pytest.approx(np.mean(np.isclose(gaps, gaps.max()))) == pytest.approx(1 / 18)
    assert dealt.least_count_p(0) == pytest.approx(2 * np.mean(np.isclose(means[:, 0], means[:, 0].max())))


def test_a_gap_of_means_keeps_its_level_where_one_group_has_few_values_of_each_person():
    """32 persons with one or two values, 128 with ten to twenty: dealt whole, 22% of such worlds had evidence."""
    found = 0
    for world in range(60):
        rng = np.random.default_rng(world)
        group = np.repeat([0, 1], [32, 128])
        sizes = np.where(group == 0, rng.integers(1, 3, 160), rng.integers(10, 21, 160))
        member = np.repeat(np.arange(160), sizes)
        values = 0.7 * rng.normal(size=160)[member] + rng.normal(size=len(member))
        draws = {"n_groups": 2, "resamples": 20, "permutations": 199, "rng": rng}
        found += group_gap(values, group[member], member, **draws).p <= 0.05
    assert found <= 6
