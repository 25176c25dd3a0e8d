"""The partitions of the graph: datasets, encoders and their grid; generative models, slices of datasets and theirs.

All are registered from the audit file, slices once the records of their dataset are known.
"""

import dagster as dg

DATASETS = dg.DynamicPartitionsDefinition(name="dataset")
ENCODERS = dg.DynamicPartitionsDefinition(name="encoder")
LVLMS = dg.DynamicPartitionsDefinition(name="lvlm")
SLICES = dg.DynamicPartitionsDefinition(name="slice")
GRID = dg.MultiPartitionsDefinition({"dataset": DATASETS, "encoder": ENCODERS})
ANSWERS = dg.MultiPartitionsDefinition({"lvlm": LVLMS, "slice": SLICES})


def cell_key(dataset: str, encoder: str) -> dg.MultiPartitionKey:
    """Return the partition key of a cell; it reads `dataset|encoder`."""
    return dg.MultiPartitionKey({"dataset": dataset, "encoder": encoder})


def cell_of(context: dg.AssetExecutionContext) -> tuple[str, str]:
    """Return (dataset, encoder) of the running cell."""
    dataset, encoder = context.partition_key.split("|")
    return dataset, encoder


def answers_key(model: str, slice_id: str) -> dg.MultiPartitionKey:
    """Return the partition key of a generative model on a slice; it reads `model|slice`."""
    return dg.MultiPartitionKey({"lvlm": model, "slice": slice_id})


def answers_of(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> tuple[str, str]:
    """Return (model, slice) of the running partition."""
    model, slice_id = context.partition_key.split("|")
    return model, slice_id
