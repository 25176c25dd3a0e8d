"""The asset that compares with the papers: a lake of its own, real and planted datasets, effects of another audit."""

import dagster as dg
import polars as pl
import pytest

from assets.comparison import paper_comparison
from plumbline.catalog.schema import metric_frame
from plumbline.errors import StorageError
from plumbline.metrics.paired.comparisons import EFFECT_SCHEMA
from plumbline.report.comparison import COMPARISON_SCHEMA
from resources.workspace import Workspace

AUDIT = """
labeller: b32
datasets:
  faces: {reader: fairface, root: /data/fairface}
  planted: {reader: fairface, root: "planted:fairface"}
encoders:
  b32: {address: ViT-B-32-quickgelu/openai}
  l14: {address: ViT-L-14-quickgelu/openai}
  mine: {address: "local-dir:checkpoints/mine"}
audit:
  - encoders: all
    datasets: all
"""
SKEW = {
    "metric": "max_skew", "definition": "mean_over_pairs", "suite": "crime", "event": "crime", "attribute": "gender",
    "condition": "before", "statistic": "estimate", "value": 1.2, "ci_low": 1.1, "ci_high": 1.3, "n": 10954,
}  # fmt: skip
EFFECT = {
    "factor": "size", "first": "b32", "second": "l14", "dataset": "faces", "suite": "crime", "attribute": "gender",
    "event": "crime", "metric": "max_skew", "definition": "mean_over_pairs", "value": 0.5, "ci_low": 0.4,
    "ci_high": 0.6, "n": 10954,
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "audit.yaml").write_text(AUDIT)
    return Workspace(tmp_path / "audit.yaml", tmp_path / "home")


def materialise(workspace):
    made = dg.materialize([paper_comparison], resources={"workspace": workspace})
    assert made.success
    return workspace.lake.read_table("paper_comparison"), made.asset_materializations_for_node("paper_comparison")[
        0
    ].metadata


def store(workspace, *rows, effects=None, effects_of="one"):
    workspace.lake.write_table("metric_table", metric_frame(list(rows)), details={"audit_id": "one"})
    if effects is not None:
        frame = pl.DataFrame(effects, schema=EFFECT_SCHEMA)
        workspace.lake.write_table("factor_effects", frame, details={"audit_id": effects_of})


def test_real_data_is_compared_and_the_planted_copy_of_its_layout_is_not(workspace):
    store(workspace, *(SKEW | {"model": m, "dataset": d} for m in ("b32", "l14", "mine") for d in ("faces", "planted")))
    table, metadata = materialise(workspace)
    assert table.select("model", "dataset", "published", "within").rows() == [
        ("l14", "faces", 0.23, False),
        ("b32", "faces", 1.19, True),
    ]
    assert (metadata["within"].value, metadata["differing"].value, metadata["not_judged"].value) == (1, 1, 0)
    assert "Fair" in metadata["differences"].value and "clip-l14-400m" in metadata["fits"].value


def test_the_planted_world_gives_an_empty_table_with_its_columns(workspace):
    store(workspace, SKEW | {"model": "mine", "dataset": "planted"})
    table, metadata = materialise(workspace)
    assert table.is_empty() and table.columns == list(COMPARISON_SCHEMA)
    assert metadata["dagster/row_count"].value == 0


def test_effects_of_the_same_audit_are_compared_and_those_of_an_earlier_one_are_not(workspace):
    store(workspace, SKEW | {"model": "b32", "dataset": "faces"}, effects=[EFFECT])
    table, _ = materialise(workspace)
    assert table.select("model", "reference_model", "published", "within").rows() == [
        ("b32", None, 1.19, True),
        ("b32", "l14", 0.96, False),
    ]
    store(workspace, SKEW | {"model": "b32", "dataset": "faces"}, effects=[EFFECT], effects_of="an earlier one")
    assert materialise(workspace)[0]["reference_model"].to_list() == [None]


def test_it_is_stored_with_what_it_was_made_from_and_again_alike(workspace):
    store(workspace, SKEW | {"model": "b32", "dataset": "faces"})
    materialise(workspace)
    first = workspace.lake.require("paper_comparison")
    assert first.details == {"audit_id": "one", "metric_table": workspace.lake.require("metric_table").sha256}
    materialise(workspace)
    assert workspace.lake.require("paper_comparison").sha256 == first.sha256


def test_without_a_metric_table_it_says_what_to_do_first(workspace):
    with pytest.raises(StorageError, match="materialise `metric_table`"):
        materialise(workspace)
