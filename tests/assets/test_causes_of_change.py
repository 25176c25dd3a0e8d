"""What a diff names as the cause of other numbers, of cells whose rows say nothing of it."""

from types import SimpleNamespace

import polars as pl
import pytest

from assets.audit_comparison import AskedSuites, _causes

ROWS = pl.DataFrame(
    {"checkpoint_sha256": ["w"], "dataset_digest": ["d"], "labeller_sha256": ["l"], "suite": ["crime"],
     "suite_hash": ["h"]}
)  # fmt: skip


def side(checkpoint, weights="w"):
    stored = SimpleNamespace(details={"checkpoint": checkpoint})
    workspace = SimpleNamespace(
        lake=SimpleNamespace(committed=lambda name, partition: stored),
        audit=SimpleNamespace(cells={("faces", "clip"): ("crime",)}, asked_models=()),
    )
    return AskedSuites(workspace, "faces", "clip", ROWS.with_columns(checkpoint_sha256=pl.lit(weights)))


@pytest.mark.parametrize(
    ("new", "causes"),
    [
        (side("a"), []),
        (side("b"), ["the checkpoint, but for its weights: its tokenizer, image processor or configuration"]),
        (side("b", weights="x"), ["the checkpoint"]),
    ],
)
def test_a_tokenizer_or_configuration_that_changed_is_the_checkpoints(new, causes):
    assert list(_causes(side("a"), new, {})) == causes
