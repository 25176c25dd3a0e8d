"""What memory computes of a home's embeddings and labels is what the home holds, family by family."""

import shutil

import numpy as np
import polars as pl
import pytest

import plumbline
from assets.cells import StoredCell
from assets.embeddings import StoredPrompts
from assets.images import stored_embeddings
from assets.metrics import metric_settings
from plumbline.catalog.schema import IDENTIFYING
from plumbline.commands.places import dataset_place
from plumbline.config.audit import Audit
from plumbline.encoders.folders import load_encoder
from plumbline.errors import CheckpointError
from plumbline.metrics.registry import FAMILIES
from plumbline.notebook.files import _encoder, audit_in_memory
from resources.checkout import PROJECT

NUMBERS = ("value", "ci_low", "ci_high", "p", "n")


def require_equal(rows, given):
    """Require every row of one table to stand in another with the same numbers."""
    joined = rows.join(given, on=IDENTIFYING, how="left", nulls_equal=True, suffix="_found", validate="1:1")
    for name in NUMBERS:
        expected, found = (joined[each].cast(pl.Float64).fill_null(-9).to_numpy() for each in (name, f"{name}_found"))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=name)
    return joined


def test_an_audit_in_memory_gives_the_numbers_of_the_home(audited):
    workspace = audited[0].workspace
    cell = StoredCell.find(workspace, "fairface", "small-control-3k")
    texts = [text for suite in cell.suites for text in suite.texts]
    found = plumbline.audit_features(
        stored_embeddings(workspace, workspace.lake.require("image_embeddings", partition=cell.partition)),
        text_features=dict(zip(texts, StoredPrompts.find(workspace, cell.model).read(texts))),
        labels=workspace.lake.read_table("extended_records", manifest=cell.extended),
        suites=cell.suites,
        filters=cell.filters,
        name=cell.model,
        dataset=cell.dataset,
        min_shown=1,
        logit_scale=cell.logits.details["logit_scale"],
        **vars(metric_settings(workspace)),
    )
    stored = pl.concat([workspace.lake.read_table(family, partition=cell.partition) for family in FAMILIES])
    joined = require_equal(stored, found.table)
    assert joined.height > 1000
    assert joined["suite_hash"].equals(joined["suite_hash_found"].alias("suite_hash"))


def test_a_checkpoint_that_is_replaced_while_it_is_loading_is_not_audited(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    shutil.copytree(PROJECT / "plumbline/world/checkpoints/small-control-3k", folder)
    content = {
        "encoders": {"mine": {"address": f"local-dir:{folder}"}},
        "labeller": "mine",
        "datasets": {},
        "audit": [],
    }

    def load_late(files, placement):
        other = PROJECT / "plumbline/world/checkpoints/small-bazaar-3k"
        for path in other.glob("*.safetensors"):
            (folder / path.name).unlink(missing_ok=True)
            shutil.copyfile(path, folder / path.name)
        return load_encoder(files, placement)

    monkeypatch.setattr("plumbline.notebook.files.load_encoder", load_late)
    with pytest.raises(CheckpointError, match="`mine` was replaced while it was loading"):
        _encoder(Audit.model_validate(content), "mine", home=tmp_path, start=tmp_path)


@pytest.mark.parametrize("suites", [["crime"], pytest.param(None, marks=pytest.mark.slow)])
def test_the_command_in_memory_gives_the_numbers_of_the_pipeline_and_says_what_it_leaves_out(audited, tmp_path, suites):
    workspace = audited[0].workspace
    content = workspace.audit.model_dump(mode="json", exclude_unset=True)
    if suites:
        content["audit"] = [{"suites": suites, "encoders": ["small-control-3k"]}]
    shutil.copytree(workspace.home / "lake" / "embeddings", tmp_path / "embeddings")
    done = audit_in_memory(
        Audit.model_validate(content),
        name="audit.yaml",
        home=tmp_path,
        start=PROJECT,
        place=lambda root: dataset_place(root, home=workspace.home),
    )
    # Mitigations have rows of the images that they are judged on, before them too.
    whole = workspace.lake.read_table("metric_table").filter(pl.col("definition") != "test_rows", condition="before")
    joined = require_equal(done.table, whole)
    assert joined.height > (90 if suites else 1500)
    for lineage in ("dataset_digest", "checkpoint_sha256", "suite_hash"):
        assert joined[lineage].equals(joined[f"{lineage}_found"].alias(lineage)), lineage
    absent = whole.join(done.table, on=IDENTIFYING, how="anti", nulls_equal=True)
    reasons = {each.reason.partition(":")[0] for each in done.inputs.not_tried}
    assert "mitigations (logit_adjustment)" in reasons
    if suites is None:
        needs_labels = {"trident_mixed", "trident_composite", "gender_labels"}
        of_both = (pl.col("metric") == "probe_rate_normalised") & (pl.col("definition") == "joint")
        left = absent.filter(~pl.col("suite").is_in(needs_labels) & ~of_both)
        assert left.is_empty(), left.group_by("suite", "metric", "definition").len()
        assert {"`trident_composite`", "mixed Trident tests, and rates normalised over both"} <= reasons
