"""Who looks at the sources: a sensor that sees where something may have changed, and a job that reads it."""

import json
from typing import Any

import dagster as dg

from assets.partitions import SLICES, named_partitions
from assets.sources import report_sources
from orchestration.conditions import asked_partitions
from orchestration.fingerprints import source_fingerprints
from resources.workspace import Workspace

_EVERY_S = 30


class Looked(dg.Config):
    """What is read: `source` or `source partition`, as `encoder_checkpoint clip-b32`."""

    sources: list[str]


@dg.op(description="Digest some sources and report the versions of those whose content has changed.")
def read_sources(
    context: dg.OpExecutionContext, config: Looked, workspace: dg.ResourceParam[Workspace]
) -> None:
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
    description="Looks at dataset folders, checkpoints, prompts and word lists without reading them, and has read what "
    "looks different and has come to rest. Endpoints are asked once an hour what they are.",
)
def watch_sources(
    context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
) -> dg.SensorResult:
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
    wanted = named_partitions(workspace.audit) | {
        SLICES.name: sorted(asked_partitions(workspace)[SLICES.name])
    }
    known = {name: set(instance.get_dynamic_partitions(name)) for name in wanted}
    lacking = {name: [key for key in keys if key not in known[name]] for name, keys in wanted.items()}
    return [dg.AddDynamicPartitionsRequest(name, keys) for name, keys in lacking.items() if keys]


def _config(sources: list[str]) -> dict[str, Any]:
    return {"ops": {"read_sources": {"config": {"sources": sources}}}}
