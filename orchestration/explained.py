"""An explanation as a terminal shows it, and the page beside it."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from assets.explanation import explain, write_page
from assets.findings import headline_reading
from plumbline.commands.terminal import safe, working
from plumbline.metrics.registry import current_table
from plumbline.provenance.chain import STATES, damaged
from plumbline.provenance.explanation import Explanation, change_text, estimate_text, find_row
from plumbline.report.findings import adjusted_text
from resources.workspace import Workspace

_COLOURS = {"unchanged": "green", "changed": "red", "gone": "red", "not checked": "dim"}
_PROMPTS_SHOWN = 6


def explain_row(
    workspace: Workspace,
    name: str | None,
    filters: dict[str, str],
    *,
    audit: str,
    adjusted: bool,
    html: Path | None,
    console: Console,
) -> Explanation:
    """Explain one row: print it, and write the page where one is asked for.

    Raises
    ------
    ConfigError
        If not exactly one row is meant.
    """
    with working("reading what the number comes from, and comparing it with what is on disk …"):
        past = workspace.of_audit(audit)
        table = current_table(past.lake.read_table("metric_table"))
        explanation = explain(past, find_row(table, name, filters))
    print_explanation(explanation, console=console)
    if not adjusted and explanation.row["q"] is not None:
        console.print("\nA finding that tells it gives a wider interval, and another q: `--adjusted`.", style="dim")
    if adjusted:
        with working("looking at what findings are picked from …"):
            text = adjusted_text(table, explanation.id, headline_reading(past))
        console.print(f"\n{safe(text)}", highlight=False)
    if html is not None:
        write_page(html, explanation, title=past.audit.title)
        console.print(f"Page: {html}", soft_wrap=True, highlight=False, markup=False)
    return explanation


def print_explanation(explanation: Explanation, *, console: Console) -> None:
    """Show an explanation in a terminal."""
    row = explanation.row
    console.print(f"[bold]{safe(row['metric'])}[/] {safe(estimate_text(row))}", highlight=False)
    measured = ", ".join(f"{name}={value}" for name, value in explanation.measured.items() if name != "metric")
    console.print(f"row {explanation.id}: {safe(measured)}", highlight=False)
    console.print(_chain(explanation))
    for link in explanation.chain:
        if link.texts:
            more = len(link.texts) - _PROMPTS_SHOWN
            shown = " | ".join(link.texts[:_PROMPTS_SHOWN]) + (f" | and {more} more" if more > 0 else "")
            console.print(f"{safe(link.what)}: {safe(shown)}", style="dim", highlight=False)
    lost = damaged(explanation.chain)
    for link in lost:
        note = f": {safe(link.note)}" if link.note else ""
        console.print(f"{STATES[link.state]}: {safe(link.what)} {safe(link.name)}{note}", style="red", highlight=False)
    if not lost:
        console.print("Everything that could be checked is what this number was computed from.", highlight=False)
    console.print(f"\nThe images that move it most. {safe(explanation.influence.method)}", highlight=False)
    if explanation.influence.moved:
        console.print(_moved(explanation))


def _chain(explanation: Explanation) -> Table:
    table = Table("what", "which", "now", "sha256", box=SIMPLE_HEAD, title="Where it comes from", title_justify="left")
    for link in explanation.chain:
        state = f"[{_COLOURS[link.state]}]{STATES[link.state]}[/]"
        note = f"\n{safe(link.note)}" if link.note else ""
        table.add_row("  " * link.level + safe(link.what), safe(link.name) + note, state, (link.digest or "–")[:12])
    return table


def _moved(explanation: Explanation) -> Table:
    table = Table("change", "left out", "such as", box=SIMPLE_HEAD)
    for moved in explanation.influence.moved:
        thumbnails = [explanation.thumbnails.get(image) for image in moved.images[:2]]
        names = [f"{one.path}{' (' + one.missing + ')' if one.missing else ''}" for one in thumbnails if one]
        table.add_row(change_text(moved.change), safe(moved.label), safe(", ".join(names)))
    return table
