"""A comparison of two audits, or of two checkpoints of one, as a terminal shows it, and the page beside it."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from assets.audit_changes import changes_of
from assets.audit_comparison import cells_in_common, compare_audits, compare_checkpoints
from plumbline.commands.terminal import safe
from plumbline.errors import ConfigError
from plumbline.provenance.diff import REGRESSED
from plumbline.report.changes import TITLES, Changes
from plumbline.report.html import render_changes
from plumbline.report.listings import Listing
from plumbline.storage.lake import NEWEST, named_audit, recorded_audits
from resources.workspace import Workspace

_STYLES = {"worse": "bold red", "unknown": "yellow", "clear": "green"}


def compare(workspace: Workspace, old: str, new: str, *, console: Console) -> Changes:
    """Compare what two names mean: checkpoints of the newest audit if the audit file has both, else audits.

    Raises
    ------
    ConfigError
        If one is a checkpoint and the other is not, or the two have nothing in common.
    StorageError
        If there is no such audit.
    """
    models = {*workspace.audit.encoders, *workspace.audit.lvlms}
    with console.status("reading") as shown:

        def show(text: str) -> None:
            shown.update(safe(text))

        if old in models and new in models:
            audit = named_audit(workspace.lake, NEWEST)
            diff = compare_checkpoints(workspace, audit, old, new, log=show)
            return changes_of(workspace, diff, names=(old, new), old_audit=audit)
        if old in models or new in models:
            raise ConfigError(
                "a checkpoint is compared with a checkpoint, an audit with an audit", found=f"{old}, {new}"
            )
        ids = [named_audit(workspace.lake, name) for name in (old, new)]
        times = recorded_audits(workspace.lake)
        if not cells_in_common(workspace, *ids):
            raise ConfigError(
                "these audits have no model on a dataset in common",
                found=", ".join(f"{audit[:12]} of {times[audit]}" for audit in ids),
                expected="two audits of one model on one dataset",
            )
        diff = compare_audits(workspace, *ids, log=show)
        names = [f"audit {audit[:12]} of {times[audit]}" for audit in ids]
        return changes_of(workspace, diff, names=(names[0], names[1]), old_audit=ids[0])


def print_changes(changes: Changes, *, console: Console) -> None:
    """Show what got worse, then what got better, appeared and vanished; why, and how many images flipped."""
    console.print(f"[bold]{safe(changes.old)}[/] → [bold]{safe(changes.new)}[/]", highlight=False)
    console.print(changes.summary, style=_STYLES[changes.state], highlight=False)
    for line in changes.not_compared:
        console.print(f"not compared: {safe(line)}", style="yellow", highlight=False)
    if changes.how:
        console.print(changes.how, style="dim", highlight=False)
    for title, listing in changes.listings:
        _print(listing, title, console, style="red" if title == TITLES[REGRESSED] else None)
    if changes.flips.height:
        _print(changes.flipped, f"{changes.flips.height:,} answers to an image that changed", console)
    if changes.reasons.rows:
        _print(changes.reasons, "Where the changes come from", console)
    for line in changes.absent:
        first, *others = line.splitlines()
        console.print(f"not compared image by image: {safe(first)}", style="yellow", highlight=False)
        for line in others:
            console.print(safe(line), style="yellow", highlight=False)


def write_changes(path: Path, changes: Changes) -> None:
    """Write the page."""
    path.write_text(render_changes(changes, title="What changed"), "utf-8")


def _print(listing: Listing, title: str, console: Console, *, style: str | None = None) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, title_style=style)
    for place, head in enumerate(listing.heads):
        table.add_column(head, justify="right" if place in listing.numeric else "left", overflow="fold")
    for row in listing.rows:
        table.add_row(*map(safe, row))
    console.print(table)
    if listing.note:
        console.print(listing.note, style="dim", highlight=False)
