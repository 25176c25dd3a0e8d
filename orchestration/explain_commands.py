"""The commands that look back at an audit: where a number comes from."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestration.terminal import ConfigOption, console, places_of
from plumbline.explain.chain import STATES, damaged
from plumbline.explain.explanation import Explanation, find_row
from plumbline.explain.page import change_text, estimate_text
from plumbline.report.visible import visible
from plumbline.storage.record import named_audit, read_record
from resources.places import Places

_COLOURS = {"unchanged": "green", "changed": "red", "gone": "red", "not checked": "dim"}
_PROMPTS_SHOWN = 6


def past_places(places: Places, audit: str) -> Places:
    """Return the places of a recorded audit that a person names."""
    return dataclasses.replace(places, past=read_record(places.lake, named_audit(places.lake, audit)))


def explain_row(
    places: Places,
    name: str | None,
    filters: dict[str, str],
    *,
    audit: str,
    html: Path | None,
    console: Console,
) -> Explanation:
    """Explain one row: print it, and write the page where one is asked for.

    Raises
    ------
    ConfigError
        If not exactly one row is meant.
    """
    from assets.explanation import explain, write_page

    past = past_places(places, audit)
    explanation = explain(past, find_row(past.lake.read_table("metric_table"), name, filters))
    print_explanation(explanation, console=console)
    if html is not None:
        write_page(html, explanation, title=past.audit.title)
        console.print(f"Page: {html}", soft_wrap=True, highlight=False, markup=False)
    return explanation


def print_explanation(explanation: Explanation, *, console: Console) -> None:
    """Show an explanation in a terminal."""
    row = explanation.row
    console.print(f"[bold]{_safe(row['metric'])}[/] {_safe(estimate_text(row))}", highlight=False)
    told = ", ".join(f"{name}={value}" for name, value in explanation.measured.items() if name != "metric")
    console.print(f"row {explanation.id}: {_safe(told)}", highlight=False)
    console.print(_chain(explanation))
    for link in explanation.chain:
        if link.texts:
            more = len(link.texts) - _PROMPTS_SHOWN
            shown = " | ".join(link.texts[:_PROMPTS_SHOWN]) + (f" | and {more} more" if more > 0 else "")
            console.print(f"{_safe(link.what)}: {_safe(shown)}", style="dim", highlight=False)
    lost = damaged(explanation.chain)
    for link in lost:
        console.print(
            f"{STATES[link.state]}: {_safe(link.what)} {_safe(link.name)}: {_safe(link.note)}",
            style="red",
            highlight=False,
        )
    if not lost:
        console.print(
            "Everything that could be checked is what this number was computed from.", highlight=False
        )
    console.print(f"\nThe images that move it most. {_safe(explanation.influence.method)}", highlight=False)
    if explanation.influence.moved:
        console.print(_moved(explanation))


def _chain(explanation: Explanation) -> Table:
    table = Table(
        "what", "which", "now", "sha256", box=SIMPLE_HEAD, title="Where it comes from", title_justify="left"
    )
    for link in explanation.chain:
        state = f"[{_COLOURS[link.state]}]{STATES[link.state]}[/]"
        note = f"\n{_safe(link.note)}" if link.note else ""
        table.add_row(
            "  " * link.level + _safe(link.what), _safe(link.name) + note, state, (link.digest or "–")[:12]
        )
    return table


def _moved(explanation: Explanation) -> Table:
    table = Table("change", "left out", "such as", box=SIMPLE_HEAD)
    for moved in explanation.influence.moved:
        found = [explanation.thumbnails.get(image) for image in moved.images[:2]]
        names = [f"{one.path}{' (' + one.missing + ')' if one.missing else ''}" for one in found if one]
        table.add_row(change_text(moved.change), _safe(moved.told), _safe(", ".join(names)))
    return table


def _safe(text: Any) -> str:
    return escape(visible(text))


Filter = Annotated[str | None, typer.Option(help="Only rows with this in the column of that name.")]


def explain_command(
    row: Annotated[str | None, typer.Argument(help="Name of the row, as the report shows it.")] = None,
    metric: Filter = None,
    definition: Filter = None,
    model: Filter = None,
    dataset: Filter = None,
    suite: Filter = None,
    attribute: Filter = None,
    group: Filter = None,
    event: Filter = None,
    probe: Filter = None,
    prompt: Filter = None,
    instruction: Filter = None,
    scorer: Filter = None,
    condition: Filter = None,
    statistic: Filter = None,
    audit: Annotated[
        str, typer.Option(help="Which audit: `newest`, `newest~1`, or the start of an id.")
    ] = "newest",
    html: Annotated[Path | None, typer.Option(help="Also write a page with pictures to this file.")] = None,
    config: ConfigOption = None,
) -> None:
    """Explain one number: its chain back to weights, prompts and files, and the images that move it most.

    Name the row, or filter until one row is left. Everything upstream is compared with what is on disk now: what is
    gone or has changed since is said.
    """
    named = {
        "metric": metric, "definition": definition, "model": model, "dataset": dataset, "suite": suite,
        "attribute": attribute, "group": group, "event": event, "probe": probe, "prompt": prompt,
        "instruction": instruction, "scorer": scorer, "condition": condition, "statistic": statistic,
    }  # fmt: skip
    filters = {column: value for column, value in named.items() if value is not None}
    explain_row(places_of(config), row, filters, audit=audit, html=html, console=console)
