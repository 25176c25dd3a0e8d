"""The scorecard in the terminal: which model is worst, for whom, by how much and how sure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text
from upath import UPath

from plumbline.commands.terminal import console, safe, say
from plumbline.report.front import verdict
from plumbline.report.reading import Reading
from plumbline.report.rows import defined
from plumbline.report.scorecard import (
    OF_SMOOTHED,
    asked_models,
    interval_text,
    is_smoothed,
    not_ranked,
    scorecard,
    value_text,
)
from plumbline.storage.files import commit_bytes, csv_bytes

_MARKS = {"evidence": "●", "none": "○", "evidence_of_none": "■", "too_weak": "×"}
_KEY = (
    "● evidence of a difference, ○ no evidence, ■ evidence of none beyond the margin, × too few images to tell; "
    "without a mark nothing was tested. Below each value its interval; of no evidence ≥ what would have been found "
    "with 80% power. Evidence goes by q, which is corrected for all tests of its kind: an interval alone may exclude 0."
)
_COLUMN = 18


def print_scorecard(table: pl.DataFrame, reading: Reading, *, csv: Path | None = None) -> None:
    """Print the scorecard of a metric table, and write every cell to a file where one is named."""
    card = scorecard(table, reading)
    for sentence in verdict(card, reading, table):
        console.print(safe(sentence), highlight=False)
    for kind in ("encoder", "generator"):
        _print_models(card.filter(kind=kind))
    say(_KEY)
    if any(map(is_smoothed, card.to_dicts())):
        say(f"‡ {OF_SMOOTHED}.")
    if csv is not None:
        commit_bytes(UPath(csv), csv_bytes(card))
        say(f"Every cell: {csv}")


def _print_models(card: pl.DataFrame) -> None:
    """Print the models of one kind, as many questions side by side as the terminal is wide."""
    models = asked_models(card)
    cells = {(cell["model"], cell["title"]): cell for cell in card.to_dicts()}
    titles = list(dict.fromkeys(title for _, title in cells))
    many = max(1, (console.width - max(map(len, models), default=0) - 4) // _COLUMN)
    for first in range(0, len(titles), many):
        shown = titles[first : first + many]
        table = Table(box=SIMPLE_HEAD)
        table.add_column("worst first", overflow="fold")
        for title in shown:
            table.add_column(title, overflow="fold", max_width=_COLUMN - 2)
        apart = not_ranked(card)
        for model in models:
            of_model = [cells[model, title] for title in shown]
            texts = [_text(cell) for cell in of_model]
            datasets = dict.fromkeys(cell["dataset"] for cell in of_model if cell["dataset"])
            about = f"{safe(', '.join(datasets))}{', not ranked' * (model in apart)}"
            table.add_row(f"{safe(model)}\n{about}", *(Text(text.rstrip()) for text in texts))
        console.print(table)


def _text(cell: Mapping[str, Any]) -> str:
    """Return value, interval and, of no evidence, what would have been found, in lines."""
    lines = [f"{_MARKS.get(cell['state'], ' ')} {value_text(cell)}{'‡' * is_smoothed(cell)}", interval_text(cell)]
    if cell["state"] in ("none", "evidence_of_none") and defined(cell["smallest_detectable"]):
        lines.append(f"≥ {value_text({**cell, 'value': cell['smallest_detectable']})}")
    return "\n  ".join(line for line in lines if line)
