"""The asset of factor effects: which cells it reads, in which order, and what it stores."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from upath import UPath

from assets import effects
from plumbline.catalog.suites import load_suite
from plumbline.config.entries import EncoderEntry, Statistics, Thresholds
from plumbline.metrics import Cell, SuiteLogits
from plumbline.metrics.paired.comparisons import EFFECT_SCHEMA
from plumbline.storage import Lake

FACTORS = {
    "small": {"size": "small", "data_source": "atlas"},
    "large": {"size": "large", "data_source": "atlas"},
    "other": {"size": "large", "data_source": "bazaar"},
    "plain": {},
}
N = 80


def cell(dataset, model):
    rng = np.random.default_rng([len(dataset), len(model), ord(model[0])])
    suite = load_suite("crime")
    logits = rng.normal(size=(N, len(suite.candidates))).astype(np.float32)
    records = pl.DataFrame(
        {"image_id": [f"{i:04x}" for i in range(N)], "gender": [("man", "woman")[i % 2] for i in range(N)]}
    )
    return Cell(model=model, dataset=dataset, records=records, logits={"crime": SuiteLogits(suite, logits)}, keep={})


@pytest.fixture
def workspace(tmp_path):
    lake = Lake(UPath(tmp_path))
    encoders = {
        name: EncoderEntry(address=f"local-dir:checkpoints/{name}", factors=factors)
        for name, factors in FACTORS.items()
    }
    audit = SimpleNamespace(
        encoders=encoders, statistics=Statistics(resamples=100, permutations=100), thresholds=Thresholds()
    )
    return SimpleNamespace(lake=lake, audit=audit)


@pytest.fixture
def run(workspace, monkeypatch):
    """Return the run of the asset over given current cells: the table, its manifest and the cells that were read."""

    def materialise(*current):
        read = []

        def find(_, dataset, model):
            read.append((dataset, model))
            return SimpleNamespace(read=lambda: cell(dataset, model))

        listed = [(dataset, model, f"{dataset}-{model}") for dataset, model in current]
        details = {"audit_id": "a" * 64, "current": listed}
        workspace.lake.write_table("metric_table", pl.DataFrame({"value": [1.0]}), details=details)
        monkeypatch.setattr(effects, "StoredCell", SimpleNamespace(find=find))
        result = effects.factor_effects(workspace=workspace)
        made = workspace.lake.require("factor_effects")
        assert result.data_version.value == made.sha256
        return workspace.lake.read_table("factor_effects"), made, read

    return materialise


def test_pairs_are_compared_on_the_datasets_that_both_have(run):
    table, made, read = run(
        ("faces", "plain"), ("faces", "large"), ("faces", "small"), ("scenes", "large"), ("scenes", "other"),
        ("alone", "small"),
    )  # fmt: skip
    # By dataset, encoders in the order of the audit file; a checkpoint without a partner there is not read.
    assert read == [("faces", "small"), ("faces", "large"), ("scenes", "large"), ("scenes", "other")]
    compared = table.select("dataset", "factor", "first", "second").unique(maintain_order=True).rows()
    assert compared == [("faces", "size", "small", "large"), ("scenes", "data_source", "large", "other")]
    assert made.details["audit_id"] == "a" * 64
    assert sorted(made.details["cells"]) == [
        ["faces", "large", "faces-large"], ["faces", "small", "faces-small"],
        ["scenes", "large", "scenes-large"], ["scenes", "other", "scenes-other"],
    ]  # fmt: skip
    assert dict(table.schema) == EFFECT_SCHEMA and table["q"].null_count() == 0


def test_without_pairs_the_table_is_empty_and_nothing_is_read(run):
    for current in ([], [("faces", "plain"), ("faces", "small")], [("faces", "small"), ("scenes", "large")]):
        table, made, read = run(*current)
        assert table.height == 0 and dict(table.schema) == EFFECT_SCHEMA
        assert made.details["cells"] == [] and read == []


def test_equal_cells_give_equal_bytes(run):
    cells = [("faces", "small"), ("faces", "large")]
    assert run(*cells)[1].sha256 == run(*reversed(cells))[1].sha256
