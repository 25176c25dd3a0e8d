"""What an audit has to do: the results of every stage that are out of date, each with the reason."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from assets.asked_cells import unusable_encoders
from assets.checks import must_pass
from assets.gates import CheckNotPassed, answers_not_checked, check_words, checks_not_passed, why_refused
from assets.slices import asked_slices
from assets.up_to_date import NEVER, Present, may_come_out_the_same
from orchestration.unchanged import concerns
from plumbline.catalog.suites import load_suite
from plumbline.config.own import require_own_code
from plumbline.encoders.families import FAMILIES, require_suites
from plumbline.errors import ConfigError, PlumblineError, suggestion
from plumbline.storage.builds import read_untold, write_untold
from plumbline.storage.files import require_reachable
from resources.lvlms import require_askable, unusable_models
from resources.workspace import Workspace

FINDINGS = "findings"
_SETTLED_FIRST = ("records", "text_embeddings", "probe_logits")
"""Of these the parts count that change: what is computed from them is looked at once they are there."""


_OF_ONE_STEP = {"records", "quarantine"}


class Stage(NamedTuple):
    """A stage of an audit: its title, its job, the partitions that the audit file asks for, and whether it comes last.

    One that waits is worked on when the others of its jobs are done.
    """

    title: str
    job: str
    partitions: list[str | None]
    waits: bool = False


class NextRun(NamedTuple):
    """A run of Dagster: the assets that it computes, or those of which it looks at what is stored alone."""

    job: str
    computed: list[str] | None
    judged: list[str]


class AuditPlan:
    """The stages of an audit, and what of them is out of date.

    Parameters
    ----------
    definitions : Definitions
    workspace : Workspace
    forced : collection of str
        Assets that are computed again, whatever they were computed from.
    keeps : bool
        Whether what was made anew is kept for the next audit; a worker leaves that to the audit's own plan.

    Attributes
    ----------
    forced : frozenset of str
        As above.
    aside : dict of str to str
        Models that cannot be audited -> everything that is wrong with each (`require_possible`).
    anew : set of (str, str)
        Asset or source, and partition, of what was computed or found anew, and of which Dagster has not been told what
        stayed as it was: by this audit, and by audits before that were killed or in which something failed.

    Raises
    ------
    ConfigError
        If there is no such asset.
    """

    def __init__(
        self, definitions: dg.Definitions, workspace: Workspace, *, forced: Collection[str] = (), keeps: bool = True
    ) -> None:
        require_reachable(workspace.lake.root)
        self._definitions, self._workspace, self._keeps = definitions, workspace, keeps
        self.forced = frozenset(forced)
        self._present = Present(workspace, forced=forced)
        self.aside: dict[str, str] = {}
        self._assets: dict[str, list[str]] = {}
        self._done: set[tuple[str, str]] = set()
        self.anew = read_untold(workspace.lake)
        known = {key.to_user_string() for key in self.graph.materializable_asset_keys}
        for name in forced:
            if name not in known:
                raise ConfigError(
                    "there is no such asset",
                    where="--force",
                    found=name + suggestion(name, sorted(known)),
                    expected=f"one of {', '.join(sorted(known))}",
                )

    @cached_property
    def graph(self) -> AssetGraph:
        """Return the graph of assets."""
        return self._definitions.resolve_asset_graph()

    @property
    def folders(self) -> dict[str, str]:
        """Return dataset -> digest of its folder, where this plan is made of it."""
        return self._present.folders

    def look_again(self) -> None:
        """Forget what was looked up, but for the digests of sources."""
        self._present = Present(self._workspace, forced=self.forced, sources=self._present)

    def stages(self) -> Iterator[Stage]:
        """Yield the stages in order; slices of datasets that have not been read are left out."""
        audit = self._workspace.audit
        title = "read datasets" + (", label genders" if audit.labeller else "")
        yield Stage(title, "datasets", [*audit.used_datasets])
        encoders = [encoder for encoder in audit.used_encoders if encoder not in self.aside]
        yield Stage("embed prompts", "encoders", [*encoders])
        cells = [f"{dataset}|{model}" for dataset, model in audit.cells if model not in self.aside]
        # Mitigations of other cells may be fitted on these.
        waiting = [cell for cell in cells if audit.fitted_on and tuple(cell.split("|")) not in audit.fitted_on]
        yield Stage("audit cells", "cells", [cell for cell in cells if cell not in waiting])
        if waiting:
            yield Stage("audit cells whose mitigations were fitted on others", "cells", [*waiting], waits=True)
        slices: dict[str, list[str]] = {}
        for model in audit.asked_models:
            if model in self.aside:
                continue
            try:
                slices[model] = list(asked_slices(self._workspace, model))
            except PlumblineError:
                slices[model] = []
        if slices:
            names = dict.fromkeys(name for listed in slices.values() for name in listed)
            yield Stage("list who is pictured", "slices", [*names])
            answers: list[str | None] = [f"{model}|{name}" for model, listed in slices.items() for name in listed]
            yield Stage("ask generative models, score answers", "answers", answers)
            yield Stage("measure what they say of whom", "language", [*slices])
        yield Stage("join findings, write the report", FINDINGS, [None])

    def assets(self, job: str) -> list[str]:
        """Return the assets of a job, each after those that it is computed from."""
        if job not in self._assets:
            chosen = self._definitions.resolve_job_def(job).asset_layer.selected_asset_keys
            ordered = [key for key in self.graph.toposorted_asset_keys if key in chosen]
            self._assets[job] = [key.to_user_string() for key in ordered]
        return self._assets[job]

    def out_of_date(self, job: str, partition: str | None) -> dict[str, list[str]]:
        """Return asset -> why it is out of date, of one partition of a job; what was done in this audit is not."""
        to_do = [asset for asset in self.assets(job) if (asset, partition or "") not in self._done]
        unchecked = self._unchecked(job, partition) if to_do else {}
        changes = {a: self._present.changes(a, partition or "") or unchecked.get(a, []) for a in to_do}
        return {asset: why for asset, why in changes.items() if why}

    def _unchecked(self, job: str, partition: str | None) -> dict[str, list[str]]:
        """Return assets whose checks have not passed, or were held to other limits -> which; all of a refused cell."""
        if job == "cells" and self._refused(partition):
            return {asset: ["its dataset is refused"] for asset in self.assets(job)}
        unchecked: dict[str, list[str]] = {}
        for check in self._to_be_checked(job, partition):
            unchecked.setdefault(check.asset, []).append(f"check {check.description}")
        return unchecked

    def _to_be_checked(self, job: str, partition: str | None) -> list[CheckNotPassed]:
        if job == "answers":
            return answers_not_checked(self._workspace, str(partition))
        if job != "datasets":
            return []
        dataset = str(partition)
        blocking = must_pass(self._workspace, dataset)
        checked = tuple(asset for asset in ("records", "extended_records") if asset in self.assets(job))
        checks = checks_not_passed(self._workspace, dataset, of=checked)
        # A verdict that blocks nothing is renewed, whatever it is; what it found is a warning.
        return [check for check in checks if check.asset in blocking or not check.failed]

    def _refused(self, partition: str | None) -> list[CheckNotPassed]:
        """Return the checks that a dataset, or that of a cell, is refused for, as it is now."""
        dataset = str(partition).partition("|")[0]
        checks = checks_not_passed(self._workspace, dataset, of=must_pass(self._workspace, dataset))
        return checks if any(check.failed for check in checks) else []

    def refusal(self, job: str, partition: str | None, stale: Mapping[str, list[str]]) -> str | None:
        """Return why nothing of a partition is computed: what was looked at and found wanting is the same now.

        Parameters
        ----------
        stale : mapping of str to list of str
            As `out_of_date` gives it.
        """
        if job not in ("datasets", "cells") or not (checks := self._refused(partition)):
            return None
        if job == "cells":
            return why_refused(str(partition).partition("|")[0], checks)
        failed = [check for check in checks if check.failed]
        first = next(iter(stale))
        if self._present.changes(first, str(partition)) or first not in {check.asset for check in failed}:
            return None
        words = [
            f"check {check.name.partition('.')[2]} failed: {check_words(self._workspace, str(partition), check)}"
            for check in failed
        ]
        return "\n        ".join(words)

    def next_run(self, job: str, partition: str | None, stale: dict[str, list[str]]) -> NextRun:
        """Return the next run of a partition; where only a verdict is not of now, what is stored is judged again."""
        first = next(iter(stale))
        if first in {check.asset for check in self._to_be_checked(job, partition)} and not self._present.changes(
            first, partition or ""
        ):
            return NextRun(f"check_{first}", None, [first])
        return NextRun(job, self.selection(job, stale), [])

    def did(self, run: NextRun, partition: str | None) -> None:
        """Take note that a run ended well: in this audit what it did is not done again."""
        self._done |= {(asset, partition or "") for asset in (*(run.computed or ()), *run.judged)}
        self.found_anew((asset, partition or "") for asset in run.computed or ())
        self.look_again()

    def found_anew(self, results: Iterable[tuple[str, str]]) -> None:
        """Take note of assets or sources, each with its partition, that were made or found anew."""
        if fresh := set(results) - self.anew:
            self.anew |= fresh
            if self._keeps:
                write_untold(self._workspace.lake, self.anew)

    def clear_untold(self, *, but: Collection[tuple[str, str | None]]) -> None:
        """Take note that Dagster was told of all that stayed as it was, but for (job, partition) that failed."""
        left = [(asset, partition or "") for job, partition in but for asset in self.assets(job)]
        self.anew = {each for each in self.anew if any(concerns(self.graph, *one, each) for one in left)}
        write_untold(self._workspace.lake, self.anew)

    def selection(self, job: str, stale: dict[str, list[str]]) -> list[str]:
        """Return the assets of the next run of a partition: what is out of date, and what is computed from it.

        Where only a part of the responses of a cell may have changed, they are computed first: what is computed from
        parts that stay the same is not touched. So are metrics of which only the code changed: where their numbers
        are the same, nothing is computed from them.
        """
        assets = self.assets(job)
        chosen = [asset for asset in assets if asset in stale]
        partial = [asset for asset in _SETTLED_FIRST if asset in stale and stale[asset] != [NEVER]]
        edited = list(takewhile(lambda asset: may_come_out_the_same(stale[asset]), chosen)) if job == "cells" else []
        first = chosen[: chosen.index(partial[0]) + 1] if partial else edited
        below = set(first) if first else self._below(chosen)
        if below & _OF_ONE_STEP:
            below |= _OF_ONE_STEP
        return [asset for asset in assets if asset in below]

    def _below(self, assets: Collection[str]) -> set[str]:
        chosen = dg.AssetSelection.assets(*assets)
        return {key.to_user_string() for key in chosen.downstream().resolve(self.graph)}

    def everything(self) -> dict[tuple[str, str | None], dict[str, list[str]]]:
        """Return (job, partition) -> asset -> why it is out of date, of all stages; what is up to date is left out."""
        looked = {
            (stage.job, partition): self.out_of_date(stage.job, partition)
            for stage in self.stages()
            for partition in stage.partitions
        }
        return {key: stale for key, stale in looked.items() if stale}

    def require_possible(self) -> None:
        """Leave aside the models that could only fail later: not on disk, or not able to answer what they are asked.

        Raises
        ------
        PlumblineError
            With what is wrong, where nothing is left to audit, the encoder is the one that labels, or the audit file
            says `strict: true`.
        """
        workspace, audit = self._workspace, self._workspace.audit
        require_own_code(audit, workspace.dataset_root)
        wrong = unusable_encoders(workspace)
        labelling = wrong.pop(audit.labeller, None) if audit.labeller else None
        wrong |= unusable_models(workspace)
        nothing_left = bool(wrong) and wrong.keys() >= {*audit.used_encoders, *audit.asked_models}
        if labelling is not None or (wrong and (audit.strict or nothing_left)):
            raise PlumblineError.all_of([*filter(None, [labelling]), *wrong.values()])
        if audit.labeller:
            require_suites(FAMILIES[workspace.checkpoint(audit.labeller).family], [load_suite("gender_labels")])
        if audit.designs:
            require_askable(workspace)
        self.aside = {model: str(error) for model, error in wrong.items()}

    def number(self) -> int:
        """Return how many results the audit file asks for."""
        return sum(len(self.assets(stage.job)) * len(stage.partitions) for stage in self.stages())
