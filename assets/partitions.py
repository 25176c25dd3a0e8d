"""The partitions of the graph: datasets, encoders, and the grid of both, registered from the audit file."""

import dagster as dg

DATASETS = dg.DynamicPartitionsDefinition(name="dataset")
ENCODERS = dg.DynamicPartitionsDefinition(name="encoder")
GRID = dg.MultiPartitionsDefinition({"dataset": DATASETS, "encoder": ENCODERS})


def cell_key(dataset: str, encoder: str) -> dg.MultiPartitionKey:
    """Return the partition key of a cell; it reads `dataset|encoder`."""
    return dg.MultiPartitionKey({"dataset": dataset, "encoder": encoder})


def cell_of(context: dg.AssetExecutionContext) -> tuple[str, str]:
    """Return (dataset, encoder) of the running cell."""
    dataset, encoder = context.partition_key.split("|")
    return dataset, encoder
