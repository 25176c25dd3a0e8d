"""A home whose runs only say that they ran, so that what the daemon would ask for can be told tick by tick."""

import itertools
import warnings
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import yaml
from dagster._core.definitions.declarative_automation import automation_condition_tester
from dagster._core.events import AssetMaterializationPlannedData, DagsterEventType, StepMaterializationData

from assets.checks import BLOCKING_CHECKS
from assets.partitions import answers_key, cell_key
from orchestration.conditions import dimensions
from orchestration.definitions import build_definitions
from resources.workspace import Workspace

AUDIT = {
    "labeller": "labels",
    "datasets": {
        "one": {"reader": "fairface", "root": "nowhere"},
        "two": {"reader": "utkface", "root": "nowhere"},
        "people": {"reader": "socialcounterfactuals", "root": "nowhere"},
    },
    "encoders": {name: {"address": f"local-dir:{name}"} for name in ("labels", "old", "new", "spare")},
    # Not the whole grid: `new` on one dataset alone, `spare` and the labeller on none.
    "audit": [
        {"encoders": ["old"], "datasets": ["one", "two"], "suites": ["crime"]},
        {"encoders": ["new"], "datasets": ["one"], "suites": ["crime"]},
    ],
    "lvlms": {
        "seer": {"address": "local-dir:seer", "base_llm": "reader"},
        "reader": {"address": "local-dir:reader"},
        "other": {"address": "local-dir:other"},
    },
    "generate": [{"lvlms": ["seer", "other"], "datasets": ["people"], "prompts": ["characteristics"]}],
}
SLICES = ["people.race_gender", "people.gender_size"]
_REGISTERED = ("dataset", "encoder", "lvlm", "slice")
JOINED = {
    "metric_table",
    "scorecard",
    "factor_effects",
    "bias_transfer",
    "paper_comparison",
    "provenance",
    "audit_report",
}


class LivingHome:
    """A home that has been audited, its daemon, and what that asks for.

    Parameters
    ----------
    refused : set of str
        Datasets whose blocking checks fail.
    """

    def __init__(self, folder: Path, *, refused: frozenset[str] = frozenset(), **changes) -> None:
        (folder / "home").mkdir()
        self.path = folder / "audit.yaml"
        self.write({**AUDIT, **changes})
        self.workspace = Workspace(audit_path=self.path, home=folder / "home")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.definitions = build_definitions(self.workspace)
        self.graph = self.definitions.resolve_asset_graph()
        # An audit of generative models alone labels nobody.
        datasets = [dg.AssetKey(name) for name in ("records", "extended_records", "quarantine")]
        self._stand_ins = [self._stand_in(key) for key in datasets if key in self.graph.materializable_asset_keys]
        self.instance = dg.DagsterInstance.ephemeral(tempdir=str(folder))
        self.refused, self.failing = refused, frozenset({"records", "extended_records"})
        self.rests, self.as_text = False, False
        self._versions, self._clock = itertools.count(), itertools.count()
        self._newest: dict[tuple[str, str], int] = {}
        self._cursor = None
        self._audit()

    def write(self, audit: dict) -> None:
        self.path.write_text(yaml.safe_dump(audit))

    def _audit(self) -> None:
        """Register what there is, partitions of another audit file too, and say that all of it has been made."""
        audit = self.workspace.audit
        for name, keys in (
            ("dataset", [*audit.datasets, "of-another-file"]),
            ("encoder", [*audit.encoders, "of-another-file"]),
            ("lvlm", [*audit.lvlms, "of-another-file"]),
            ("slice", SLICES),
        ):
            self.instance.add_dynamic_partitions(name, keys)
        for dataset in audit.datasets:
            self.observe("dataset_folder", dataset)
        for encoder in audit.encoders:
            self.observe("encoder_checkpoint", encoder)
        for model in audit.lvlms:
            self.observe("lvlm_checkpoint", model)
        for key in self.graph.observable_asset_keys:
            if self.graph.get(key).partitions_def is None:
                self.observe(key.to_user_string())
        self.make(self.everything())
        # What is there when it looks first is none of its business.
        assert self.tick() == {}

    def everything(self) -> dict[str, set[str | None]]:
        audit = self.workspace.audit
        models = {model for model, _ in audit.designs}
        asked = {
            "dataset": {*(d for d, _ in audit.cells), *(d for _, d in audit.designs)},
            "encoder": {model for _, model in audit.cells},
            "dataset|encoder": {cell_key(*cell) for cell in audit.cells},
            "lvlm": models,
            "slice": set(SLICES),
            "lvlm|slice": {answers_key(model, name) for model in models for name in SLICES},
            None: {None},
        }
        return {
            key.to_user_string(): asked[_name(self.graph.get(key).partitions_def)]
            for key in self.graph.materializable_asset_keys
        }

    def observe(self, source: str, partition: str | None = None, *, version: str | None = None) -> None:
        """Report that a source has other content, or what it has."""
        self.rests = False
        self._newest[source, partition or ""] = next(self._clock)
        tags = {"dagster/data_version": version or f"content {next(self._versions)}"}
        self.instance.report_runless_asset_event(dg.AssetObservation(source, partition=partition, tags=tags))

    def tick(self) -> dict[str, set[str | None]]:
        """Let the daemon look once: asset -> partitions that it asks for."""
        # A look asks for the partitions some thousand times.
        known = {name: self.instance.get_dynamic_partitions(name) for name in _REGISTERED}
        with ExitStack() as stack:
            stack.enter_context(
                patch.object(
                    self.instance, "get_dynamic_partitions", lambda partitions_def_name: known[partitions_def_name]
                )
            )
            if not self.as_text:
                # A fifth of the time of a look goes into writing down and reading again what the last one left.
                for name in ("serialize_value", "deserialize_value"):
                    stack.enter_context(patch.object(automation_condition_tester, name, lambda value, *_: value))
            found = dg.evaluate_automation_conditions(self.definitions, self.instance, cursor=self._cursor)
        self._cursor = found.cursor
        asked = {
            key.to_user_string(): set(found.get_requested_partitions(key)) for key in self.graph.get_all_asset_keys()
        }
        return {name: partitions for name, partitions in asked.items() if partitions}

    def make(self, asked: dict[str, set[str | None]]) -> None:
        """Say that all of it has been made, in the order of the graph; datasets in runs, with their checks."""
        checked = {name for name in ("records", "extended_records", "quarantine") if name in asked}
        for dataset in sorted({str(key) for name in checked for key in asked[name]}):
            dg.materialize(
                self._stand_ins,
                instance=self.instance,
                selection=[dg.AssetKey(name) for name in sorted(checked)],
                partition_key=dataset,
                raise_on_error=False,
            )
        for key in self.graph.toposorted_asset_keys:
            name = key.to_user_string()
            self._newest |= {(name, partition or ""): next(self._clock) for partition in asked.get(name, ())}
            for partition in sorted(asked.get(name, ()), key=str) if name not in checked else ():
                self.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition))

    def changes(self, asset: str, partition: str = "") -> list[str]:
        """Return what it is made of directly, and which is newer, as `Present.changes` would of what reads all of it.

        Of a made asset nothing else counts: what is further up makes it out of date once what is between is made.
        """
        key = dg.AssetKey(asset)
        parents = {parent.to_user_string() for parent in self.graph.get(key).parent_keys}
        mine = self._parts(asset, partition)
        if asset == "extended_records":
            mine["encoder"] = self.workspace.audit.labeller
        return [
            f"{name} {of}"
            for (name, of), when in self._newest.items()
            if name in parents and when > self._newest[asset, partition]
            if all(mine.get(dimension, value) == value for dimension, value in self._parts(name, of).items())
        ]

    def _parts(self, asset: str, partition: str) -> dict[str, str]:
        parts = dict(zip(dimensions(self.graph.get(dg.AssetKey(asset)).partitions_def), partition.split("|")))
        return {"dataset": parts["slice"].partition(".")[0], **parts} if "slice" in parts else parts

    def require_nothing_left_out(self, asked: dict[str, set[str | None]]) -> None:
        """What is asked for is made of what is up to date and stays so, and of what is asked for with it."""
        every = {(name, partition or "") for name, partitions in asked.items() for partition in partitions}
        for name, partition in every:
            mine = self._parts(name, partition)
            for key in self.graph.get_ancestor_asset_keys(dg.AssetKey(name)) & self.graph.materializable_asset_keys:
                above = key.to_user_string()
                theirs = dimensions(self.graph.get(key).partitions_def)
                if above == "records" or not set(theirs) <= mine.keys():
                    continue
                of = "|".join(mine[dimension] for dimension in theirs)
                if (above, of) not in every:
                    said = f"{name} of {partition} is asked for without {above}"
                    assert not self.changes(above, of), said
                    further = {each.to_user_string() for each in self.graph.get_ancestor_asset_keys(key)}
                    assert not {one for one in further if (one, partition) in every}, said

    def start(self, names: set[str], partition: str) -> dg.DagsterRun:
        """Let one run of what was asked for be under way."""
        kind = _name(self.graph.get(dg.AssetKey(min(names))).partitions_def)
        job = self.definitions.resolve_job_def("encoders" if kind == "encoder" else "cells")
        run = self.instance.create_run_for_job(
            job, status=dg.DagsterRunStatus.STARTED, asset_selection=frozenset(map(dg.AssetKey, names))
        )
        for name in sorted(names):
            planned = dg.DagsterEvent.build_asset_materialization_planned_event(
                run.job_name, name, AssetMaterializationPlannedData(dg.AssetKey(name), partition=partition)
            )
            self.instance.report_dagster_event(planned, run.run_id)
        return run

    def fail(self, names: set[str], partition: str, *, made: set[str]) -> None:
        """Let a run of what was asked for make some of it, and then fail."""
        run = self.start(names, partition)
        for key in self.graph.toposorted_asset_keys:
            if (name := key.to_user_string()) in made:
                self._newest[name, partition] = next(self._clock)
                event = dg.DagsterEvent(
                    DagsterEventType.ASSET_MATERIALIZATION.value,
                    run.job_name,
                    event_specific_data=StepMaterializationData(dg.AssetMaterialization(key, partition=partition)),
                )
                self.instance.report_dagster_event(event, run.run_id)
        self.instance.report_run_failed(run)

    def end(self, run: dg.DagsterRun) -> None:
        """Let it end, some time before the next look."""
        self.instance.delete_run(run.run_id)

    def _stand_in(self, key: dg.AssetKey) -> dg.AssetsDefinition:
        """Return an asset in the place of one of the graph that only says that it ran, and what its checks said."""
        node = self.graph.get(key)
        checks = [check.name for check in BLOCKING_CHECKS if check.asset_key == key]

        @dg.asset(
            key=key,
            deps=[dg.AssetDep(parent, partition_mapping=dg.AllPartitionMapping()) for parent in node.parent_keys],
            partitions_def=node.partitions_def,
            check_specs=[
                dg.AssetCheckSpec(name, asset=key, blocking=True, partitions_def=node.partitions_def) for name in checks
            ],
        )
        def stand_in(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            fails = key.to_user_string() in self.failing and context.partition_key in self.refused
            passed = not (checks and fails)
            return dg.MaterializeResult(
                check_results=[dg.AssetCheckResult(check_name=name, passed=passed) for name in checks]
            )

        return stand_in

    def follow(self, *, ticks: int = 12) -> list[dict[str, set[str | None]]]:
        """Tick, make what was asked for, and so on until nothing more is; returns what each tick asked for."""
        asked = []
        for _ in range(ticks):
            now = self.tick()
            if not now:
                self.rests = True
                return asked
            asked.append(now)
            self.make(now)
        raise AssertionError(f"the daemon never came to rest: {asked[-2:]}")


def joined(asked: list[dict[str, set[str | None]]]) -> dict[str, set[str | None]]:
    """Return what was asked for over all ticks; nothing may be asked for twice."""
    total: dict[str, set[str | None]] = {}
    for now in asked:
        for name, partitions in now.items():
            assert not total.get(name, set()) & partitions, f"{name} of {partitions} was asked for twice"
            total.setdefault(name, set()).update(partitions)
    return total


def _name(partitions: dg.PartitionsDefinition | None) -> str | None:
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        return "|".join(partitions.partition_dimension_names)
    return getattr(partitions, "name", None)
