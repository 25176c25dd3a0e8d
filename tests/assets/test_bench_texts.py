"""Mitigations of texts are given the prompts of a cell and the captions of its judged images, each once."""

from types import SimpleNamespace

import numpy as np
import polars as pl

from assets import text_mitigations
from plumbline.recording import note

EMBEDDED = ("a photo of a thief", "a photo of a man", "not of this cell")
"""What the encoder has embedded for all its suites: one of them is also a caption."""
FEATURES = np.eye(3, 4, dtype=np.float32)


class Lake:
    """The stored texts and records of a cell."""

    def require(self, name, partition):
        details = {"identity": "same", "texts": list(EMBEDDED), "embedded": {"crime": [3, "digest"]}, "shards": []}
        return SimpleNamespace(name=name, partition=partition, details=details)

    def read_table(self, name, manifest):
        rows = {"image_id": ["a", "b", "c"], "gender": ["man", "woman", "man"], "split": ["test"] * 3}
        return pl.DataFrame(rows)

    def read_arrays(self, name, manifest):
        return {"embedding": FEATURES}


def test_a_caption_that_is_embedded_for_another_suite_is_among_the_texts(monkeypatch):
    asked = []

    def embed(encoder, texts, store):
        asked.extend(texts)
        return SimpleNamespace(array=np.full((len(texts), 4), 7, dtype=np.float32))

    monkeypatch.setattr(text_mitigations, "embed_texts", embed)
    monkeypatch.setattr(text_mitigations, "stored_embeddings", lambda shards, store: np.zeros((3, 4)))
    monkeypatch.setattr(text_mitigations, "prompts_of", lambda stored: ("a photo of a thief",))
    stored = SimpleNamespace(
        workspace=SimpleNamespace(lake=Lake(), shards=None, note=note), model="m", partition="d|m", extended=None
    )
    encoder = SimpleNamespace(identity=SimpleNamespace(digest="same"))
    bench = text_mitigations._Bench.of(stored, SimpleNamespace(get=lambda model: encoder))
    assert bench.texts == ("a photo of a thief", "a photo of a man", "a photo of a woman")
    assert asked == ["a photo of a woman"]
    np.testing.assert_array_equal(bench.features, [FEATURES[0], FEATURES[1], [7] * 4])
