"""The command that gets checkpoints and datasets: the only one that downloads anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.audit_file import workspace_of
from plumbline.commands.terminal import ConfigOption, console, safe, say
from plumbline.errors import PlumblineError

if TYPE_CHECKING:
    from resources.workspace import Workspace


def fetch_command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of checkpoints and datasets in the audit file; without any, they are listed."),
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(help="A downloaded archive of one dataset: zip, tar, tar.gz, tar.bz2 or tar.xz.")
    ] = None,
    newest: Annotated[
        bool,
        typer.Option("--newest", help="For addresses without a commit: fetch the newest, not the one fetched first."),
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Fetch checkpoints and datasets from the hub into `.plumbline`, at their pinned revisions, digests recorded.

    Weights end as safetensors: a repository that has only a pickle is converted once, in a process of its own.
    Datasets that must be asked for are explained; `--archive` extracts what you were given into the folder that the
    audit file names. The only command that downloads anything. Repeating it resumes, and keeps to
    the commit of the first fetch where the address is `ARCHITECTURE/TAG` or `hf-hub:ORG/NAME@fetched`; `--newest` gets
    the newest.
    """
    workspace = workspace_of(config)
    # huggingface_hub reads the variable when it is imported: here, for the first time.
    os.environ["HF_HUB_OFFLINE"] = "0"
    from resources.fetching import fetchable, wanted

    chosen = [wanted(workspace, name) for name in ids or ()]
    if archive is not None:
        if [one.kind for one in chosen] != ["dataset"]:
            raise PlumblineError("an archive belongs to one dataset", expected="plumbline fetch ID --archive FILE")
        _extract(workspace, chosen[0].id, archive)
    elif chosen:
        for one in chosen:
            _fetch(workspace, one, newest=newest)
    else:
        _print_fetchable(workspace, fetchable(workspace))


def _fetch(workspace: Workspace, one, *, newest: bool) -> None:
    if one.kind != "dataset":
        text = _fetch_checkpoint(workspace, one, newest=newest)
    elif newest:
        raise PlumblineError("the address of this one names its commit", found="--newest", hint="leave it out")
    else:
        from plumbline.datasets.sources import obtaining
        from resources.fetching_datasets import fetch_dataset

        folder = fetch_dataset(workspace, one.id)
        reader = workspace.dataset_entry(one.id).reader
        text = obtaining(reader).instructions(one.id) if folder is None else f"{one.id}: {folder}"
    say(text)


def _fetch_checkpoint(workspace: Workspace, one, *, newest: bool) -> str:
    from resources.fetching_checkpoints import fetch_checkpoint, pinned_commit

    folder = fetch_checkpoint(workspace, one.id, kind=one.kind, newest=newest)
    commit = pinned_commit(workspace, one.id, one.kind)
    if commit is None:
        return f"{one.id}: {folder}"
    return f"{one.id}: {folder}\n  at commit {commit}, which later fetches keep to; --newest gets the newest one"


def _extract(workspace: Workspace, dataset: str, archive: Path) -> None:
    from resources.fetching_datasets import extract_dataset

    with console.status(f"{safe(archive.name)}: extracting") as shown:

        def show(size: int) -> None:
            shown.update(f"{safe(archive.name)}: {size / 1e6:,.0f} MB extracted")

        folder, extracted = extract_dataset(workspace, dataset, archive, progress=show)
    text = f"{dataset}: {folder} ({extracted.files} files, {extracted.bytes / 1e6:,.0f} MB)"
    say(text)


def _print_fetchable(workspace: Workspace, lines) -> None:
    if not lines:
        console.print(f"Everything that {workspace.audit_path.name} names comes with the checkout.", highlight=False)
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("id", "kind", "comes", "there", "address or folder", box=SIMPLE_HEAD)
    for line in lines:
        there = "yes" if line.there else "no"
        table.add_row(*map(safe, (line.wanted.id, line.wanted.kind, line.how, there, line.source)))
    console.print(table)
