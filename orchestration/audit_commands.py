"""The commands that audit and that write the report again, and what they say at the end."""

from __future__ import annotations

import sys
import time
import webbrowser
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.audit_file import workspace_of
from orchestration.parent_of_workers import import_ahead
from plumbline.commands.terminal import (
    ConfigOption,
    DatasetOption,
    ImagesOption,
    LabelsOption,
    MapOption,
    ModelOption,
    SuiteOption,
    console,
    errors,
    safe,
    say,
)
from plumbline.errors import PlumblineError

if TYPE_CHECKING:
    from plumbline.config.audit import Audit
    from resources.workspace import Workspace


ForceOption = Annotated[
    list[str] | None,
    typer.Option(
        help="An asset that is computed again even if it is up to date, from the vectors and answers that are stored; "
        "repeatable."
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be computed, and why; compute nothing.")]
_MOST_NAMED = 3
"""Of those whose runs MLflow could not take, in a message."""


def audit_command(
    config: ConfigOption = None,
    force: ForceOption = None,
    dry_run: DryRunOption = False,
    model: ModelOption = None,
    images: ImagesOption = None,
    labels: LabelsOption = None,
    map_: MapOption = None,
    dataset: DatasetOption = None,
    suite: SuiteOption = None,
) -> None:
    """Audit every encoder × dataset of the audit file and write the report.

    Without a file, `--model`, `--images` and their like say what is audited; the audit file that they stand for is
    written beside the report.

    Only what is out of date is computed: what was computed from other data, checkpoints, prompts, settings or code.

    Interrupt it whenever you like: what was computed is kept, and the next `plumbline audit` goes on from there.
    Datasets whose label balance or other quality checks fail are refused, with the reason; the rest is audited.
    Exits with 1 if any step failed.
    """
    start, workspace = time.monotonic(), workspace_of(config)
    from plumbline.commands.audit_files import AskedByOptions

    options = AskedByOptions.of(model, images, labels, map_, dataset, suite, config=config)
    if options is not None:
        workspace = workspace_of(options.write(workspace.home / "audit.yaml"))
    audited = workspace.audit
    if not dry_run and audited.devices != 1:
        import_ahead()  # what it imports is of the audit file that is now in force
    console.print(f"[bold]{safe(audited.title)}[/]: {asked_of(audited)}, from {workspace.audit_path.name}")
    from assets.plans import recorded
    from orchestration.audit_plan import AuditPlan
    from orchestration.audit_run import AuditRun, Outcome, clean_up
    from orchestration.definitions import defs
    from orchestration.instance import audit_lock, opened
    from orchestration.interrupt import interrupt_told
    from orchestration.items import ItemRunner
    from orchestration.watched_folder import find_checkpoints
    from plumbline.commands.checks import doomed_datasets, require_undoomed
    from resources.asking_endpoints import ask_endpoints

    if audited.watch is not None:
        console.print(f"watched folder: {find_checkpoints(workspace).summary}", highlight=False, markup=False)
    plan, outcome = AuditPlan(defs, workspace, forced=force or ()), Outcome()
    try:
        with interrupt_told(_say_stopping), audit_lock(workspace) as hold:
            plan.require_possible()
            unread = [dataset for dataset in audited.used_datasets if recorded(workspace, dataset) is None]
            require_undoomed(doomed_datasets(audited, unread, home=workspace.home), audited, workspace.audit_path)
            for model, reason in plan.aside.items():
                console.print(f"{model} is left aside: {reason}", style="red", markup=False, highlight=False)
            if not dry_run:  # it costs tokens
                ask_endpoints(workspace, audited.lvlms)
            stale = plan.everything()
            if dry_run:
                say_plan(stale, number=plan.number())
                return
            if not (stale or plan.anew):
                if hold.unfinished:
                    with opened(workspace) as instance:
                        clean_up(instance, workspace, console)
                    hold.unfinished = False
                console.print(f"Nothing changed since the last audit: all {plan.number():,} results are up to date.")
            else:
                with opened(workspace) as instance:
                    runner = ItemRunner(defs, instance, workspace, plan)
                    outcome = AuditRun(runner, console=console).execute(stale)
                hold.unfinished = False
    except KeyboardInterrupt:
        errors.print("Interrupted. What was computed is kept; run the same command to go on.", style="yellow")
        raise typer.Exit(130) from None
    outcome.failures |= {f"model {model}": reason for model, reason in plan.aside.items()}
    conclude(workspace, outcome, seconds=time.monotonic() - start)
    raise typer.Exit(1 if outcome.failures else 0)


def say_plan(stale: Mapping[tuple[str, str | None], Mapping[str, list[str]]], *, number: int) -> None:
    """Print what an audit would compute, and why."""
    if not stale:
        console.print(f"Nothing would be computed: all {number:,} results are up to date.")
        return
    for (job, partition), assets in stale.items():
        console.print(f"{job} {partition or ''}".strip(), style="bold", markup=False, highlight=False)
        by_reason: dict[str, list[str]] = {}
        for asset, reasons in assets.items():
            by_reason.setdefault("; ".join(reasons), []).append(asset)
        for reason, names in by_reason.items():
            console.print(f"  {', '.join(names)}: {reason}", markup=False, highlight=False, soft_wrap=True)
    count = sum(len(assets) for assets in stale.values())
    console.print(
        f"{count:,} of {number:,} results would be computed, and what is computed from them if they come out different."
    )


def _say_stopping() -> None:
    errors.print("stopping after what is under way … (what is finished is kept)", style="yellow")


def report_command(
    config: ConfigOption = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    redeliver: Annotated[
        bool, typer.Option("--redeliver", help="Send to MLflow what it has otherwise than the lake, or lost.")
    ] = False,
) -> None:
    """Write the report again from what is in the lake; no model is loaded. Prints its path.

    What MLflow could not take when it was audited is delivered now.
    """
    workspace = workspace_of(config)
    from orchestration.instance import audit_lock, opened

    with audit_lock(workspace), opened(workspace) as instance:
        from orchestration.definitions import defs
        from orchestration.delivery import deliver_what_is_left, set_damaged_store_aside
        from orchestration.job_run import run_job
        from resources.tracking import TrackingUnavailable

        if redeliver and (aside := set_damaged_store_aside(workspace)):
            say(f"MLflow's store is damaged; it lies at {aside} now, and a new one is made", style="yellow")
        try:
            delivery = deliver_what_is_left(defs, instance, workspace, changed=redeliver)
        except TrackingUnavailable as error:
            raise PlumblineError("MLflow cannot be read", where=workspace.tracking_place, found=error) from error
        written = run_job(defs, instance, "findings", None)
        if written.refusal is not None:
            delivery.refused["the findings"] = written.refusal
    if delivery.delivered:
        console.print(f"MLflow: delivered {_named(delivery.delivered)}", highlight=False)
    say_undelivered(delivery.refused)
    _say_reasons(delivery.refused)
    say_failed_deliveries(delivery.failed)
    _say_reasons(delivery.failed)
    if written.failure is not None:
        raise PlumblineError("the report could not be written", found=written.failure)
    _print_findings(workspace)
    console.print(f"Report: {workspace.report}", soft_wrap=True, highlight=False)
    if browser:
        webbrowser.open(workspace.report.as_uri())


def asked_of(audit: Audit) -> str:
    """Return how much is audited; of what the audit file does not ask for nothing is said."""
    models = len(audit.asked_models)
    parts = [f"encoders × datasets to audit: {len(audit.cells)}"] if audit.tells_of_encoders else []
    return ", ".join(parts + ([f"generative models: {models}"] if models else []))


def conclude(workspace: Workspace, outcome, *, seconds: float) -> None:
    """Say what an audit found, where its report is, what failed, and how much work it was."""
    if "findings" not in outcome.failures:
        if outcome.failures:
            errors.print("\nNot everything below is of this audit: some steps failed.", style="red")
        _print_findings(workspace)
        console.print(f"\nReport:  {workspace.report}", soft_wrap=True, highlight=False)
        console.print(f"Explore: {_ui_command(workspace)}   (Dagster and MLflow on this machine)", highlight=False)
    say_undelivered(outcome.undelivered)
    audited = workspace.audit
    work = [f"{outcome.forward_passes} forward passes"] if audited.tells_of_encoders else []
    work += [f"{outcome.generated:,} new answers"] if audited.generate else []
    console.print(f"{', '.join(work)}, {seconds:.0f} s", style="dim", highlight=False)
    if outcome.failures:
        errors.print(f"{len(outcome.failures)} step(s) failed: {', '.join(outcome.failures)}", style="red")
    if "findings" in outcome.failures and _is_older(workspace.report, seconds):
        errors.print(
            f"The report on disk is of an earlier audit, not of this one: {workspace.report}",
            style="red",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )


def _is_older(report: Path, seconds: float) -> bool:
    """Return whether there is a report that was written before an audit began that took so long."""
    return report.is_file() and report.stat().st_mtime < time.time() - seconds


def say_undelivered(names: Collection[str]) -> None:
    """Say whose runs MLflow could not take: cells, generative models, the findings."""
    if names:
        errors.print(
            f"MLflow could not be written for {_named(names)}; the numbers are in the lake, and the next "
            "`plumbline audit` or `plumbline report` delivers them.",
            style="yellow",
            highlight=False,
        )


def say_failed_deliveries(names: Collection[str]) -> None:
    """Say of which cells and generative models there was nothing that could be sent."""
    if names:
        errors.print(
            f"Nothing could be sent to MLflow of {_named(names)}: the step failed before MLflow was asked.",
            style="yellow",
            highlight=False,
        )


def _named(names: Collection[str]) -> str:
    from plumbline.provenance.chain import first_few

    return safe(first_few([*dict.fromkeys(names)], _MOST_NAMED))


def _say_reasons(reasons: Mapping[str, str]) -> None:
    for why in dict.fromkeys(reasons.values()):
        errors.print(why, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _ui_command(workspace: Workspace) -> str:
    from resources.workspace import Workspace

    standard = Workspace.standard()
    if workspace == standard:
        return "make ui"
    home = "" if workspace.home == standard.home else f"PLUMBLINE_HOME={workspace.home} "
    return f"{home}{Path(sys.executable).parent / 'plumbline'} ui --config {workspace.audit_path}"


def _print_findings(workspace: Workspace) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    kept = workspace.lake.require("findings")
    for sentence in kept.details["verdict"]:
        console.print(safe(sentence), highlight=False)
    findings = workspace.lake.read_table("findings", manifest=kept)
    if findings.is_empty():
        console.print("No finding: nothing that this audit tested shows evidence of a difference.")
        return
    table = Table(title="Findings, the strongest of each kind", title_justify="left", box=SIMPLE_HEAD)
    for name in (
        "finding",
        "value",
        "interval, or range over probes" if workspace.audit.cells else "interval",
        "q",
        "dataset | model",
        "plumbline explain",
    ):
        table.add_column(name, overflow="fold")
    for row in findings.iter_rows(named=True):
        cell = f"{row['dataset']} | {row['model']}"
        texts = (row["finding"], row["value"], row["interval"], row["q"], cell, row["explain"])
        table.add_row(*(safe(text or "") for text in texts))
    console.print(table)
