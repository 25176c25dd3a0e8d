"""The partitions of the graph: datasets, encoders and their grid; generative models, slices of datasets and theirs.

All are registered from the audit file, slices once the records of their dataset are known.
"""

from typing import NamedTuple

import dagster as dg

from plumbline.config.audit import Audit

DATASETS = dg.DynamicPartitionsDefinition(name="dataset")
ENCODERS = dg.DynamicPartitionsDefinition(name="encoder")
LVLMS = dg.DynamicPartitionsDefinition(name="lvlm")
SLICES = dg.DynamicPartitionsDefinition(name="slice")
GRID = dg.MultiPartitionsDefinition({"dataset": DATASETS, "encoder": ENCODERS})
ANSWERS = dg.MultiPartitionsDefinition({"lvlm": LVLMS, "slice": SLICES})


def named_partitions(audit: Audit) -> dict[str, list[str]]:
    """Return definition -> keys that the audit file names; slices follow from the records of their datasets."""
    return {DATASETS.name: [*audit.datasets], ENCODERS.name: [*audit.encoders], LVLMS.name: [*audit.lvlms]}


def cell_key(dataset: str, encoder: str) -> dg.MultiPartitionKey:
    """Return the partition key of a cell; it reads `dataset|encoder`."""
    return dg.MultiPartitionKey({"dataset": dataset, "encoder": encoder})


class GridCell(NamedTuple):
    """An encoder on a dataset."""

    dataset: str
    encoder: str


def cell_of(context: dg.AssetExecutionContext) -> GridCell:
    """Return the running cell."""
    return GridCell(*context.partition_key.split("|"))


def answers_key(model: str, slice_id: str) -> dg.MultiPartitionKey:
    """Return the partition key of a generative model on a slice; it reads `model|slice`."""
    return dg.MultiPartitionKey({"lvlm": model, "slice": slice_id})


class ModelSlice(NamedTuple):
    """A generative model on a slice."""

    model: str
    slice_id: str


def answers_of(context: dg.AssetExecutionContext) -> ModelSlice:
    """Return the model and slice of the running partition."""
    return ModelSlice(*context.partition_key.split("|"))
