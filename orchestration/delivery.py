"""MLflow runs that an audit could not write: sent later from the lake, without computing anything."""

from collections.abc import Iterator

import dagster as dg

from assets.partitions import cell_key
from orchestration.audit_run import run_job
from resources.places import Places

_JOBS = {"tracked_run": "deliver_cell", "tracked_answers": "deliver_model"}


def deliver_what_is_left(
    definitions: dg.Definitions, instance: dg.DagsterInstance, places: Places
) -> tuple[int, dict[str, str]]:
    """Send the runs that MLflow has not got, of the cells and generative models of the audit file.

    Returns
    -------
    (int, dict of str to str)
        How many partitions were delivered, and partition -> why not of the others.
    """
    delivered, refused = 0, {}
    for asset, partition in _undelivered(places):
        result, reason = run_job(definitions, instance, _JOBS[asset], partition)
        for event in result.get_asset_materialization_events():
            told = str(event.materialization.metadata["tracking"].value)
            reason = told if told.startswith("not delivered") else None
        if reason is None:
            delivered += 1
        else:
            refused[str(partition)] = reason
    return delivered, refused


def _undelivered(places: Places) -> Iterator[tuple[str, str]]:
    audit, lake = places.audit, places.lake
    partitions = [("tracked_run", cell_key(*cell)) for cell in audit.cells]
    partitions += [("tracked_answers", model) for model in audit.asked_models]
    for asset, partition in partitions:
        made = lake.committed(asset, partition=str(partition))
        if made is not None and lake.read_table(asset, made=made)["mlflow_run"].null_count():
            yield asset, partition
