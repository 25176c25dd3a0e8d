"""A graph of four assets that say where they were executed."""

import dagster as dg
from distributed import get_worker

from orchestration.executors import chosen_executor

PARTITIONS = dg.StaticPartitionsDefinition(["a", "b"])


def said(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    worker = get_worker()
    return dg.MaterializeResult(
        metadata={
            "task": str(worker.get_current_task()),
            "resources": sorted(worker.state.total_resources),
            "partition": context.partition_key,
        }
    )


@dg.asset(partitions_def=PARTITIONS)
def made(context: dg.AssetExecutionContext):
    return said(context)


@dg.asset(partitions_def=PARTITIONS, deps=[made], pool="gpu")
def on_a_device(context: dg.AssetExecutionContext):
    return said(context)


@dg.asset_check(asset=made, blocking=True, partitions_def=PARTITIONS)
def is_a(context: dg.AssetCheckExecutionContext):
    return dg.AssetCheckResult(passed=context.partition_key == "a")


@dg.asset(partitions_def=PARTITIONS, deps=[on_a_device])
def last(context: dg.AssetExecutionContext):
    return said(context)


defs = dg.Definitions(
    assets=[made, on_a_device, last],
    asset_checks=[is_a],
    jobs=[dg.define_asset_job("all_of_it", dg.AssetSelection.all())],
    executor=chosen_executor(),
)
