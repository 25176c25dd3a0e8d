"""Results that an audit did not compute again, as Dagster is told of them.

Dagster calls a result stale as soon as something that it is computed from was made anew with other content. The rule
of `assets.up_to_date` looks closer: a family of metrics whose own suite is as it was is up to date though other
responses of the cell changed. Such a result is reported as materialised, with the data version that it has, so that
both agree.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from functools import cache

import dagster as dg
from dagster import EventLogRecord
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    extract_data_version_from_entry,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

from orchestration.conditions import dimensions
from plumbline.storage import Lake
from plumbline.storage.builds import read_build


def report_unchanged(
    instance: dg.DagsterInstance,
    graph: AssetGraph,
    lake: Lake,
    assets: Iterable[str],
    partition: str | None,
    *,
    anew: Collection[tuple[str, str]],
) -> list[str]:
    """Report the assets of a partition that are computed from something new, and came out to be up to date.

    Parameters
    ----------
    anew : collection of (str, str)
        Asset or source, and partition, of everything that was made or found anew since Dagster was last told.

    Returns
    -------
    list of str
        The assets that were reported.
    """
    reported, known = [], _Known(instance)
    for asset in assets:
        one, key = (asset, partition or ""), dg.AssetKey(asset)
        if one in anew or not any(concerns(graph, *one, other) for other in anew):
            continue
        build = read_build(lake, *one)
        if build is None:
            continue
        inputs = _inputs(known, graph, key, partition)
        if inputs.items() <= known.last_tags(key, partition).items():
            continue
        tags = {
            DATA_VERSION_TAG: build.data_version,
            DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
            CODE_VERSION_TAG: build.code,
            **inputs,
        }
        since = {"unchanged since": dg.MetadataValue.dagster_run(build.run)}
        instance.report_runless_asset_event(
            dg.AssetMaterialization(key, partition=partition, metadata=since, tags=tags)
        )
        known.forget(key, partition)
        reported.append(asset)
    return reported


class _Known:
    """What Dagster was last told of results and sources, each asked for once."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._records: dict[tuple[dg.AssetKey, str | None], EventLogRecord | None] = {}

    def record(self, key: dg.AssetKey, partition: str | None, *, source: bool = False) -> EventLogRecord | None:
        """Return the newest record that says a data version."""
        if (key, partition) not in self._records:
            record = self._instance.get_latest_data_version_record(key, source, partition)
            self._records[key, partition] = record
        return self._records[key, partition]

    def last_tags(self, key: dg.AssetKey, partition: str | None) -> Mapping[str, str]:
        """Return the tags of what Dagster was last told of a result."""
        record = self.record(key, partition)
        materialization = None if record is None else record.event_log_entry.asset_materialization
        return {} if materialization is None else materialization.tags or {}

    def forget(self, key: dg.AssetKey, partition: str | None) -> None:
        """Ask again for something of which Dagster was told anew."""
        self._records.pop((key, partition), None)


def concerns(graph: AssetGraph, asset: str, partition: str, other: tuple[str, str]) -> bool:
    """Return whether a result is computed, directly or not, from a partition of something else."""
    key, source = dg.AssetKey(asset), dg.AssetKey(other[0])
    if source not in _ancestors(graph, key):
        return False
    mine = _parts(graph, key, partition)
    return all(mine.get(name, value) == value for name, value in _parts(graph, source, other[1]).items())


@cache  # Dagster walks the graph each time, and every result is asked about everything that was made anew
def _ancestors(graph: AssetGraph, key: dg.AssetKey) -> Set[dg.AssetKey]:
    return graph.get_ancestor_asset_keys(key)


def _parts(graph: AssetGraph, key: dg.AssetKey, partition: str) -> dict[str, str]:
    return dict(zip(dimensions(graph.get(key).partitions_def), partition.split("|")))


def _inputs(known: _Known, graph: AssetGraph, key: dg.AssetKey, partition: str | None) -> dict[str, str]:
    """Return what Dagster notes of each input: its newest data version, and the event that told it."""
    tags, parts = {}, _parts(graph, key, partition or "")
    for parent in graph.get(key).parent_keys:
        node = graph.get(parent)
        names = dimensions(node.partitions_def)
        if not set(names) <= parts.keys():
            continue
        of_parent = "|".join(parts[name] for name in names) or None
        record = known.record(parent, of_parent, source=node.is_external)
        version = None if record is None else extract_data_version_from_entry(record.event_log_entry)
        if record is not None and version is not None:
            tags[get_input_data_version_tag(parent)] = version.value
            tags[get_input_event_pointer_tag(parent)] = str(record.storage_id)
    return tags
