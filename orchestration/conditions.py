"""Conditions of this project beside those of Dagster: what the audit file asks for, and whether something is under way.

They are evaluated where the audit file can be read, in the code server, not in the daemon.
"""

from collections.abc import Callable, Set
from datetime import datetime

import dagster as dg
from dagster._core.definitions.declarative_automation.automation_context import AutomationContext

from assets.slices import asked_slices
from assets.up_to_date import NEVER, Present
from orchestration.instance import audit_is_running
from plumbline.errors import PlumblineError
from resources.workspace import Workspace

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def asked_partitions(workspace: Workspace, of: str) -> set[str]:
    """Return the partitions of a definition, such as `lvlm|slice`, that the audit file asks for now.

    The grid is not full, and a home may know partitions of other audit files. Slices are known once the records of
    their dataset are; these are cut where slices are asked for alone, since a look of the daemon asks for every asset.
    """
    audit = workspace.audit
    match of:
        case "dataset":
            return set(audit.used_datasets)
        case "encoder":
            return set(audit.used_encoders)
        case "dataset|encoder":
            return {f"{dataset}|{model}" for dataset, model in audit.cells}
        case "lvlm":
            return set(audit.asked_models)
    slices: dict[str, list[str]] = {}
    for model in audit.asked_models:
        try:
            slices[model] = list(asked_slices(workspace, model))
        except PlumblineError:
            slices[model] = []
    return {
        "slice": {name for names in slices.values() for name in names},
        "lvlm|slice": {f"{model}|{name}" for model, names in slices.items() for name in names},
    }[of]


class AskedFor(dg.AutomationCondition):
    """True for what the audit file asks for; for sources and for what has no partitions always."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def evaluate(self, context: AutomationContext) -> dg.AutomationResult:
        """Keep the candidates that the audit file asks for."""
        matching = context.candidate_subset
        if context.partitions_def is not None and context.asset_graph.get(context.key).is_materializable:
            asked_keys = asked_partitions(self._workspace, _name(context.partitions_def))
            matching = _only(matching, lambda key: key in asked_keys)
        return dg.AutomationResult(context=context, true_subset=matching)


class Looks:
    """What is there now, looked up anew for every asset, but for the sources: these are digested once a tick.

    A run may end while a tick goes on, and what it has made must not count as out of date.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._last: Present | None = None
        self._tick: datetime | None = None

    def present(self, context: AutomationContext) -> Present:
        """Return what is there now."""
        sources = self._last if context.evaluation_time == self._tick else None
        self._last, self._tick = Present(self._workspace, sources=sources), context.evaluation_time
        return self._last


class OutOfDate(dg.AutomationCondition):
    """True for what is out of date by the rule that `plumbline audit` goes by; see `assets.up_to_date`."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    def evaluate(self, context: AutomationContext) -> dg.AutomationResult:
        """Keep the candidates that are out of date; of what has no partitions all or none."""
        present, name = self._looks.present(context), context.key.to_user_string()
        subset = context.candidate_subset
        if context.partitions_def is None:
            matching = subset if present.changes(name) else context.get_empty_subset()
        else:
            matching = _only(subset, lambda key: bool(present.changes(name, key)))
        return dg.AutomationResult(context=context, true_subset=matching)


class UsesAutomaticLabels(dg.AutomationCondition):
    """True for cells of datasets of which something is asked that depends on automatic gender labels."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def evaluate(self, context: AutomationContext) -> dg.AutomationResult:
        """Keep the candidates whose dataset's automatic labels must be right."""
        audit = self._workspace.audit
        using = {dataset for dataset in audit.used_datasets if audit.uses_automatic_labels(dataset)}
        matching = _only(context.candidate_subset, lambda key: key.partition("|")[0] in using)
        return dg.AutomationResult(context=context, true_subset=matching)


class UpdatedElsewhere(dg.AutomationCondition):
    """True for partitions that depend on updated ones of another asset in a way that Dagster's mappings do not say.

    Parameters
    ----------
    of : str
        The other asset.
    concerns : callable
        (own key, updated keys) -> whether one of them concerns it.
    """

    def __init__(self, of: str, concerns: Callable[[str, Set[str]], bool]) -> None:
        self._of, self._concerns = dg.AssetKey(of), concerns

    @property
    def name(self) -> str:
        """Return a name that tells the asset."""
        return f"updated_elsewhere({self._of.to_user_string()})"

    async def evaluate(self, context: AutomationContext) -> dg.AutomationResult:
        """Keep the candidates that an update since the last tick concerns."""
        matching, before = context.get_empty_subset(), context.previous_temporal_context
        if before is not None:
            updated = await context.asset_graph_view.compute_updated_since_temporal_context_subset(
                key=self._of, temporal_context=before
            )
            keys = set(updated.expensively_compute_partition_keys())
            if keys:
                matching = _only(context.candidate_subset, lambda key: self._concerns(key, keys))
        return dg.AutomationResult(context=context, true_subset=matching)


class AncestorsUnderWay(dg.AutomationCondition):
    """True for partitions some of whose ancestors are being made, or are asked for in this look in other runs.

    To look at dependencies alone is not enough: what stands between may be stale, and wait itself.
    """

    async def evaluate(self, context: AutomationContext) -> dg.AutomationResult:
        """Keep the candidates that have to wait."""
        graph, view, key = context.asset_graph, context.asset_graph_view, context.root_context.key
        definition, waiting = graph.get(key).partitions_def, context.get_empty_subset()
        for before in graph.get_ancestor_asset_keys(key):
            node = graph.get(before)
            if not node.is_materializable:
                continue
            everything = view.get_full_subset(key=before)
            busy = [await view.compute_run_in_progress_subset(key=before, from_subset=everything)]
            asked_keys = context.request_subsets_by_key.get(before)
            # What has the same partitions goes into the same run.
            if asked_keys is not None and node.partitions_def != definition:
                busy.append(asked_keys)
            for subset in busy:
                if not subset.is_empty:
                    waiting = waiting.compute_union(_concerned(context.candidate_subset, definition, subset, node))
        return dg.AutomationResult(context=context, true_subset=waiting)


class AncestorsLeftOut(dg.AutomationCondition):
    """True for what would be made from results that are out of date: now, or through what is asked for in this look.

    A run of an asset is refused while something that it reads is out of date (`assets.up_to_date`), and what is made of
    it would be made twice. So an asset waits until each of its ancestors is either asked for with it, or up to date
    and made from nothing that is asked for. What has become stale by one look is asked for by the next, and the asset
    that has waited with it.
    """

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    def evaluate(self, context: AutomationContext) -> dg.AutomationResult:
        """Keep the candidates that have to wait; of what has no partitions all or none."""
        graph, key, subset = context.asset_graph, context.root_context.key, context.candidate_subset
        mine = dimensions(graph.get(key).partitions_def)
        ancestors = {
            node.key: theirs
            for node in map(graph.get, graph.get_ancestor_asset_keys(key) - _LOOKED_AT_BY_OTHERS)
            # Of those of many partitions not all need to be up to date: the findings leave out what is not.
            if node.is_materializable and set(theirs := dimensions(node.partitions_def)) <= set(mine)
        }
        asked = {
            (one.asset_key, one.partition_key or "")
            for ancestor in ancestors.keys() & context.request_subsets_by_key.keys()
            for one in context.request_subsets_by_key[ancestor].expensively_compute_asset_partitions()
        }
        present = self._looks.present(context)

        def left_out(partition: str) -> bool:
            parts = dict(zip(mine, partition.split("|")))
            of = {ancestor: "|".join(parts[name] for name in theirs) for ancestor, theirs in ancestors.items()}
            with_it = {ancestor for ancestor, own in of.items() if (ancestor, own) in asked}
            others = of.keys() - with_it
            return any(graph.get_ancestor_asset_keys(ancestor) & with_it for ancestor in others) or any(
                # Of what was never made Dagster says whether it is there.
                present.changes(ancestor.to_user_string(), of[ancestor]) not in ([], [NEVER])
                for ancestor in others
            )

        if mine:
            return dg.AutomationResult(context=context, true_subset=_only(subset, left_out))
        waits = not subset.is_empty and left_out("")
        return dg.AutomationResult(context=context, true_subset=subset if waits else context.get_empty_subset())


_LOOKED_AT_BY_OTHERS = {dg.AssetKey("records")}
"""To tell whether records are out of date takes reading every image. `watch_sources` does, where one has changed."""


def _concerned(candidates, definition, busy, node):
    """Return the candidates whose dataset, encoder, model or slice is that of something busy."""
    mine, theirs = dimensions(definition), dimensions(node.partitions_def)
    shared = [name for name in mine if name in theirs]
    if not shared:
        return candidates

    def part(key: str, dimensions: list[str]) -> tuple[str, ...]:
        values = dict(zip(dimensions, key.split("|")))
        return tuple(values[name] for name in shared)

    keys = {part(key, theirs) for key in busy.expensively_compute_partition_keys()}
    return _only(candidates, lambda key: part(key, mine) in keys)


def dimensions(partitions: dg.PartitionsDefinition | None) -> list[str]:
    """Return the names of the dimensions of a partition key, such as `dataset` and `encoder`."""
    return [] if partitions is None else _name(partitions).split("|")


class RunsUnderWay(dg.AutomationCondition):
    """True while any run is under way, or ended since this tick began, so that the tick has not seen what it made.

    What joins cells would otherwise run once for every cell of a column, not once after all of them.
    """

    def evaluate(self, context: AutomationContext) -> dg.AutomationResult:
        """Return all candidates or none."""
        instance = context.asset_graph_view.instance
        waits = any(
            instance.get_run_records(filters, limit=1)
            for filters in (dg.RunsFilter(statuses=_UNFINISHED), dg.RunsFilter(updated_after=context.evaluation_time))
        )
        matching = context.candidate_subset if waits else context.get_empty_subset()
        return dg.AutomationResult(context=context, true_subset=matching)


class AuditRunning(dg.AutomationCondition):
    """True while `plumbline audit` runs in this home: it does all there is to do itself."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def evaluate(self, context: AutomationContext) -> dg.AutomationResult:
        """Return all candidates or none."""
        matching = context.candidate_subset if audit_is_running(self._workspace) else context.get_empty_subset()
        return dg.AutomationResult(context=context, true_subset=matching)


def _name(partitions: dg.PartitionsDefinition) -> str:
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        return "|".join(partitions.partition_dimension_names)
    return str(getattr(partitions, "name", None))


def _only(subset, keep: Callable[[str], bool]):
    keys = {key for key in subset.expensively_compute_partition_keys() if keep(key)}
    return subset.compute_intersection_with_partition_keys(keys)
