"""Pages about the shipped checkpoints, from the templates in `pages`: the card of each, and the two pages of figures.

`python -m plumbline.world.cards` writes all cards again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import typer

from plumbline.world import sources
from plumbline.world.training import CARD, CHECKPOINTS, RECORD, read_record


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with a line of column names."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def render(template: str, **values: object) -> str:
    """Fill a template of the folder `pages`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - Markdown, of this project's own values
        loader=PackageLoader("plumbline.world", "pages"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)


def publish(page: str, out: Path | None) -> None:
    """Write a page of figures, or print it."""
    if out is None:
        typer.echo(page)
    else:
        out.write_text(page, "utf-8")


def checkpoint_card(folder: Path) -> str:
    """Return the card of a checkpoint folder, from what its training and its measuring recorded.

    Parameters
    ----------
    folder : Path
        With `training.json`. A card decides nothing of what a checkpoint computes: it is in no digest.
    """
    record = {"architecture": None, **read_record(folder)}
    family = record["recipe"].get("family", "open_clip")
    events: list[dict[str, object]] = []
    if family == "llava":
        rates = pl.DataFrame(record["measured"]).filter(prompt="characteristics", instruction="none")
        for (event,), groups in rates.group_by("event", maintain_order=True):
            planted, measured = groups["planted"].to_numpy(), groups["measured"].to_numpy()
            events.append({
                "event": event, "groups": len(groups), "n": groups["n"][0], "planted": planted.mean(),
                "measured": measured.mean(), "off": np.abs(planted - measured).mean(),
            })  # fmt: skip
    is_generative = family in ("llava", "llama")
    return render(
        "card.md.jinja",
        **record,
        family=family,
        is_generative=is_generative,
        events=events,
        planted_rate=sources.planted_rate,
    )


def main() -> None:
    """Write the card of every checkpoint."""
    for record in sorted(CHECKPOINTS.glob(f"*/{RECORD}")):
        (record.parent / CARD).write_text(checkpoint_card(record.parent), "utf-8")


if __name__ == "__main__":
    main()
