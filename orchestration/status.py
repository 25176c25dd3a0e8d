"""What `plumbline status` shows."""

import dagster as dg
from rich.console import Console
from rich.table import Table

from assets.checks import must_pass
from assets.currency import Currency, sort_cells
from assets.gates import CheckNotPassed, check_words, checks_not_passed, refusal
from plumbline.encoders.families import FAMILIES
from plumbline.errors import PlumblineError
from resources.places import Places


def print_status(places: Places, instance: dg.DagsterInstance, *, console: Console) -> None:
    """Print encoders, datasets and cells with what is missing and why."""
    audit = places.audit
    encoders = Table(
        "encoder", "on disk", "family", "sha256 of the weights", title="Encoders", title_justify="left"
    )
    for encoder in audit.encoders:
        try:
            files = places.checkpoint(encoder)
            encoders.add_row(encoder, "yes", FAMILIES[files.family].title, files.weights_sha256[:16] + "…")
        except PlumblineError as error:
            encoders.add_row(encoder, "no", "", error.hint or error.what)
    datasets = Table("dataset", "listed", "accepted", "checks", title="Datasets", title_justify="left")
    failed: dict[str, list[CheckNotPassed]] = {}
    for dataset in audit.datasets:
        made = places.lake.committed("records", partition=dataset)
        checks = checks_not_passed(instance, places, dataset, of=must_pass(places, dataset))
        failed[dataset] = [check for check in checks if check.failed]
        listed = (str(made.details["listed"]), str(made.rows)) if made else ("not read", "")
        datasets.add_row(dataset, *listed, refusal(checks) or "passed")
    models = Table("generative model", "there", "version", title="Generative models", title_justify="left")
    for model in audit.lvlms:
        try:
            models.add_row(model, "yes", places.lvlm_version(model)[:16] + "…")
        except PlumblineError as error:
            models.add_row(model, "no", error.hint or error.what)
    cells = sort_cells(places, instance)
    console.print(*([encoders] if audit.encoders else []), datasets, *([models] if audit.lvlms else []))
    for dataset, checks in failed.items():
        for check in checks:
            told = f"  {dataset}: check {check.name} failed: {check_words(places, dataset, check)}"
            console.print(told, style="red", markup=False, highlight=False, soft_wrap=True)
    if audit.tells_of_encoders:
        console.print(f"{len(cells.current)} of {len(audit.cells)} cells are current", highlight=False)
    if audit.designs:
        console.print(
            f"{len(cells.models)} of {len(audit.asked_models)} generative models have numbers",
            highlight=False,
        )
    for cell in cells.absent:
        console.print(f"  {cell.dataset}|{cell.model}: {cell.reason}", markup=False, highlight=False)
    mend = "mend what failed, then run" if any(failed.values()) else "run"
    console.print(
        _report_line(places, cells, f"{mend} `plumbline audit`"),
        soft_wrap=True,
        markup=False,
        highlight=False,
    )


def _report_line(places: Places, cells: Currency, advice: str) -> str:
    table = places.lake.committed("metric_table")
    if table is None or not places.report.is_file():
        return f"Report: none yet; {advice}"
    if table.details["current"] != [list(cell) for cell in cells.current]:
        return f"Report: {places.report} is of an earlier audit and no longer current; {advice}"
    return f"Report: {places.report}"
