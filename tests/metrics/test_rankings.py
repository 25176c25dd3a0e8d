"""Skew@k, MaxSkew@k and NDKL: worked by hand, against the double loop, and on inputs that are refused."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from plumbline.errors import MetricError
from plumbline.metrics import max_skew_at_k, ndkl, skew_at_k

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers" / "rankings.json").read_text())
SCORES = [0.9, 0.8, 0.7, 0.6]


def log(fraction):
    return -math.inf if fraction is None else math.log(Fraction(fraction))


def double_loop(column, labels, desired):
    """Return NDKL as its definition reads: every prefix, every group."""
    order = sorted(range(len(labels)), key=lambda i: -column[i])
    total = norm = 0.0
    seen = dict.fromkeys(desired, 0)
    for i, image in enumerate(order, start=1):
        seen[labels[image]] += 1
        divergence = sum(c / i * math.log(c / i / desired[g]) for g, c in seen.items() if c)
        total += divergence / math.log2(i + 1)
        norm += 1 / math.log2(i + 1)
    return total / norm


@pytest.mark.parametrize("case", KNOWN["skew_at_k"], ids=lambda c: f"{c['k']}-{c['desired']}")
def test_skew_at_k_worked_by_hand(case):
    found = skew_at_k(SCORES, KNOWN["ranked"], k=case["k"], desired=case["desired"])
    assert found.groups == ("a", "b") and len(found) == 2 and (found.k, found.n) == (case["k"], 4)
    for each in found:
        assert found[each.group] == each
        assert each.count == case["counts"][each.group]
        assert each.share == pytest.approx(float(Fraction(case["shares"][each.group])), abs=KNOWN["tol"])
        assert each.value == pytest.approx(log(case["ratio"][each.group]), abs=KNOWN["tol"])
        assert each.floored == pytest.approx(log(case["floored_ratio"][each.group]), abs=KNOWN["tol"])
    largest = max_skew_at_k(SCORES, KNOWN["ranked"], k=case["k"], desired=case["desired"])
    assert largest.group == case["max"]
    assert largest.value == pytest.approx(log(case["ratio"][case["max"]]), abs=KNOWN["tol"])
    assert largest.count == case["counts"][case["max"]]


@pytest.mark.parametrize("case", KNOWN["ndkl"], ids=lambda c: str(c["desired"]))
def test_ndkl_worked_by_hand(case):
    weights = [1 / math.log2(i + 1) for i in range(1, 5)]
    divergences = [sum(float(Fraction(p)) * log(ratio) for p, ratio in prefix) for prefix in case["divergences"]]
    expected = sum(w * d for w, d in zip(weights, divergences)) / sum(weights)
    value = ndkl(SCORES, KNOWN["ranked"], desired=case["desired"])
    assert value.shape == (1,)
    assert value[0] == pytest.approx(expected, abs=KNOWN["tol"])


@pytest.mark.parametrize("seed", range(6))
def test_ndkl_is_the_double_loop_for_all_columns_at_once(seed):
    rng = np.random.default_rng(seed)
    n, groups = int(rng.integers(1, 400)), int(rng.integers(1, 8))
    labels = [f"g{i}" for i in rng.integers(0, groups, n)]
    scores = rng.normal(size=(n, 5)) + 0.3 * np.array([int(x[1]) for x in labels])[:, None]
    found = sorted(set(labels))
    given = dict(zip(found, rng.dirichlet(np.full(len(found), 5.0))))
    given[found[-1]] = 1 - sum(share for name, share in given.items() if name != found[-1])
    ranked = {name: labels.count(name) / n for name in found}
    equal = dict.fromkeys(found, 1 / len(found))
    for desired, shares in ((None, equal), ("ranked", ranked), (given, given)):
        values = ndkl(scores, labels, desired=desired)
        expected = [double_loop(scores[:, j].tolist(), labels, shares) for j in range(5)]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)


def test_ndkl_of_many_images_agrees_with_the_direct_sum():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 7, 10_954)
    scores = rng.normal(size=(10_954, 2)) + 0.1 * labels[:, None]
    expected = [double_loop(scores[:, j].tolist(), labels.tolist(), dict.fromkeys(range(7), 1 / 7)) for j in (0, 1)]
    np.testing.assert_allclose(ndkl(scores, labels), expected, rtol=0, atol=1e-12)


def test_one_group_is_never_skewed():
    assert skew_at_k([1.0, 2.0], ["a", "a"], k=1)["a"].value == 0
    assert max_skew_at_k([1.0, 2.0], ["a", "a"], k=2).value == 0
    assert ndkl([1.0, 2.0, 0.5], ["a", "a", "a"])[0] == pytest.approx(0, abs=1e-15)


def test_the_maximum_is_never_below_zero_and_takes_the_first_of_equals():
    found = max_skew_at_k([4, 3, 2, 1, 0, -1], list("bacacb"), k=3)
    assert (found.group, found.value) == ("a", 0.0)
    # A third of each, desired as thirds written in binary: still a tie.
    third = max_skew_at_k([3, 2, 1], list("cab"), k=3, desired={"c": 1 / 3, "a": 1 / 3, "b": 1 - 2 / 3})
    assert third.group == "c" and third.value == pytest.approx(0, abs=1e-12)


def test_a_mapping_may_name_groups_without_images():
    found = skew_at_k(SCORES, KNOWN["ranked"], k=4, desired={"b": 0.25, "c": 0.25, "a": 0.5})
    assert found.groups == ("b", "c", "a")
    assert found["c"].value == -math.inf and found["c"].count == 0
    assert found["c"].floored == pytest.approx(0, abs=1e-12)
    expected = double_loop(SCORES, KNOWN["ranked"], {"b": 0.25, "c": 0.25, "a": 0.5})
    assert ndkl(SCORES, KNOWN["ranked"], desired={"b": 0.25, "c": 0.25, "a": 0.5})[0] == pytest.approx(expected)


def test_unlabelled_images_take_no_rank():
    scores, labels = [9.0, 0.9, 8.0, 0.8, 0.7, 0.6], [None, "a", float("nan"), "a", "b", "a"]
    assert skew_at_k(scores, labels, k=2)["a"] == skew_at_k(SCORES, KNOWN["ranked"], k=2)["a"]
    assert ndkl(scores, labels)[0] == ndkl(SCORES, KNOWN["ranked"])[0]
    with pytest.raises(MetricError, match="k lies outside"):
        skew_at_k(scores, labels, k=5)


def test_scores_may_be_a_tensor_of_half_precision():
    halves = torch.tensor(SCORES, dtype=torch.bfloat16, requires_grad=True)
    assert ndkl(halves, KNOWN["ranked"]) == ndkl(halves.tolist(), KNOWN["ranked"])


@pytest.mark.parametrize("seed", range(4))
def test_ties_by_id_make_the_row_order_irrelevant(seed):
    rng = np.random.default_rng(seed)
    n = 200
    scores, labels = rng.integers(0, 4, n).astype(float), rng.choice(list("abc"), n)
    ids = np.array([f"{i:05d}" for i in rng.permutation(n)])
    order = rng.permutation(n)
    one, other = (
        (skew_at_k(s, g, k=50, ids=i), max_skew_at_k(s, g, k=50, ids=i), ndkl(s, g, ids=i))
        for s, g, i in ((scores, labels, ids), (scores[order], labels[order], ids[order]))
    )
    np.testing.assert_array_equal(one[0].count, other[0].count)
    assert one[1] == other[1] and one[2] == other[2]
    # Without ids the order of the rows decides, and here it matters.
    assert ndkl(scores, labels) != ndkl(scores[order], labels[order])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"k": 5}, "k lies outside"),
        ({"k": 0}, "k lies outside"),
        ({"k": 2.5}, "k lies outside"),
        ({"k": 4, "interval": True}, "k lies outside"),
        ({"groups": ["a"] * 4, "interval": True}, "compares groups"),
        ({"desired": [1.0, 0.0]}, "above zero"),
        ({"desired": {"a": 1.0, "b": 0.0}}, "above zero"),
        ({"desired": [0.5, 0.6]}, "sum to 1"),
        ({"desired": [float("nan"), 0.5]}, "above zero"),
        ({"desired": [0.2, 0.3, 0.5]}, "one per group"),
        ({"desired": {"a": 1.0}}, "no desired share"),
        ({"desired": "fair"}, "unknown desired"),
        ({"scores": [1.0, 2.0, 3.0]}, "same images"),
        ({"scores": [1.0, 2.0, 3.0, float("nan")]}, "finite"),
        ({"groups": [None] * 4}, "no image has a group"),
        ({"groups": [["a"] * 4]}, "one label per image"),
        ({"ids": ["x"]}, "ids"),
    ],
)
def test_what_the_definition_excludes_is_refused(arguments, says):
    given = {"scores": SCORES, "groups": KNOWN["ranked"], "k": 2} | arguments
    scores, groups = given.pop("scores"), given.pop("groups")
    for function in (skew_at_k, max_skew_at_k):
        with pytest.raises(MetricError, match=says):
            function(scores, groups, **given)
    if "k" not in arguments:
        del given["k"]
        with pytest.raises(MetricError, match=says):
            ndkl(scores, groups, **given)
