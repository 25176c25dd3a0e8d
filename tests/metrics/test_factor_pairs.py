"""Pairs of checkpoints that differ in one factor, and which of a pair comes first."""

import pytest

from plumbline.catalog.published import published_values
from plumbline.catalog.studies import study_checkpoints
from plumbline.metrics.paired.comparisons import FactorPair, factor_pairs


def grid(*rows):
    names = ("size", "data_amount", "data_source")
    return {"-".join(row): dict(zip(names, row)) for row in rows}


def test_pairs_differ_in_one_factor_and_hold_the_others():
    rows = [("small", "3k", "atlas"), ("large", "3k", "atlas"), ("small", "6k", "atlas"), ("large", "6k", "web")]
    found = factor_pairs(grid(*rows))
    assert found == (
        FactorPair("size", "small", "large", "small-3k-atlas", "large-3k-atlas", "3k, atlas"),
        FactorPair("data_amount", "3k", "6k", "small-3k-atlas", "small-6k-atlas", "small, atlas"),
    )


def test_of_three_levels_every_two_are_a_pair():
    sources = factor_pairs({name: {"data_source": name} for name in ("a", "b", "c")})
    assert [(pair.first, pair.second, pair.held) for pair in sources] == [
        ("a", "b", ""), ("a", "c", ""), ("b", "c", "")
    ]  # fmt: skip


def test_the_level_that_the_file_names_first_is_the_first_of_every_pair():
    # large-3k stands before small-3k, but small was named before large.
    encoders = {"x": ("small", "6k"), "large-3k": ("large", "3k"), "small-3k": ("small", "3k")}
    found = factor_pairs({name: {"size": s, "data_amount": d} for name, (s, d) in encoders.items()})
    assert [(pair.factor, pair.first, pair.second) for pair in found] == [
        ("size", "small-3k", "large-3k"),
        ("data_amount", "x", "small-3k"),
    ]


def test_what_is_not_declared_is_not_held():
    assert factor_pairs({"a": {"size": "s"}, "b": {"size": "l", "data_amount": "3k"}}) == ()
    assert factor_pairs({"a": {}, "b": {}}) == ()
    assert factor_pairs({}) == ()
    assert factor_pairs({"a": {"size": "s"}, "b": {"size": "s"}}) == ()


@pytest.mark.parametrize("backwards", [False, True])
def test_on_the_published_grid_pairs_and_signs_are_the_papers(backwards):
    declared = [(name, c.factors) for name, c in study_checkpoints().items() if c.factors]
    found = factor_pairs(dict(reversed(declared) if backwards else declared))
    published = published_values().filter(
        paper="data_matters_most", dataset="fairface", event="crime", status="recomputed"
    )
    wanted = published.select("factor", "checkpoint", "reference_checkpoint").unique().rows()
    assert len(wanted) == 7
    assert sorted((pair.factor, pair.first, pair.second) for pair in found) == sorted(wanted)
    assert {(pair.level_first, pair.level_second) for pair in found} == {
        ("B/32", "L/14"),
        ("400M", "2B"),
        ("LAION", "proprietary"),
    }


def test_the_papers_order_is_known_in_the_spellings_of_checkpoints():
    for factor, first, second in (
        ("size", "ViT-B-32", "ViT-L-14-336"),
        ("size", "vit_b/32", "l14"),
        ("data_source", "OpenCLIP", "CLIP"),
        ("data_source", "laion", "OpenAI"),
    ):
        (pair,) = factor_pairs({"b": {factor: second}, "a": {factor: first}})
        assert (pair.level_first, pair.level_second, pair.first) == (first, second, "a")


def test_two_spellings_of_one_published_level_follow_the_file():
    (pair,) = factor_pairs({"fine": {"size": "L/14-336"}, "plain": {"size": "L/14"}})
    assert (pair.first, pair.second) == ("fine", "plain")
