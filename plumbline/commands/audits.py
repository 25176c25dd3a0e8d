"""Commands of the package alone: init and suite, which the pipeline has too, audit, check and scorecard in memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from plumbline.commands.terminal import (
    ConfigOption,
    DatasetOption,
    ImagesOption,
    LabelsOption,
    MapOption,
    ModelOption,
    RateOption,
    SuiteOption,
    console,
    errors,
    safe,
    say,
)
from plumbline.errors import ConfigError

_TABLE, _REPORT = "metric_table.parquet", "report.html"


def init_command(
    folder: Annotated[Path, typer.Argument(help="A folder of images, with a table of labels where there is one.")],
    model: ModelOption = None,
    to: Annotated[Path, typer.Option(help="The audit file to write.")] = Path("audit.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the audit file that is there.")] = False,
) -> None:
    """Look at a folder and write an audit file for it: table, columns, groups, checkpoints. Nothing is computed.

    What it could not find is marked `FILL IN`; `plumbline check` says what is still missing.
    """
    from plumbline.commands.audit_files import audit_file_for

    if to.exists() and not force:
        raise ConfigError(
            "there is an audit file already", where=to, hint="`--to FILE` writes another, `--force` replaces it"
        )
    to.write_text(audit_file_for(folder, model or ()), "utf-8")
    option = "" if to == Path("audit.yaml") else f" --config {to}"
    say(f"Written: {to}")
    say(f"Next: plumbline check{option}   (seconds: what an audit of it will find), then plumbline audit{option}")


def audit_command(
    config: ConfigOption = None,
    model: ModelOption = None,
    images: ImagesOption = None,
    labels: LabelsOption = None,
    map_: MapOption = None,
    dataset: DatasetOption = None,
    suite: SuiteOption = None,
) -> None:
    """Audit encoders on folders of images, in memory, and write the report: of an audit file, or of these options.

    Embeddings are kept, so that a second audit is quick. Mitigations, automatic labels, models that answer in words,
    lineage and incremental audits are the pipeline's, which runs from a checkout of the project.
    """
    from plumbline.commands.audit_files import AskedByOptions
    from plumbline.commands.checks import doomed_datasets, require_undoomed
    from plumbline.commands.places import dataset_place, default_home, here
    from plumbline.commands.scorecards import print_scorecard
    from plumbline.config.file import read_audit
    from plumbline.notebook.files import audit_in_memory

    started, home = time.monotonic(), default_home()
    options = AskedByOptions.of(model, images, labels, map_, dataset, suite, config=config)
    path = _audit_path(config) if options is None else options.write(home / "audit.yaml")
    audit = read_audit(path)
    doomed = doomed_datasets(audit, dict.fromkeys(dataset for dataset, _ in audit.cells), home=home)
    require_undoomed(doomed, audit, path)
    with console.status("reading") as status:
        done = audit_in_memory(
            audit,
            name=path.name,
            home=home,
            start=here(),
            place=lambda root: dataset_place(root, home=home),
            refused=doomed,
            progress=lambda what, done, total: status.update(f"{safe(what)} {done:,} of {total:,}"),
        )
        home.mkdir(parents=True, exist_ok=True)
        done.table.write_parquet(home / _TABLE)
        (home / _REPORT).write_text(done.report(), "utf-8")
    print_scorecard(done.table, done.reading)
    for one in done.inputs.absent:
        errors.print(f"{one.model} on {one.dataset}: {one.reason}", style="yellow", markup=False, highlight=False)
    left_out: dict[str, list[str]] = {}
    for one in done.inputs.not_tried:
        left_out.setdefault(one.reason, []).append(f"{one.model} on {one.dataset}")
    for reason, cells in left_out.items():
        say(f"left out, {reason} ({cells[0]}{f' and {len(cells) - 1} more' if cells[1:] else ''})")
    say(f"\nReport:  {home / _REPORT}")
    say(f"Table:   {home / _TABLE}   ({done.table.height:,} numbers, {time.monotonic() - started:.0f} s)")
    raise typer.Exit(1 if done.inputs.absent else 0)


def check_command(config: ConfigOption = None, rate: RateOption = 0.1) -> None:
    """Look at the data and models of the audit file, in seconds: nothing is embedded, no model is loaded.

    Says of each dataset how many images are listed and refused, by code, with examples; which groups there are, and
    which rows have none; what an audit of this size can detect; and of each model what is wrong with its files. Exits
    with 2 where the audit is bound to fail.
    """
    from plumbline.commands.checks import print_checks
    from plumbline.commands.places import dataset_place, default_home
    from plumbline.config.file import read_audit
    from plumbline.config.own import own_code_mistakes

    audit, home = read_audit(_audit_path(config)), default_home()
    mistakes = own_code_mistakes(audit, lambda dataset: dataset_place(audit.datasets[dataset].root, home=home))
    if print_checks(audit, home=home, rate=rate, mistakes=mistakes):
        raise typer.Exit(2)


def suite_command(
    file: Annotated[
        Path, typer.Argument(help="A file of prompts, or a suite such as `crime`; with `--new` the file to write.")
    ],
    new: Annotated[
        str | None,
        typer.Option(
            help="Write a commented starter of this kind: outcomes, perception, trident, markedness, templates, "
            "captions."
        ),
    ] = None,
    encoder: Annotated[
        list[str] | None,
        typer.Option(help="Count tokens with the tokenizer of this encoder: an id of the audit file, or an address."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every prompt, not a few of each category.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show a suite, of your own or one that is here, as models will be asked it, and what is wrong with it.

    Prints the rendered prompts, the kind and which metrics read it, words to look at twice (`a` and `an`, words that
    stand twice), and how many tokens the prompts have to each encoder of the audit file, or to `--encoder`, against
    its limit, with what would be cut. Exits with 2 where an audit would refuse the file.
    """
    from plumbline.commands.suites import print_suite, write_starter

    if new is not None:
        write_starter(file, new)
        say(
            f"{file} is written; `plumbline suite {file}` shows it, `suites: [./{file.name}]` of an audit file asks it."
        )
        return
    if print_suite(file, config=config, encoders=encoder, every=every):
        raise typer.Exit(2)


def scorecard_command(
    csv: Annotated[Path | None, typer.Option(help="Also write every cell with its numbers to this file.")] = None,
) -> None:
    """Print which model is worst, for whom, by how much and how sure: models x questions of the newest audit."""
    import polars as pl

    from plumbline.commands.places import default_home
    from plumbline.commands.scorecards import print_scorecard
    from plumbline.report.reading import Reading

    path = default_home() / _TABLE
    if not path.is_file():
        raise ConfigError(
            "nothing was audited here", where=path, hint="run `plumbline audit` first, or set PLUMBLINE_HOME"
        )
    print_scorecard(pl.read_parquet(path), Reading(), csv=csv)


def _audit_path(config: Path | None) -> Path:
    """Return the audit file that is meant: the one that is named, or `audit.yaml`."""
    from plumbline.commands.places import from_here

    return from_here(str(config or "audit.yaml"))
