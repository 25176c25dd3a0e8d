"""The asset of the text space: a table of rows and one of words, or none with the reason."""

from types import SimpleNamespace

import dagster as dg
import numpy as np
import pytest
from upath import UPath

from assets.geometry import NO_TEXT_SPACE, WORDS, valence_geometry
from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.catalog.suites import all_texts, load_suite, own_texts
from plumbline.config.entries import Statistics, Thresholds
from plumbline.digests import digest_bytes
from plumbline.metrics.text_space import GEOMETRY_SCHEMA
from plumbline.recording import note
from plumbline.storage import Lake

ENCODER = "small"


@pytest.fixture
def lake(tmp_path):
    return Lake(UPath(tmp_path))


def run(lake, array, without=(), **statistics):
    own = {name: texts for name, texts in own_texts().items() if name not in without}
    ends = np.cumsum([len(texts) for texts in own.values()])
    parts = dict(zip(own, np.split(array, ends[:-1]))) if array.size else {}
    embedded = {name: [len(part), digest_bytes(part.tobytes())] for name, part in parts.items()}
    details = {
        "texts": [text for texts in own.values() for text in texts],
        "embedded": embedded,
        "weights_sha256": "w" * 64,
    }
    lake.write_arrays("text_embeddings", {"embedding": array}, partition=ENCODER, details=details)
    audit = SimpleNamespace(statistics=Statistics(**statistics), thresholds=Thresholds())
    context = dg.build_asset_context(partition_key=ENCODER)
    return valence_geometry(context, workspace=SimpleNamespace(lake=lake, audit=audit, note=note))


def vectors(seed=0):
    return np.random.default_rng(seed).normal(size=(len(all_texts()), 8)).astype(np.float32)


def test_rows_and_words_are_stored_with_what_they_come_from(lake):
    result = run(lake, vectors())
    rows = lake.read_table("valence_geometry", partition=ENCODER)
    assert rows.columns == list(METRIC_SCHEMA) and rows.height > 30
    assert set(rows["dataset"]) == {"text"} and set(rows["checkpoint_sha256"]) == {"w" * 64}
    made = lake.require("valence_geometry", partition=ENCODER)
    assert set(rows["cell_id"]) == {made.details["geometry_id"]} and made.details["reason"] is None
    words = lake.read_table(WORDS, partition=ENCODER)
    assert dict(words.schema) == GEOMETRY_SCHEMA and result.metadata["words"] == words.height == 32
    assert result.data_version.value == made.sha256


def test_another_text_space_or_setting_is_another_identity(lake):
    def identity():
        return lake.require("valence_geometry", partition=ENCODER).details["geometry_id"]

    run(lake, vectors())
    first = identity()
    run(lake, vectors())
    assert identity() == first
    run(lake, vectors(1))
    assert identity() != first
    run(lake, vectors(), confidence=0.9)
    assert identity() != first
    others = vectors()
    others[all_texts().index(load_suite("crime").texts[0])] += 1  # a prompt that it is not measured by
    run(lake, others)
    assert identity() == first


def test_a_model_without_a_text_space_has_empty_tables_and_a_reason(lake):
    result = run(lake, np.zeros((0, 0), np.float32))
    assert result.metadata["reason"] == NO_TEXT_SPACE and result.metadata["dagster/row_count"] == 0
    assert lake.read_table("valence_geometry", partition=ENCODER).columns == list(METRIC_SCHEMA)
    assert dict(lake.read_table(WORDS, partition=ENCODER).schema) == GEOMETRY_SCHEMA


def test_of_stored_embeddings_what_their_prompts_allow_is_measured_and_the_rest_is_named(lake):
    result = run(lake, vectors(), without=["perception_words"])
    rows = lake.read_table("valence_geometry", partition=ENCODER)
    assert set(rows["suite"]) == {"perception"} and result.metadata["words"] == 32
    words = load_suite("perception_words").texts
    why = f"not computed from stored embeddings: perception_words; {len(words)} of {len(words)} prompts have none"
    assert why in result.metadata["reason"]


def test_it_is_made_for_every_encoder_from_its_prompts():
    assert valence_geometry.partitions_def.name == "encoder"
    assert valence_geometry.asset_deps[dg.AssetKey("valence_geometry")] == {dg.AssetKey("text_embeddings")}
