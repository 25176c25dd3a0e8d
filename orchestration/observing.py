"""What has changed on disk: fingerprints of sources, and the sensor that reads those that may have changed."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg

from assets.lineage import dataset_root
from assets.partitions import SLICES, named_partitions
from assets.sources import report_sources, source_names
from orchestration.conditions import asked_partitions
from plumbline.digests import digest_json, digest_sequence
from plumbline.errors import PlumblineError
from plumbline.world.folders import PLANTED
from resources.workspace import Workspace

_ENDPOINT_S = 3600
"""An endpoint is asked once an hour what it is: that costs a token."""


def source_fingerprints(workspace: Workspace) -> dict[str, str]:
    """Return a fingerprint for every source of the audit file, by `source` or `source partition`.

    A fingerprint is a digest of names, sizes, times and inodes of all files: one that differs says only that the source
    has to be read. A source whose place is not known is left out.
    """
    fingerprints = {}
    for asset, partition in source_names(workspace):
        try:
            fingerprints[" ".join(filter(None, (asset, partition)))] = _fingerprint(workspace, asset, partition)[:16]
        except PlumblineError:
            continue
    return fingerprints


def folder_fingerprint(folder: Path) -> str:
    """Return the fingerprint of a folder with all that is in it; of one that is not there that of an empty one."""
    return digest_sequence(sorted(_entries(folder, ""))) if folder.is_dir() else digest_sequence([])


def _entries(folder: Path, inside: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _entries(Path(entry.path), name)
                continue
            with contextlib.suppress(FileNotFoundError):  # gone since, or a link to nothing
                stat = entry.stat()
                yield f"{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"


def _fingerprint(workspace: Workspace, asset: str, partition: str | None) -> str:
    if partition is None:
        return folder_fingerprint(Path(str(files("plumbline.catalog"))))
    if asset == "lvlm_checkpoint" and (endpoint := workspace.lvlm_entry(partition).endpoint) is not None:
        hour = int(time.time()) // _ENDPOINT_S if endpoint.follow else None
        return digest_json([endpoint.model_dump(mode="json"), hour])
    if asset == "lvlm_checkpoint" and (answers := workspace.lvlm_entry(partition).answers) is not None:
        return digest_json([answers.model_dump(mode="json"), workspace.lvlm_version(partition)])
    entry: object
    if asset == "dataset_folder":
        dataset, folder = workspace.dataset_entry(partition), dataset_root(workspace, partition)
        entry = dataset.model_dump(mode="json")
        if dataset.root.startswith(PLANTED):
            # Of a planted one that is not there yet nothing is written here: that takes longer than a look may.
            entry, folder = dataset.root, folder.parent
    elif asset == "encoder_checkpoint":
        encoder = workspace.audit.encoders[partition]
        entry, folder = encoder.model_dump(mode="json"), workspace.checkpoint_folder(encoder.address)
        folder = folder.parent if folder.is_file() else folder  # one table of predictions
    else:
        entry = workspace.lvlm_entry(partition).address
        folder = workspace.checkpoint_folder(str(entry))
    return digest_json([entry, folder_fingerprint(folder)])


_EVERY_S = 30


class Looked(dg.Config):
    """What is read: `source` or `source partition`, as `encoder_checkpoint clip-b32`."""

    sources: list[str]


@dg.op(description="Digest some sources and report the versions of those whose content has changed.")
def read_sources(context: dg.OpExecutionContext, config: Looked, workspace: dg.ResourceParam[Workspace]) -> None:
    """Read what the sensor saw."""
    named = [source.partition(" ") for source in config.sources]
    changed = report_sources(context.instance, workspace, [(asset, name or None) for asset, _, name in named])
    context.log.info("changed: %s", ", ".join(changed) or "nothing")


@dg.job(description="Read sources that may have changed, and report their versions. The sensor starts it.")
def observe_sources() -> None:
    """Digest what the sensor saw."""
    read_sources()


@dg.sensor(
    job=observe_sources,
    minimum_interval_seconds=_EVERY_S,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Checks dataset folders, checkpoints, prompts and word lists by file size and time, and digests those "
    "that changed and are no longer being written. Queries endpoints for their model once an hour.",
)
def watch_sources(context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]) -> dg.SensorResult:
    """Compare what can be seen of the sources with the last two looks."""
    before: dict[str, dict[str, str]] = json.loads(context.cursor or "{}")
    cursor, due = {}, []
    for source, fingerprint in source_fingerprints(workspace).items():
        last = before.get(source, {})
        # The same twice: nobody is writing it any more.
        if fingerprint == last.get("seen") and fingerprint != last.get("read"):
            due.append(source)
            last = last | {"read": fingerprint}
        cursor[source] = last | {"seen": fingerprint}
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_config=_config(due))] if due else [],
        skip_reason=None if due else dg.SkipReason("nothing looks different, or it is still being written"),
        cursor=json.dumps(cursor),
        dynamic_partitions_requests=new_partitions(context.instance, workspace),
    )


def new_partitions(
    instance: dg.DagsterInstance, workspace: Workspace
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Return the partitions that the audit file names and Dagster does not know yet."""
    wanted = named_partitions(workspace.audit) | {SLICES.name: sorted(asked_partitions(workspace, SLICES.name))}
    known = {name: set(instance.get_dynamic_partitions(name)) for name in wanted}
    lacking = {name: [key for key in keys if key not in known[name]] for name, keys in wanted.items()}
    return [dg.AddDynamicPartitionsRequest(name, keys) for name, keys in lacking.items() if keys]


def _config(sources: list[str]) -> dict[str, Any]:
    return {"ops": {"read_sources": {"config": {"sources": sources}}}}
