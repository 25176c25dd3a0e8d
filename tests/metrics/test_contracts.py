"""Every registered metric keeps what it declares; a public metric that declares nothing fails."""

import inspect
from importlib import import_module

import numpy as np
import pytest
from contract_measures import MEASURES

from plumbline import metrics
from plumbline.metrics.registry import FAMILIES, METRICS

ALL = pytest.mark.parametrize("traits", METRICS.values(), ids=list(METRICS))
G = 4


def sample(seed, n=240, levels=None):
    """Draw responses to g classes and one more candidate, which the groups choose at different rates."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(n) % G)
    responses = rng.normal(size=(n, G + 1)) if levels is None else rng.integers(0, levels, (n, G + 1)).astype(float)
    responses[:, -1] += 0.3 * groups
    return responses, groups


def test_every_public_function_and_every_row_is_declared():
    public = {name for name in metrics.__all__ if inspect.isfunction(getattr(metrics, name))}
    functions = [traits.function.rpartition(".") for traits in METRICS.values()]
    assert all(callable(getattr(import_module(module), name)) for module, _, name in functions)
    declared = {name for _, _, name in functions}
    # A family may keep a function to itself.
    assert public <= declared
    names = [name for family in FAMILIES.values() for name in family.metrics]
    assert len(names) == len(set(names)), "a metric belongs to one family"
    assert set(METRICS) - set(names) == {"valence_cosine", "valence_gap", "text_axis_share"}, "of no dataset"
    assert set(METRICS) <= set(MEASURES), "the contract of a metric needs its measure"


@ALL
def test_values_lie_within_the_declared_bounds(traits):
    drawn = [MEASURES[traits.name](*sample(seed), G) for seed in range(5)]
    for values in drawn:
        assert values.shape == (() if traits.shape == "scalar" else (G,))
        assert not np.isnan(values).any()
        assert (values >= traits.bounds[0]).all() and (values <= traits.bounds[1]).all()
    assert np.ptp(drawn) > 0, "the metric must move with its input"


@ALL
def test_row_order_does_not_matter(traits):
    responses, groups = sample(7, levels=3)
    order = np.random.default_rng(0).permutation(len(groups))
    np.testing.assert_array_equal(
        MEASURES[traits.name](responses, groups, G),
        MEASURES[traits.name](responses[order], groups[order], G),
        err_msg="to the last digit: add in an order of its own (sort by image_id), or count in whole numbers",
    )


@ALL
def test_renaming_groups_moves_by_group_values_and_nothing_else(traits):
    responses, groups = sample(8)
    rename = np.array([2, 0, 3, 1])
    renamed = responses.copy()
    renamed[:, rename] = responses[:, :G]
    before, after = (MEASURES[traits.name](responses, groups, G), MEASURES[traits.name](renamed, rename[groups], G))
    expected = before if traits.shape == "scalar" else before[np.argsort(rename)]
    np.testing.assert_allclose(after, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "traits", [t for t in METRICS.values() if t.when_identical is not None], ids=lambda traits: traits.name
)
def test_groups_that_are_answered_alike(traits):
    block = np.random.default_rng(9).normal(size=(60, G + 1))
    values = MEASURES[traits.name](np.tile(block, (G, 1)), np.repeat(np.arange(G), len(block)), G)
    if traits.when_identical == "equal":
        assert np.ptp(values) == 0
    else:
        np.testing.assert_array_equal(values, traits.when_identical)


@ALL
def test_an_empty_group(traits):
    responses, groups = sample(10)
    responses[:, 1] = -100.0  # no image of the other groups may choose the class that is about to be empty
    kept = groups != 1
    others = [0, 2, 3]
    full = MEASURES[traits.name](responses[kept], groups[kept], G)
    without = MEASURES[traits.name](responses[kept][:, [*others, G]], np.searchsorted(others, groups[kept]), G - 1)
    if traits.empty_group == "nan":
        assert np.isnan(full[1])
        np.testing.assert_allclose(full[others], without, rtol=1e-12)
    else:
        np.testing.assert_allclose(full, without, rtol=1e-12)


LOWER = [traits for traits in METRICS.values() if traits.ties == "lower index wins"]


@pytest.mark.parametrize("traits", LOWER, ids=lambda traits: traits.name)
def test_ties_go_to_the_lower_index(traits):
    responses, groups = sample(11, levels=2)
    untied = responses - 1e-6 * np.arange(G + 1)
    np.testing.assert_array_equal(MEASURES[traits.name](responses, groups, G), MEASURES[traits.name](untied, groups, G))


@pytest.mark.parametrize("change", ["scale", "shift"])
@ALL
def test_scale_and_shift(traits, change):
    responses, groups = sample(12)
    before = MEASURES[traits.name](responses, groups, G)
    changed = responses * 4.0 if change == "scale" else responses + 4.0
    after = MEASURES[traits.name](changed, groups, G)
    expected = {"invariant": before, "equivariant": before * 4.0 if change == "scale" else before + 4.0, None: None}[
        getattr(traits, change)
    ]
    if expected is None:
        assert not np.allclose(after, before), "it neither holds nor fails to hold: declare what it does"
    else:
        np.testing.assert_allclose(after, expected, rtol=1e-9, atol=1e-12)
