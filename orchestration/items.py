"""One item of an audit, a partition of one of its jobs: what is out of date of it is computed."""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import dagster as dg

from assets.partitions import answers_key, cell_key
from orchestration.audit_plan import FINDINGS, AuditPlan, NextRun
from orchestration.job_run import run_job
from orchestration.unchanged import report_unchanged
from plumbline.storage.builds import forget_parts
from resources.workspace import Workspace

# Objects until a collection of each generation: rarer than Python's own, which walks all of an audit's again and again.
_COLLECT_AFTER = (20_000, 20, 50)
# Whose warnings are told here; those of cells and answers stand in the report.
_WARNED = ("datasets", FINDINGS)


class Item(NamedTuple):
    """A partition of a job; None is the one of a job without partitions."""

    job: str
    key: str | None

    @property
    def step(self) -> str:
        """Return what the item is called where it failed."""
        return f"{self.job} {self.key or ''}".strip()

    @property
    def model(self) -> str | None:
        """Return the encoder or generative model that works on it; None where none does, or more than one."""
        parts = str(self.key).split("|")
        return {"cells": parts[-1], "encoders": parts[0], "answers": parts[0]}.get(self.job)

    @property
    def partition(self) -> str | None:
        """Return the partition as Dagster knows it."""
        if self.job in ("cells", "answers"):
            make = cell_key if self.job == "cells" else answers_key
            return make(*str(self.key).split("|"))
        return self.key


@dataclass
class Done:
    """What became of an item.

    Attributes
    ----------
    failure : str, optional
        Why it failed.
    warnings : list of str
        What its checks say that stops nothing.
    forward_passes, generated : int
        Batches that went through a model, and answers that were made now.
    undelivered : bool
        Whether its MLflow run could not be written.
    """

    failure: str | None = None
    warnings: list[str] = field(default_factory=list)
    forward_passes: int = 0
    generated: int = 0
    undelivered: bool = False


class ItemRunner:
    """Computes items of an audit in this process, one after the other.

    Parameters
    ----------
    definitions : Definitions
    instance : DagsterInstance
    workspace : Workspace
    plan : AuditPlan
        Says what is out of date, and learns what was done.
    did : callable, optional
        Is told of each run that ended well.
    """

    def __init__(
        self,
        definitions: dg.Definitions,
        instance: dg.DagsterInstance,
        workspace: Workspace,
        plan: AuditPlan,
        *,
        did: Callable[[NextRun], None] = lambda _: None,
    ) -> None:
        self._did, self._definitions = did, definitions
        self.instance, self.workspace, self.plan = instance, workspace, plan
        self._ran: set[str] = set()

    def run(self, item: Item, stale: dict[str, list[str]] | None = None) -> Done:
        """Compute what is out of date of an item.

        In one run where all follows from what is known to have changed; else one after the other, each of what is out
        of date then.

        Parameters
        ----------
        stale : dict of str to list of str, optional
            What is known to be out of date, as `AuditPlan.out_of_date` gives it; it is looked for where it is left out.
        """
        done, plan = Done(), self.plan
        stale = plan.out_of_date(*item) if stale is None else stale
        while stale:
            done.failure = plan.refusal(*item, stale)
            if done.failure is not None:
                break
            one = plan.next_run(*item, stale)
            for asset in plan.forced & set(one.computed or ()):
                forget_parts(self.workspace.lake, asset, item.key or "")
            run = run_job(self._definitions, self.instance, one.job, item.partition, assets=one.computed)
            for asset, metadata in run.materialised:
                # The table of provenance adds up what was counted where it was done.
                if asset != "provenance":
                    done.forward_passes += int(metadata.get("forward_passes", 0))
                done.generated += int(metadata.get("generated", 0))
            done.undelivered |= run.refusal is not None
            if run.failure is not None:
                plan.look_again()
                done.failure = run.failure
                break
            if item.job in _WARNED:
                done.warnings += run.warnings
            plan.did(one, item.key)
            self._did(one)
            stale = plan.out_of_date(*item)
        else:
            self.report_unchanged(item)
        self._tidy(item.job)
        return done

    def report_unchanged(self, item: Item) -> None:
        """Tell Dagster of what is up to date though something that it is computed from was made anew."""
        plan, lake = self.plan, self.workspace.lake
        report_unchanged(self.instance, plan.graph, lake, plan.assets(item.job), item.key, anew=plan.anew)

    def _tidy(self, job: str) -> None:
        """Leave alone what the first run of a job imported and defined.

        It stays, and to walk all of it again and again took the collector some hundredths of an audit.
        """
        if job not in self._ran:
            self._ran.add(job)
            gc.collect()
            gc.freeze()
            gc.set_threshold(*_COLLECT_AFTER)
