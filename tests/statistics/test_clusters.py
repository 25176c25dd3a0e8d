"""Images that come in sets: whole sets are drawn, left out and shuffled, as the slow way does image by image."""

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
from scipy import stats

from plumbline.errors import MetricError
from plumbline.statistics import count_table, wilson
from plumbline.statistics.clusters import (
    cluster_codes,
    cluster_tables,
    cluster_wilson,
    few_clusters_reason,
    jackknife_clusters,
    resample_clusters,
    variance_freedom,
)
from plumbline.statistics.intervals import mean_of_proportions
from plumbline.statistics.jackknife import occurring_codes, standard_errors, t_intervals

SHAPE = {"n_groups": 2, "n_outcomes": 2}


def people(sets, rng, *, groups=(0, 1), own=0.4, effect=0.0):
    """Draw sets of one image a group whose outcomes have a person's own rate in common."""
    rate = np.clip(rng.normal(0.5, own, sets), 0, 1)
    group = np.tile(groups, sets)
    member = np.repeat(np.arange(sets), len(groups))
    hit = rng.random(len(group)) < np.clip(rate[member] + effect * group, 0, 1)
    return group, np.where(hit, 0, 1), member


def gap(tables):
    rates = tables[..., 0] / tables.sum(axis=-1)
    return np.abs(rates[..., 0] - rates[..., 1])


def test_codes_of_sets():
    assert cluster_codes(pl.DataFrame({"gender": ["man"]})) is None
    assert cluster_codes(pl.DataFrame({"set_id": ["a", "b", None, None]})) is None
    codes = cluster_codes(pl.DataFrame({"set_id": ["b", None, "a", "b", None]}))
    assert codes[0] == codes[3] and len(set(codes.tolist())) == 4 and sorted(set(codes.tolist())) == [0, 1, 2, 3]
    assert str(few_clusters_reason(codes)) == "interval from only 4 sets"
    listed_twice = pl.DataFrame({"image_id": ["x", "x", "y", "z"], "set_id": [None, None, None, "a"]})
    assert cluster_codes(listed_twice).tolist() == [0, 0, 1, 2]
    assert few_clusters_reason(np.arange(35)) is None and few_clusters_reason(None) is None


def test_drawing_sets_equals_gathering_their_images():
    rng = np.random.default_rng(0)
    group, outcome, member = people(12, rng, groups=(0, 1, 1))
    fast = resample_clusters(cluster_tables(group, outcome, member, **SHAPE), resamples=4000, rng=rng)
    slow = []
    for _ in range(4000):
        drawn = rng.integers(0, 12, 12)
        rows = np.concatenate([np.flatnonzero(member == s) for s in drawn])
        slow.append(count_table(group[rows], outcome[rows], **SHAPE))
    slow = np.array(slow)
    assert (fast.sum(axis=(1, 2)) == 36).all()
    for cell in np.ndindex(2, 2):
        assert fast[:, *cell].mean() == pytest.approx(slow[:, *cell].mean(), abs=0.25)
        assert fast[:, *cell].std() == pytest.approx(slow[:, *cell].std(), rel=0.06)


def test_leaving_a_set_out():
    rng = np.random.default_rng(1)
    group, outcome, member = people(9, rng)
    left = jackknife_clusters(cluster_tables(group, outcome, member, **SHAPE), gap)
    for s in range(9):
        rest = member != s
        assert left.values[0, s] == pytest.approx(gap(count_table(group[rest], outcome[rest], **SHAPE)))
    assert left.counts.tolist() == [[1] * 9]


def test_intervals_of_sets_hold_the_rate_where_those_of_images_do_not():
    naive = kept = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        sets = np.repeat(np.arange(60), 6)
        hit = rng.random(360) < np.clip(rng.normal(0.5, 0.35, 60), 0, 1)[sets]
        low, high = cluster_wilson(hit, sets)
        kept += low <= 0.5 <= high
        low, high = wilson(hit.sum(), 360)
        naive += low <= 0.5 <= high
    least, most = stats.binom.ppf([5e-4, 1 - 5e-4], 400, 0.95)
    assert least - 6 <= kept <= most  # the design effect is itself estimated
    assert naive < 320


def test_intervals_of_sets_at_the_ends():
    sets = np.repeat(np.arange(5), 4)
    assert cluster_wilson(np.zeros(20, bool), sets) == pytest.approx(tuple(map(float, wilson(0, 5))))
    assert np.isnan(cluster_wilson(np.zeros(0, bool), np.zeros(0, int))).all()
    # Few degrees of freedom of the design effect count as fewer images still.
    hit = np.random.default_rng(1).random(80) < np.repeat([0.2, 0.4, 0.5, 0.9], 20)
    error = standard_errors((hit - hit.mean()) / 80, np.repeat(np.arange(4), 20)).error
    images = hit.mean() * (1 - hit.mean()) / error**2 * (stats.t.ppf(0.975, 79) / stats.t.ppf(0.975, 3)) ** 2
    assert cluster_wilson(hit, np.repeat(np.arange(4), 20)) == pytest.approx(
        tuple(map(float, wilson(hit.mean() * images, images)))
    )
    alone = cluster_wilson(np.arange(40) % 4 == 0, np.arange(40))
    assert alone == pytest.approx(tuple(map(float, wilson(10, 40))), abs=0.01)


@pytest.mark.parametrize(("share", "per_cluster"), [(0.1, 4.0), (0.05, 1.5), (0.3, 20.0), (0.98, 3.0)])
def test_the_variance_of_a_rare_share_has_few_degrees_of_freedom(share, per_cluster):
    """That of a beta distribution whose variance is share (1 - share) / per_cluster, by scipy's kurtosis."""
    spread = per_cluster - 1
    kurtosis = float(stats.beta.stats(share * spread, (1 - share) * spread, moments="k"))
    clusters, images = 60, 1200
    expected = 2 / (max(kurtosis, 0) * (1 - clusters / images) / clusters + 2 / (clusters - 1))
    assert variance_freedom(share, per_cluster, clusters, images) == pytest.approx(max(expected, 3), rel=1e-9)
    assert variance_freedom(share, per_cluster, clusters, clusters) == clusters - 1, "images that are alone"
    assert variance_freedom(0.5, per_cluster, 2, 40) == 1


def test_cluster_robust_errors_are_those_of_statsmodels():
    rng = np.random.default_rng(3)
    sets = rng.integers(0, 15, 90)
    value = rng.normal(size=90) + rng.normal(size=15)[sets]
    influence = (value - value.mean()) / len(value)
    model = sm.OLS(value, np.ones(90))
    robust = model.fit(cov_type="cluster", cov_kwds={"groups": sets}, use_t=True)
    error, units = standard_errors(influence, sets)
    assert units == len(np.unique(sets)) and error == pytest.approx(robust.bse[0], rel=1e-9)
    low, high = t_intervals(value.mean(), error, units=units)
    assert (low, high) == pytest.approx(tuple(robust.conf_int()[0]), rel=1e-9)
    error, units = standard_errors(influence)
    assert units == 90 and error == pytest.approx(model.fit().bse[0], rel=1e-9)
    assert np.isnan(standard_errors(influence[:1])[0]) and np.isnan(t_intervals(0.0, 1.0, units=1)).all()


@pytest.mark.parametrize(
    ("rates", "n", "most"),
    [
        ([0.3, 0.5, 0.6, 0.45], [40, 60, 25, 80], 0.96),
        # Wilson's intervals are wide for few images at the ends; measured: 0.99.
        ([0.02, 0.5, 0.9, 0.97, 0.3], [12, 40, 25, 8, 60], 1.0),
    ],
)
def test_the_mean_of_proportions_is_held(rates, n, most):
    rates, n = np.array(rates), np.array(n)
    drawn = np.random.default_rng(4).binomial(n, rates, size=(8000, len(n)))
    low, high = mean_of_proportions(drawn, n)
    held = np.mean((low <= rates.mean()) & (rates.mean() <= high))
    assert 0.943 <= held <= most


def test_the_mean_of_proportions_at_its_ends():
    # One group is Wilson's interval; an empty one is left out; nothing at all is undefined.
    assert np.stack(mean_of_proportions([3, 0], [10, 0])) == pytest.approx(np.stack(wilson(3, 10)))
    assert np.isnan(mean_of_proportions([0, 0], [0, 0])).all()


def test_nothing_to_draw_from_is_refused():
    rng = np.random.default_rng(0)
    for tables, resamples in ((np.zeros((0, 2, 2), int), 5), (np.ones((3, 2, 2), int), 0)):
        with pytest.raises(MetricError):
            resample_clusters(tables, resamples=resamples, rng=rng)


@pytest.mark.parametrize("codes", [[3, 0, 3, 5], [], [1000, 2, 2], [-1, 4, -1]])
def test_occurring_codes_are_those_of_sorting(codes):
    found = occurring_codes(np.array(codes, dtype=np.int64))
    expected = np.unique(np.array(codes, dtype=np.int64), return_inverse=True, return_counts=True)
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)


def test_shares_of_persons_with_very_unequal_numbers_of_pictures_are_held():
    """60 persons whose largest have 80 pictures and most have two: counted as 60 equal ones, 89% were held."""
    held, few = 0, 0
    for world in range(400):
        rng = np.random.default_rng(world)
        sizes = np.minimum(80, (1 + 2 * rng.pareto(1.1, 60)).astype(int))
        sets = np.repeat(np.arange(60), sizes)
        hit = rng.random(len(sets)) < rng.beta(0.2 * 7 / 3, 0.8 * 7 / 3, 60)[sets]
        low, high = cluster_wilson(hit, sets)
        held += low <= 0.2 <= high
        few += few_clusters_reason(sets) is not None
    assert held >= 0.925 * 400 and few > 360


def test_sets_of_unequal_size_are_said_and_equal_ones_are_not():
    one_large = np.concatenate([np.zeros(100, int), np.repeat(np.arange(1, 60), 2)])
    assert "from 60 sets of which a few hold most images: they tell as much as 5 of one size" in str(
        few_clusters_reason(one_large)
    )
    assert few_clusters_reason(np.repeat(np.arange(60), 2)) is None
    assert "only 20 sets" in str(few_clusters_reason(np.repeat(np.arange(20), 2)))
