"""What a notebook computes of a home's embeddings and labels is what the home holds, family by family."""

import numpy as np
import polars as pl

import plumbline
from assets.cells import StoredCell
from assets.embeddings import StoredPrompts
from assets.images import stored_embeddings
from assets.metrics import metric_settings
from plumbline.catalog.schema import IDENTIFYING
from plumbline.metrics.registry import FAMILIES


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
    joined = stored.join(found.table, on=IDENTIFYING, how="left", nulls_equal=True, suffix="_found", validate="1:1")
    assert joined.height > 1000
    for name in ("value", "ci_low", "ci_high", "p", "n"):
        expected, given = (joined[each].cast(pl.Float64).fill_null(-9).to_numpy() for each in (name, f"{name}_found"))
        np.testing.assert_allclose(given, expected, rtol=1e-12, atol=1e-12, err_msg=name)
    assert joined["suite_hash"].equals(joined["suite_hash_found"].alias("suite_hash"))
