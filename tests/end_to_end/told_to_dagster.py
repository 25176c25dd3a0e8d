"""What Dagster was told of a home: its runs, what they made, and what it calls stale."""

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from assets.partitions import cell_key
from orchestration.definitions import build_definitions


def made_since(instance, runs_before):
    """Return the (asset, partition) that were computed in runs after those."""
    new = [run for run in instance.get_runs() if run.run_id not in runs_before]
    events = [instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION) for run in new]
    made = [entry.dagster_event.event_specific_data.materialization for log in events for entry in log]
    return {(each.asset_key.to_user_string(), str(each.partition or "")) for each in made}


def runs(instance):
    return {run.run_id for run in instance.get_runs()}


def stale_to_dagster(home, instance):
    """Return what of the audit Dagster itself calls stale or missing."""
    definitions = build_definitions(home.workspace)
    graph = definitions.resolve_asset_graph()
    with instance:
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        cells = [cell_key(*cell) for cell in home.workspace.audit.cells]
        found = {}
        for key in definitions.resolve_job_def("cells").asset_layer.selected_asset_keys:
            for cell in cells:
                if (status := resolver.get_status(key, cell)) is not StaleStatus.FRESH:
                    found[key.to_user_string(), str(cell)] = status
    return found
