"""What the daemon asks for by itself: what has become stale, where the audit file asks for it, and nothing else."""

from collections.abc import Set

import dagster as dg

from orchestration.conditions import (
    AncestorsLeftOut,
    AncestorsUnderWay,
    AskedFor,
    AuditRunning,
    Looks,
    OutOfDate,
    RunsUnderWay,
    UpdatedElsewhere,
    UsesAutomaticLabels,
)
from resources.workspace import Workspace

_C = dg.AutomationCondition
_JOINED = "findings"
# Which slice is of which dataset, and which model was built on which, the audit file says and no mapping of Dagster.
_PEOPLE = dg.AssetSelection.assets("pictured_people")
_RECORDS = dg.AssetSelection.assets("records")
_LABELS = dg.AssetSelection.assets("extended_records")


def automated(workspace: Workspace, *assets: dg.AssetsDefinition) -> list[dg.AssetsDefinition]:
    """Return the assets with the automation condition of their group."""
    by_group = {"slices": _of_slices(workspace), "language": _of_language(workspace), _JOINED: _of_findings(workspace)}
    common = _each(workspace)
    return [
        asset.map_asset_specs(
            lambda spec: spec.replace_attributes(automation_condition=by_group.get(spec.group_name or "", common))
        )
        for asset in assets
    ]


def _stale(workspace: Workspace, *more: dg.AutomationCondition) -> dg.AutomationCondition:
    """Return `eager()`, looking only at what the audit file asks for: updated or new since it was last made."""
    newly_made = _C.newly_updated() & ~_C.executed_with_root_target()
    trigger = _C.newly_missing() | _C.any_deps_match((newly_made | _C.will_be_requested()) & AskedFor(workspace))
    for condition in more:
        trigger = trigger | condition
    # What was triggered and is up to date all the same, since nothing that it reads has changed, waits for more.
    looks = Looks(workspace)
    triggered = AskedFor(workspace) & trigger.since_last_handled() & OutOfDate(looks)
    return triggered & ~_C.in_progress() & ~AncestorsUnderWay() & ~AuditRunning(workspace) & ~AncestorsLeftOut(looks)


def _ready(workspace: Workspace) -> dg.AutomationCondition:
    return ~_C.any_deps_match(_C.missing() & ~_C.will_be_requested() & AskedFor(workspace))


def _each(workspace: Workspace) -> dg.AutomationCondition:
    """Return the condition of what is made partition by partition: once all it is made of is there and has passed.

    Checks of automatic labels count only where something uses these: elsewhere they warn (docs/decisions, 34).
    """
    passed = _C.all_deps_blocking_checks_passed()
    passed_enough = passed | (~UsesAutomaticLabels(workspace) & passed.ignore(_LABELS))
    return (_stale(workspace) & _ready(workspace) & passed_enough).with_label("stale")


def _of_slices(workspace: Workspace) -> dg.AutomationCondition:
    """Return the condition of slices: stale by the records of their own dataset."""

    def of_dataset(slice_id: str, datasets: Set[str]) -> bool:
        return any(slice_id.startswith(f"{dataset}.") for dataset in datasets)

    condition = _stale(workspace, UpdatedElsewhere("records", of_dataset)) & _ready(workspace)
    return condition.ignore(_RECORDS).with_label("stale slice")


def _of_language(workspace: Workspace) -> dg.AutomationCondition:
    """Return the condition of metrics over all slices: stale with own answers or those of the base language model."""

    def base_llms(model: str, answered: Set[str]) -> bool:
        entry = workspace.audit.lvlms.get(model)
        return entry is not None and entry.base_llm in {key.partition("|")[0] for key in answered}

    stale = _stale(workspace, UpdatedElsewhere("toxicity_scores", base_llms))
    return (stale & _ready(workspace)).ignore(_PEOPLE).with_label("stale language") & ~RunsUnderWay()


def _of_findings(workspace: Workspace) -> dg.AutomationCondition:
    """Return the condition of what joins cells: once, after all that has become stale has been done or has failed."""
    return _stale(workspace).with_label("stale findings") & ~RunsUnderWay()  # type: ignore[attr-defined]


# Declared and off: switch it on in the UI under Automation. It acts on what is observed or materialised there. One run
# a cell (docs/decisions, 4): no backfills. Conditions read the audit file, so they are evaluated in the code server.
automation_sensor = dg.AutomationConditionSensorDefinition(
    "re_audit_what_changed",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.STOPPED,
    emit_backfills=False,
    use_user_code_server=True,
    minimum_interval_seconds=30,
    description="Materializes stale assets: the column of a changed checkpoint, the row of a changed dataset, all that "
    "is downstream of changed prompts; then the findings, once.",
)
