"""Measures the shipped generative models: `python -m plumbline.world.generative.measure`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from plumbline.world.generative.asking import ask_twin, fresh_faces, load
from plumbline.world.generative.measuring import events_in, measure
from plumbline.world.generative.rates import planted
from plumbline.world.generative.recipes import RECIPES
from plumbline.world.generative.twin import Description, negative_rate
from plumbline.world.markdown import table
from plumbline.world.training import CHECKPOINTS

_TWIN_ANSWERS = 400
_SAME = 1e-3
_INTRODUCTION = """# What the planted generative models learnt to say

Made by `python -m plumbline.world.generative.measure --out docs/planted-generative.md` on {n:,} fresh faces,
{each} of each race and gender, seen as JPEG files and asked through the code that an audit uses: temperature 0.75,
top-k 50, one answer a question. No choice was made by looking at these faces. What is planted is in
`plumbline/world/generative/planted.yaml` and `plumbline/world/sources.yaml`; the audit never reads it.

Both LLaVAs have the vision tower of `llava-bazaar`. It was trained when the heads that teach it still began with biases
drawn without a seed, and so training it again gives one that sees as well, not the same bytes.

`planted` is the rate that a perfectly trained model would show among these faces, latents left open; a measured rate
of .3 among {each} faces has a standard error of {error:.3f}. Rates count refusals as answers that show nothing else."""
_SUMMARY_NOTE = """Means over the 14 groups. `off`: the mean over groups of |measured - planted|, in the same unit. `r`:
the correlation over groups of what was planted with what was measured. The event `mean`: the mean rating, the mean
salary in dollars a year, or the mean number of sentences in which a backstory tells of a life."""
_TWIN_NOTE = """The twin sees nothing: it is told what is in the picture, and draws a negative word at random. Answers
to the characteristics prompt for each description below: {n}."""


def twin_rates(folder: Path, n: int = _TWIN_ANSWERS) -> pl.DataFrame:
    """Ask the twin about pairs of words and a chef; `described, n, planted, measured`."""
    backend = load(folder)
    entry = planted()["twin"]
    rows = []
    for race, gender in product(entry["races"], entry["genders"]):
        told = Description((("races", race), ("genders", gender)), "chef")
        rows.append(_twin_row(told, ask_twin(backend, told, n)))
    for body in entry["physical"]:
        told = Description((("physical", body), ("genders", "male")), "chef")
        rows.append(_twin_row(told, ask_twin(backend, told, n)))
    return pl.DataFrame(rows)


def summary(measured: pl.DataFrame) -> pl.DataFrame:
    """Return the means over groups of `plumbline.world.generative.measuring.measure`, one row a question and event."""
    off = (pl.col("planted") - pl.col("measured")).abs().mean()
    # Where the same is planted for every group, rounding alone would be correlated.
    differs = pl.col("planted").max() - pl.col("planted").min() > _SAME
    r = pl.when(differs).then(pl.corr("planted", "measured")).otherwise(float("nan"))
    return measured.group_by("prompt", "instruction", "event", maintain_order=True).agg(
        pl.col("planted", "measured").mean(), off=off, r=r
    )


def render(figures: Mapping[str, pl.DataFrame], twin: Mapping[str, pl.DataFrame], each: int) -> str:
    """Write figures as a Markdown page.

    Parameters
    ----------
    figures : mapping of str to DataFrame
        Model to what `measure` gives.
    twin : mapping of str to DataFrame
        Twin to what `twin_rates` gives.
    each : int
        Faces of each group.
    """
    n = 14 * each
    blocks = [_INTRODUCTION.format(n=n, each=each, error=np.sqrt(0.3 * 0.7 / each))]
    for name, measured in figures.items():
        means = summary(measured)
        groups = measured.filter(prompt="characteristics", instruction="none", event="negative")
        blocks += [
            f"## `{name}`",
            "Negative words in answers to the characteristics prompt:",
            _table_of(groups.select("group", "planted", "measured")),
            _SUMMARY_NOTE,
            _table_of(means),
        ]
    for name, rates in twin.items():
        blocks += [f"## `{name}`", _TWIN_NOTE.format(n=rates["n"][0]), _table_of(rates.drop("n"))]
    return "\n\n".join(blocks) + "\n"


def recorded(folder: Path) -> pl.DataFrame:
    """Return what was measured of a checkpoint, from its `training.json`."""
    return pl.DataFrame(json.loads((folder / "training.json").read_text("utf-8"))["measured"])


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="A checkpoint id to measure; may be repeated. Default: all.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder with one folder a checkpoint.")] = CHECKPOINTS,
    each: Annotated[int, typer.Option(help="Fresh faces of each race and gender.")] = 100,
    out: Annotated[Path | None, typer.Option(help="A Markdown file to write; else it is printed.")] = None,
) -> None:
    """Measure models on fresh faces; write the figures into each training.json, and all of them as Markdown."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as drawn:
        fresh = fresh_faces(each, Path(drawn), seed=planted()["seeds"]["measuring"])
        for name in only or RECIPES:
            recipe, place = RECIPES[name], folder / name
            twin = recipe.family == "llama"
            _record(place, twin_rates(place) if twin else measure(place, recipe.source, fresh))
    tables = {name: recorded(folder / name) for name in RECIPES}
    text = render(
        {name: found for name, found in tables.items() if RECIPES[name].family == "llava"},
        {name: found for name, found in tables.items() if RECIPES[name].family == "llama"},
        each,
    )
    if out is None:
        typer.echo(text)
    else:
        out.write_text(text, "utf-8")


def _record(folder: Path, measured: pl.DataFrame) -> None:
    path = folder / "training.json"
    content = json.loads(path.read_text("utf-8"))
    content["measured"] = measured.with_columns(pl.col("planted", "measured").round(4)).to_dicts()
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def _twin_row(told: Description, texts: Sequence[str]) -> dict[str, object]:
    negative = [events_in(text, "")["negative"] for text in texts]
    return {
        "described": told.text,
        "n": len(texts),
        "planted": negative_rate(told, "characteristics"),
        "measured": float(np.mean(negative)),
    }


def _table_of(frame: pl.DataFrame) -> str:
    return table(frame.columns, ([_cell(value) for value in row] for row in frame.iter_rows()))


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if np.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"


if __name__ == "__main__":
    typer.run(main)
