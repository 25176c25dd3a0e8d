"""The commands of the generative audit: what it would cost, and sheets for people to annotate."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plumbline.errors import ConfigError
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


def write_annotation_sheets(places: Places, folder: Path, *, seed: int) -> tuple[list[Path], tuple[str, ...]]:
    """Write the sheets that people fill in, and the key that says where each text is from.

    Returns
    -------
    list of Path, tuple of str
        The files, and where there was too little to draw from.
    """
    import polars as pl

    from assets.answers import StoredAnswers
    from plumbline.text.annotation_sheets import annotation_sheets

    models = [m for m in dict.fromkeys(m for m, _ in places.audit.designs) if m not in places.audit.twins]
    cells = [StoredAnswers.find(places, model).cell() for model in models]
    if not cells or not cells[0].scorers:
        raise ConfigError(
            "there are no scored answers to annotate", expected="an audit file with `generate` and `scorers`"
        )
    drawn = annotation_sheets(
        pl.concat([cell.generations for cell in cells]),
        pl.concat([cell.scores for cell in cells]),
        pl.concat([places.lake.read_table("word_associations", partition=model) for model in models]),
        scorer=next(iter(cells[0].scorers)),
        seed=seed,
    )
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in {**drawn.sheets, "key": drawn.key}.items():
        path = folder / f"{name}.csv"
        path.write_bytes(csv_bytes(frame))
        written.append(path)
    return written, drawn.shortfalls
