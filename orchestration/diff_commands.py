"""The command that compares: two audits, or two checkpoints of one."""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.audit_file import stored_workspace_of
from plumbline.commands.terminal import ConfigOption, console, say

# Not 0: a script that asks whether anything got worse must not take "not known" for "no". 2 is an error.
_NOT_KNOWN = 3


def diff_command(
    old: Annotated[str, typer.Argument(help="An audit (`newest~1`, or the start of its id), or a checkpoint.")],
    new: Annotated[str, typer.Argument(help="The audit or checkpoint to compare it with.")] = "newest",
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page to this file.")] = None,
    config: ConfigOption = None,
) -> None:
    """Compare two audits, or two checkpoints of the newest audit: `plumbline diff newest~1`, `plumbline diff ID ID`.

    Of each number that changed with evidence old, new and their difference, on the same images where it can be; the
    images that flipped. All numbers stand in the table `audit_diff`. Exits with 1 where something got worse by more
    than `thresholds.regression` of the audit file allows; else with 3 where something was not compared: a suite whose
    prompts changed, or a checkpoint that is no better than chance.
    """
    from orchestration.compared import compare, print_changes, write_changes

    changes = compare(stored_workspace_of(config), old, new, console=console)
    print_changes(changes, console=console)
    if html is not None:
        write_changes(html, changes)
        say(f"Page: {html}")
    raise typer.Exit(1 if changes.regressed else _NOT_KNOWN if changes.not_compared else 0)
