"""The command `plumbline`: thin over Dagster, so that whatever it does can be seen and repeated in the UI."""

import sys
import webbrowser
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from orchestration.explain_commands import explain_command
from orchestration.export_commands import export_command, verify_command
from orchestration.fetch_commands import fetch
from orchestration.plan_commands import plan_command
from orchestration.terminal import ConfigOption, console, errors, places_of
from plumbline import __version__
from plumbline.audit import Audit
from plumbline.errors import PlumblineError
from resources.places import Places

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Plumbline audits the social bias of vision-language models.

**Start here**: `plumbline audit` audits what `audit.yaml` names (by default the planted world, whose true biases are
known) and ends with a table of findings and the path of a report. `plumbline ui` shows the same audit as a graph of
assets in Dagster and as runs in MLflow.

**Audit your own**: put a checkpoint under `encoders:` and a folder under `datasets:` in `audit.yaml`, run
`plumbline fetch ID` if the checkpoint is on a hub, then `plumbline audit`.
""",
)


def _print_version(asked: bool) -> None:
    if asked:
        console.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


app.command()(fetch)
app.command("explain")(explain_command)
app.command("export")(export_command)
app.command("verify")(verify_command)
app.command("plan")(plan_command)


@app.command()
def audit(config: ConfigOption = None) -> None:
    """Audit every encoder × dataset of the audit file and write the report.

    Interrupt it whenever you like: what was computed is kept, and the next `plumbline audit` goes on from there.
    Datasets whose label balance or other quality checks fail are refused, with the reason; the rest is audited.
    Exits with 1 if any step failed.
    """
    import time

    start, places = time.monotonic(), places_of(config)
    audited = places.audit
    console.print(f"[bold]{escape(audited.title)}[/]: {_asked(audited)}, from {places.audit_path.name}")
    from orchestration.instance import opened
    from orchestration.quick_storage import keep_engines, remember_partitions

    keep_engines()
    with opened(places) as instance:
        from orchestration.audit_run import AuditRun
        from orchestration.definitions import defs

        remember_partitions(instance)
        try:
            outcome = AuditRun(defs, instance, places, console=console).execute()
        except KeyboardInterrupt:
            errors.print(
                "Interrupted. What was computed is kept; run the same command to go on.", style="yellow"
            )
            raise typer.Exit(130) from None
    _conclude(places, outcome, seconds=time.monotonic() - start)
    raise typer.Exit(1 if outcome.failures else 0)


def _asked(audit: Audit) -> str:
    """Return how much is audited; of what the audit file does not ask for nothing is said."""
    models = len(audit.asked_models)
    parts = [f"encoders × datasets to audit: {len(audit.cells)}"] if audit.cells or not models else []
    return ", ".join(parts + ([f"generative models: {models}"] if models else []))


def _conclude(places: Places, outcome, *, seconds: float) -> None:
    if "findings" not in outcome.failures:
        if outcome.failures:
            errors.print("\nNot everything below is of this audit: some steps failed.", style="red")
        _print_findings(places)
        console.print(f"\nReport:  {places.report}", soft_wrap=True, highlight=False)
        console.print(
            f"Explore: {_ui_command(places)}   (Dagster and MLflow on this machine)", highlight=False
        )
    _say_undelivered(outcome.undelivered)
    audited = places.audit
    work = [f"{outcome.forward_passes} forward passes"] if audited.cells or not audited.generate else []
    work += [f"{outcome.generated:,} answers generated"] if audited.generate else []
    console.print(f"{', '.join(work)}, {seconds:.0f} s", style="dim", highlight=False)
    if outcome.failures:
        errors.print(f"{len(outcome.failures)} step(s) failed: {', '.join(outcome.failures)}", style="red")


def _say_undelivered(cells: Collection[str]) -> None:
    if cells:
        errors.print(
            f"MLflow could not be written for {len(cells)} cell(s); the numbers are in the lake, and the next "
            "`plumbline audit` or `plumbline report` delivers them.",
            style="yellow",
        )


def _ui_command(places: Places) -> str:
    standard = Places.standard()
    if places == standard:
        return "make ui"
    home = "" if places.home == standard.home else f"PLUMBLINE_HOME={places.home} "
    return f"{home}{Path(sys.executable).parent / 'plumbline'} ui --config {places.audit_path}"


def _print_findings(places: Places) -> None:
    from assets.findings import headline_reading
    from plumbline.report import findings_table

    found = findings_table(places.lake.read_table("metric_table"), headline_reading(places))
    if found.is_empty():
        console.print("No finding: nothing that this audit measured shows evidence of a difference.")
        return
    table = Table(title="Findings, the strongest of each kind", title_justify="left", box=SIMPLE_HEAD)
    for name in (
        "finding",
        "value",
        "interval, or range over probes" if places.audit.cells else "interval",
        "q",
        "dataset | model",
        "plumbline explain",
    ):
        table.add_column(name, overflow="fold")
    for row in found.iter_rows(named=True):
        texts = (
            row["finding"],
            row["value"],
            row["interval"],
            row["q"],
            f"{row['dataset']} | {row['model']}",
            row["explain"],
        )
        table.add_row(*(escape(text or "") for text in texts))
    console.print(table)


@app.command()
def ui(
    config: ConfigOption = None,
    dagster_port: Annotated[int, typer.Option(help="Port of Dagster.")] = 3000,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow.")] = 5000,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = False,
) -> None:
    """Serve Dagster and MLflow side by side, on this machine only, over the same store as `plumbline audit`.

    In Dagster look at *Lineage*, expand a group, click an asset and pick a partition `dataset|encoder`.
    In MLflow, on the page that is printed, tick two runs and press *Compare*.
    """
    from orchestration.servers import serve

    if browser:
        webbrowser.open(f"http://127.0.0.1:{dagster_port}")
    raise typer.Exit(
        serve(places_of(config), dagster_port=dagster_port, mlflow_port=mlflow_port, console=console)
    )


@app.command()
def report(
    config: ConfigOption = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Write the report again from what is in the lake; no model is loaded. Prints its path.

    What MLflow could not take when it was audited is delivered now.
    """
    places = places_of(config)
    from orchestration.instance import audit_lock, opened

    with opened(places) as instance, audit_lock(places):
        from orchestration.audit_run import run_job
        from orchestration.definitions import defs
        from orchestration.delivery import deliver_what_is_left

        delivered, undelivered = deliver_what_is_left(defs, instance, places)
        _, reason = run_job(defs, instance, "findings", None)
    if delivered:
        console.print(f"MLflow: {delivered} cell(s) delivered")
    _say_undelivered(undelivered)
    for why in dict.fromkeys(undelivered.values()):
        errors.print(why, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if reason is not None:
        raise PlumblineError("the report could not be written", found=reason)
    _print_findings(places)
    console.print(f"Report: {places.report}", soft_wrap=True, highlight=False)
    if browser:
        webbrowser.open(places.report.as_uri())


@app.command("export-mitigation")
def export_mitigation(
    encoder: Annotated[str, typer.Argument(help="Id of the encoder in the audit file.")],
    dataset: Annotated[str, typer.Argument(help="Id of the dataset that it was fitted and judged on.")],
    mitigation: Annotated[str, typer.Argument(help="Id of the mitigation in the audit file.")],
    to: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("mitigation"),
    config: ConfigOption = None,
) -> None:
    """Take a mitigation away: parameters as safetensors, and an example that applies them without Plumbline.

    `example.py` works with open_clip or transformers CLIP: `python example.py CHECKPOINT_FOLDER IMAGE`.
    """
    from assets.mitigation_export import export_from_audit

    for path in export_from_audit(places_of(config), encoder, dataset, mitigation, to):
        console.print(str(path), soft_wrap=True, highlight=False, markup=False)


@app.command()
def diff(
    old: Annotated[
        str, typer.Argument(help="An audit (`newest~1`, or the start of its id), or a checkpoint.")
    ],
    new: Annotated[
        str, typer.Argument(help="What it is compared with: an audit or a checkpoint too.")
    ] = "newest",
    html: Annotated[Path | None, typer.Option(help="Write a page to this file too.")] = None,
    config: ConfigOption = None,
) -> None:
    """Compare two audits, or two checkpoints of the newest audit: `plumbline diff newest~1`, `plumbline diff ID ID`.

    Per number old, new and their difference, on the same images where it can be; the images that flipped. Exits with
    1 where something got worse by more than `thresholds.regression` of the audit file allows.
    """
    from orchestration.diff_commands import compare, print_changes, write_changes

    changes = compare(places_of(config), old, new, console=console)
    print_changes(changes, console=console)
    if html is not None:
        write_changes(html, changes)
        console.print(f"Page: {html}", soft_wrap=True, highlight=False, markup=False)
    raise typer.Exit(1 if changes.worst.height else 0)


@app.command("sample-annotations")
def sample_annotations(
    to: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("annotations"),
    seed: Annotated[int, typer.Option(help="Which texts and words are drawn.")] = 0,
    config: ConfigOption = None,
) -> None:
    """Draw texts and words for people to annotate: how well do the scorer and the judge agree with them?

    Fill in a label for each row and annotator, and name the file under `language.annotations` of the audit file. Exits
    with 2 where there is nothing to draw from.
    """
    from orchestration.generation_commands import write_annotation_sheets

    written, shortfalls = write_annotation_sheets(places_of(config), to, seed=seed)
    for line in (*map(str, written), *shortfalls):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


@app.command()
def status(config: ConfigOption = None) -> None:
    """Show what is there and what is not: checkpoints on disk, datasets and their checks, cells and the report."""
    places = places_of(config)
    from orchestration.instance import opened
    from orchestration.status import print_status

    with opened(places) as instance:
        print_status(places, instance, console=console)


def main() -> None:
    """Run the command line; errors that have a remedy are shown without a traceback."""
    try:
        app()
    except PlumblineError as error:
        errors.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
