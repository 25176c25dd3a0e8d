"""Texts from outside stay text wherever a person reads them: pages, Dagster's metadata, MLflow, terminal, exports.

What a browser makes of a whole report with them is in test_page_in_browser.py, what a chart makes of them in
test_charts.py.
"""

import csv
import io
import re

import polars as pl
import pytest
from hostile_texts import HIDDEN, HOSTILE
from rich.console import Console
from scorecard_rows import answer, frame

from assets.results import markdown_table, report_link
from plumbline.commands import scorecards, terminal
from plumbline.provenance.export import model_card
from plumbline.report.page import environment, page_html
from plumbline.report.reading import Reading
from plumbline.report.scorecard import scorecard
from plumbline.storage.files import csv_bytes
from plumbline.visible import visible

BODY = '<p id="of-the-page" data-tip="{{ text }}">{{ text }}</p>'


def page(text):
    return page_html(environment().from_string(BODY), title=text, text=text)


def metadata(text):
    return markdown_table(pl.DataFrame({"model": [text], "value": [0.5], text: [1]}))


def link(text):
    return report_link(text, text).value


def card(text):
    row = {**frame(answer("a")).row(0, named=True), "dataset": text, "event": text}
    return model_card(text, pl.DataFrame([row]), about={}).rpartition("\n---\n")[2]


def printed(text):
    console = Console(file=io.StringIO(), width=2000, force_terminal=True, color_system=None)
    console.print(terminal.safe(text), highlight=False)
    return console.file.getvalue().rstrip("\n")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("surface", [page, metadata, link, card, printed])
def test_a_text_from_outside_hides_and_starts_nothing(surface, text):
    shown = surface(text)
    assert not re.search(HIDDEN, shown)
    if surface is not printed:
        assert not re.search(r"(?<!\\)<(script|img)", shown, re.IGNORECASE)
    if surface in (metadata, card):
        rows = [line for line in shown.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows}) == 1, "a cell ends its column"
        assert not re.search(r"(?<!\\)!?\[[^\]\\]*\]\(", "".join(rows)), "no link, no picture"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_cell_of_an_exported_table_is_a_formula(text):
    (row,) = csv.DictReader(io.StringIO(csv_bytes(pl.DataFrame({"model": [text]})).decode(), newline=""))
    # Where semicolons part cells, a line break in a text begins a row.
    assert row["model"].replace("\n'", "\n") in (text, f"'{text}")
    assert not re.search(r"(^|\n)\s*[=+\-@]", row["model"])


@pytest.mark.parametrize("text", [HOSTILE["an escape sequence"], HOSTILE["markup of the terminal"]])
def test_the_scorecard_of_a_terminal_obeys_no_name(text, monkeypatch):
    console = Console(file=io.StringIO(), width=2000, force_terminal=True, color_system=None)
    monkeypatch.setattr(scorecards, "console", console)
    scorecards._print_models(scorecard(frame(answer(text, dataset=text)), Reading()))
    shown = console.file.getvalue()
    assert "\x1b" not in shown and visible(text)[:8] in shown
