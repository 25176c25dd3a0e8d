"""The commands that hand something on: a whole audit as a folder, whether it is still what it was, a mitigation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.audit_file import stored_workspace_of
from plumbline.commands.terminal import ConfigOption, console, say, working

if TYPE_CHECKING:
    from resources.workspace import Workspace


def export_command(
    audit: Annotated[str, typer.Option(help="Which audit: `newest`, `newest~1`, or the start of an id.")] = "newest",
    to: Annotated[
        Path | None, typer.Option(help="Folder to write; by default `audit-` and the start of the id.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Bundle an audit: metric table, report, provenance, model cards, impact ratios, checksums.

    Everything is read from the record of the audit, as it was, whatever has been replaced since.
    """
    with working("reading the audit, and writing it to a folder …"):
        from assets.export import export_audit

        workspace = stored_workspace_of(config)
        past = workspace.of_audit(audit)
        assert past.past is not None
        folder = (to or Path(f"audit-{past.past.audit_id[:12]}")).resolve()
        written = list(export_audit(past, folder, report=report_of(workspace, past.past.audit_id)))
    for name in written:
        say(folder / name)


def report_of(workspace: Workspace, audit_id: str) -> Path | None:
    """Return the report if it is that of the audit; None if it is another's, or not there.

    Raises
    ------
    StorageError
        If it is a link, a pipe or a device: it is not read then.
    """
    from plumbline.provenance.forms import require_plain

    try:
        require_plain(workspace.report, kind="file")
        page = workspace.report.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    return workspace.report if f"audit <code>{audit_id[:12]}</code>" in page else None


def verify_command(folder: Annotated[Path, typer.Argument(help="A folder that `plumbline export` wrote.")]) -> None:
    """Compare an exported audit with its checksums; names every file that is missing, changed or extra.

    Exits with 1 if there is one.
    """
    from plumbline.provenance.forms import verify_folder
    from plumbline.visible import visible

    verdict = verify_folder(folder)
    wrong = {"missing": verdict.missing, "changed": verdict.changed, "extra": verdict.extra}
    for what, names in wrong.items():
        for name in names:
            say(f"{what}: {visible(name)}", style="red")
    counts = ", ".join(f"{len(names)} {what}" for what, names in wrong.items() if names)
    verdict_text = "As it was exported" if verdict.passed else f"Not as it was exported, {counts}"
    console.print(f"{verdict_text}: {verdict.sound} file(s) are the same.", highlight=False)
    raise typer.Exit(0 if verdict.passed else 1)


def export_mitigation_command(
    encoder: Annotated[str, typer.Argument(help="Id of the encoder in the audit file.")],
    dataset: Annotated[str, typer.Argument(help="Id of the dataset that it was fitted and evaluated on.")],
    mitigation: Annotated[str, typer.Argument(help="Id of the mitigation in the audit file.")],
    to: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("mitigation"),
    config: ConfigOption = None,
) -> None:
    """Export a mitigation: parameters as safetensors, and an example that applies them without Plumbline.

    `example.py` works with open_clip or transformers CLIP: `python example.py CHECKPOINT_FOLDER IMAGE`.
    """
    with working("reading the mitigation, and writing it to a folder …"):
        from assets.mitigation_export import export_from_audit

        written = list(export_from_audit(stored_workspace_of(config), encoder, dataset, mitigation, to))
    for path in written:
        say(path)
