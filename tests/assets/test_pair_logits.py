"""Pair logits are recorded with what they were computed from, or not at all."""

from types import SimpleNamespace

import pytest

from assets import logits
from plumbline.encoders.encoder import EncoderIdentity
from plumbline.errors import CheckpointError
from plumbline.storage import Committed

IDENTITY = EncoderIdentity(weights="w", processor="p", backend="b", decoder="d", dtype="float32")
OTHER = EncoderIdentity(weights="x", processor="p", backend="b", decoder="d", dtype="float32")


def committed(identity, records="r" * 64):
    details = {"identity": identity.digest, "records_sha256": records}
    return Committed("image_embeddings", "d|m", "table", "s", 1, 1, details)


@pytest.mark.parametrize(
    ("identity", "records", "said"),
    [(OTHER, "r" * 64, "identity"), (IDENTITY, "n" * 64, "records_sha256 nnnnnnnnnnnn")],
)
def test_what_changed_since_the_images_were_listed_is_refused(monkeypatch, identity, records, said):
    listed = SimpleNamespace(paths=[], image_ids=[], records_sha256=records)
    monkeypatch.setattr(logits, "listed_images", lambda workspace, dataset: listed)
    encoders = SimpleNamespace(get=lambda model: SimpleNamespace(identity=identity))
    with pytest.raises(CheckpointError, match=said):
        logits._score(None, encoders, "d", "m", (), committed(IDENTITY))


def test_prompts_and_images_must_have_been_run_in_one_way():
    logits._require_together("m", committed(IDENTITY), committed(IDENTITY))
    with pytest.raises(CheckpointError, match="how it runs"):
        logits._require_together("m", committed(IDENTITY), committed(OTHER))
