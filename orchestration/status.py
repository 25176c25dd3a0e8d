"""What `plumbline status` shows."""

from rich.console import Console
from rich.table import Table

from assets.checks import BLOCKING_CHECKS, must_pass
from assets.gates import CheckNotPassed, check_words, checks_not_passed, refusal
from assets.up_to_date import Present, Standing
from orchestration.delivery import changed_in_mlflow
from plumbline.encoders.families import FAMILIES
from plumbline.errors import PlumblineError
from resources.lvlms import usable_version
from resources.tracking import TrackingUnavailable
from resources.workspace import Workspace

_REDELIVER = "`plumbline report --redeliver` sends it again"


_WRITTEN_LAST = ("metric_table", "scorecard", "audit_diff", "audit_record", "audit_report")
"""Findings without one of which a report is not finished."""


_CHECKED = {key.asset_key.to_user_string() for key in BLOCKING_CHECKS}


def print_status(workspace: Workspace, *, console: Console) -> bool:
    """Print encoders, datasets and cells with what is missing and why; return whether nothing is."""
    audit = workspace.audit
    encoders = Table("encoder", "on disk", "family", "sha256 of the weights", title="Encoders", title_justify="left")
    wrong: dict[str, str] = {}
    for encoder in audit.encoders:
        try:
            files = workspace.checkpoint(encoder, sizes=workspace.sizes)
            encoders.add_row(encoder, "yes", FAMILIES[files.family].title, files.weights_sha256[:16] + "…")
        except PlumblineError as error:
            encoders.add_row(encoder, "no", "", error.hint or error.what)
            wrong[encoder] = str(error)
    datasets = Table("dataset", "listed", "accepted", "checks", title="Datasets", title_justify="left")
    failed: dict[str, list[CheckNotPassed]] = {}
    for dataset in audit.datasets:
        committed = workspace.lake.committed("records", partition=dataset)
        must = set(must_pass(workspace, dataset))
        checks = checks_not_passed(workspace, dataset, of=tuple(must))
        failed[dataset] = [check for check in checks if check.failed]
        listed = (str(committed.details["listed"]), str(committed.rows)) if committed else ("not read", "")
        others = checks_not_passed(workspace, dataset, of=tuple(_CHECKED - must))
        idle = [check.name for check in others if check.failed]
        beside = f"passed; failed, and needed by nothing that is asked: {', '.join(idle)}" if idle else "passed"
        datasets.add_row(dataset, *listed, refusal(checks) or beside)
    models = Table("generative model", "there", "version", title="Generative models", title_justify="left")
    for model in audit.lvlms:
        try:
            models.add_row(model, "yes", usable_version(workspace, model)[:16] + "…")
        except PlumblineError as error:
            models.add_row(model, "no", error.hint or error.what)
            wrong[model] = str(error)
    present = Present(workspace)
    cells = present.standing
    console.print(*([encoders] if audit.encoders else []), datasets, *([models] if audit.lvlms else []))
    for name, reason in wrong.items():
        console.print(f"  {name}: {reason}", style="red", markup=False, highlight=False, soft_wrap=True)
    for dataset, checks in failed.items():
        for check in checks:
            failure = f"  {dataset}: check {check.name} failed: {check_words(workspace, dataset, check)}"
            console.print(failure, style="red", markup=False, highlight=False, soft_wrap=True)
    if audit.tells_of_encoders:
        console.print(f"{len(cells.current)} of {len(audit.cells)} cells are current", highlight=False)
    if audit.designs:
        console.print(
            f"{len(cells.models)} of {len(audit.asked_models)} generative models have numbers", highlight=False
        )
    for cell in cells.absent:
        console.print(f"  {cell.dataset}|{cell.model}: {cell.reason}", markup=False, highlight=False)
    whole = print_mlflow(workspace, console)
    mend = "mend what failed, then run" if any(failed.values()) else "run"
    line = _report_line(present, cells, f"{mend} `plumbline audit`")
    console.print(line, soft_wrap=True, markup=False, highlight=False)
    return whole and not (wrong or any(failed.values()) or cells.absent) and line == _finished(workspace)


def print_mlflow(workspace: Workspace, console: Console) -> bool:
    """Say what MLflow holds otherwise than the lake; return whether it holds the same."""
    try:
        wrong = changed_in_mlflow(workspace)
    except TrackingUnavailable as error:
        line = f"MLflow: {workspace.tracking_place} cannot be read: {error}; if it is damaged, "
        console.print(f"{line}{_REDELIVER}", style="yellow", markup=False, highlight=False, soft_wrap=True)
        return False
    for (_, partition), why in wrong.items():
        console.print(f"  MLflow: {partition}: {why}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if wrong:
        console.print(f"MLflow differs from the lake; {_REDELIVER}", style="yellow", highlight=False)
    return not wrong


def _finished(workspace: Workspace) -> str:
    return f"Report: {workspace.report}"


def _report_line(present: Present, cells: Standing, advice: str) -> str:
    workspace = present.workspace
    table = workspace.lake.committed("metric_table")
    if table is None or not workspace.report.is_file():
        return f"Report: none yet; {advice}"
    if table.details["current"] != [list(cell) for cell in cells.current]:
        return f"Report: {workspace.report} is of an earlier audit and no longer current; {advice}"
    if unfinished := [asset for asset in _WRITTEN_LAST if present.changes(asset)]:
        return f"Report: {workspace.report} is not finished: {', '.join(unfinished)} out of date; {advice}"
    return _finished(workspace)
