"""Which checkpoint of the studies an address of an audit file is."""

import itertools

import pytest

from plumbline.catalog.studies import recognise, study_checkpoint, study_checkpoints
from plumbline.errors import StorageError

COMMIT = "@" + "0123456789" * 4


@pytest.mark.parametrize(
    ("address", "checkpoint"),
    [
        ("ViT-B-32-quickgelu/openai", "clip-b32-400m"),
        ("ViT-L-14-quickgelu/openai", "clip-l14-400m"),
        ("ViT-L-14-336-quickgelu/openai", "clip-l14-400m"),
        ("ViT-B-32-quickgelu/laion400m_e32", "openclip-b32-400m"),
        ("ViT-B-32/laion2b_s34b_b79k", "openclip-b32-2b"),
        ("ViT-L-14/laion400m_e32", "openclip-l14-400m"),
        ("ViT-L-14/laion2b_s32b_b82k", "openclip-l14-2b"),
        (f"hf-hub:laion/CLIP-ViT-L-14-laion2B-s32B-b82K{COMMIT}", "openclip-l14-2b"),
        (f"hf-hub:kakaobrain/align-base{COMMIT}", "align-base"),
        (f"hf-hub:google/owlv2-base-patch16-ensemble{COMMIT}", "owlv2-base"),
        (f"hf-hub:llava-hf/bakLlava-v1-hf{COMMIT}", "bakllava-7b"),
    ],
)
def test_an_address_of_a_study_is_recognised(address, checkpoint):
    assert recognise(address).id == checkpoint


@pytest.mark.parametrize(
    "address",
    [
        "local-dir:plumbline/world/checkpoints/small-atlas-3k",
        "local-dir:ViT-B-32-quickgelu/openai",
        # The plain configuration has another activation than these weights were trained with.
        "ViT-B-32/openai",
        "ViT-B-32/laion400m_e32",
        f"hf-hub:google/owlv2-large-patch14-ensemble{COMMIT}",
    ],
)
def test_another_address_is_not(address):
    assert recognise(address) is None


def test_the_grid_of_the_contrastive_audit_has_seven_pairs_that_differ_in_one_factor():
    grid = [c for c in study_checkpoints().values() if "data_matters_most" in c.studies]
    assert len(grid) == 6
    assert {frozenset(c.factors) for c in grid} == {frozenset({"size", "data_amount", "data_source"})}
    pairs = [
        (a, b)
        for a, b in itertools.combinations(grid, 2)
        if sum(a.factors[name] != b.factors[name] for name in a.factors) == 1
    ]
    assert len(pairs) == 7


def test_a_name_that_is_none_is_refused_with_the_names_there_are():
    with pytest.raises(StorageError, match=r"clip-b16(.|\n)*clip-b32-400m"):
        study_checkpoint("clip-b16")
