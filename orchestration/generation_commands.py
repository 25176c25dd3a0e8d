"""The commands of the generative audit: what it would cost, and sheets for people to annotate."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plumbline.lvlm.plan import Plan
from plumbline.storage.arrays import csv_bytes
from resources.places import Places


def print_plan(places: Places, *, console: Console) -> None:
    """Show rows, tokens, time and cost of every model and slice, and whether the audit file's limit allows them.

    Raises
    ------
    ConfigError
        If the plan is above a limit.
    StorageError
        If the records of a dataset have not been made: which images there are is not known yet.
    """
    from assets.generation_plan import plan_generation

    plan = plan_generation(places)
    console.print(_table(plan))
    console.print(plan.told, highlight=False)
    plan.require(places.audit.generation.limit)


def _table(plan: Plan) -> Table:
    table = Table(title="To generate", title_justify="left", box=SIMPLE_HEAD)
    for name in ("model | slice", "answers", "are there", "tokens read", "written", "time", "cost"):
        table.add_column(name, justify="left" if "|" in name else "right")
    for one in plan.slices:
        numbers = (one.rows, one.finished, one.prompt_tokens, one.new_tokens)
        seconds = "?" if one.seconds is None else f"{one.seconds / 60:,.1f} min"
        cost = "?" if one.cost is None else f"{one.cost:,.2f}"
        name = f"{one.model} | {one.slice}"
        table.add_row(escape(name), *(f"{n:,}" for n in numbers), seconds if one.to_do else "", cost)
    return table


def write_annotation_sheets(places: Places, folder: Path, *, seed: int) -> list[Path]:
    """Write the sheets that people fill in, and the keys that say where each text is from; returns their paths."""
    from plumbline.text.annotation_sheets import annotation_sheets

    from assets.answers import StoredAnswers

    cells = []
    for model in dict.fromkeys(model for model, _ in places.audit.designs if model not in places.audit.twins):
        stored = StoredAnswers.find(places, model)
        words = places.lake.read_table("word_associations", partition=model)
        cells.append((model, stored.cell(), words))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in annotation_sheets(cells, seed=seed).items():
        path = folder / f"{name}.csv"
        path.write_bytes(csv_bytes(frame))
        written.append(path)
    return written
