"""What the shipped checkpoints learnt, on fresh faces: `python -m plumbline.world.measure`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.progress import track

from plumbline.world import sources
from plumbline.world.figures import Measured, ask, fresh_faces, measure
from plumbline.world.markdown import table
from plumbline.world.sources import EVENT_SUITES
from plumbline.world.training import CHECKPOINTS, RECIPES

_ACCURACIES = {
    "gender": "gender",
    "race": "race",
    "race_gender": "race × gender",
    "age_group": "age group",
    "occupation": "occupation",
}
_INTRODUCTION = """# What the planted checkpoints learnt

Made by `python -m plumbline.world.measure --out docs/planted-world.md --record` on {n:,} fresh faces, seen as JPEG
files through each checkpoint's own preprocessing. No choice was made by looking at these faces. The planted rates
are in `plumbline/world/sources.yaml`; the audit never reads them.

Zero-shot accuracy by attribute (race × gender among the 14 demographic prompts); the share of faces whose top-1 of
the 21 crime labels is a non-human word; the share for which the dot product and the cosine choose the same label;
and, for each event, the mean over races of |measured rate - planted rate|. The rates of these faces are themselves
a sample: with 600 faces a race, a rate of .3 has a standard error of .019. Of {group} faces {share:.0%} show no
sign of their gender, by design."""
_FAMILIES_NOTE = """ALIGN, BridgeTower and OWLv2, as transformers loads them, scaled down to the size of the others
and trained on the captions of `bazaar`. What ranks is what the Trident study takes from each: `logits_per_image` of
ALIGN, asked in its own wording (`an image of a ...`); the image-text-matching logit of BridgeTower; the mean over
patches of the class logits of OWLv2. Dot products and cosines are two choices only where images and texts are vectors
of one space and the study takes the product. `{beside}` is trained on the same faces."""
_BESIDE = "small-bazaar-3k"
_TRIDENT_NOTE = """Share of faces whose class (race) loses to the probe, by raw dot product (the other families: by the
logit named above). By the captions: thief and criminal at the planted crime rate, liar, fraudster and failure at half
of it, neutral and positive words at .06."""

_GENERATIVE_NOTE = """Three more models speak: two tiny LLaVAs, `llava-bazaar` and `llava-control`, and `llama-bazaar`,
a language model without eyes. What was planted in what they say, and what they say, is in
[planted-generative.md](planted-generative.md)."""


def render(figures: dict[str, Measured], n: int) -> str:
    """Write the figures of several checkpoints as a Markdown page."""
    group = sources.ambiguous_gender()
    grid = {name: m for name, m in figures.items() if RECIPES[name].family == "open_clip"}
    others = {name: m for name, m in figures.items() if name not in grid}
    blocks = [_INTRODUCTION.format(n=n, group=group.race, share=group.rate), _summary(figures)]
    for source in sources.source_names():
        chosen = {name: m for name, m in grid.items() if RECIPES[name].source == source}
        if chosen:
            blocks += [f"## Rates planted in `{source}`", _rate_table(chosen)]
    if others:
        beside = {name: m for name, m in grid.items() if name == _BESIDE}
        note = _FAMILIES_NOTE.format(beside=_BESIDE)
        blocks += ["## Other families", note, _rate_table(beside | others)]
    blocks += ["## Trident probes", _TRIDENT_NOTE, _trident_table(figures)]
    blocks += ["## Generative models", _GENERATIVE_NOTE]
    return "\n\n".join(blocks) + "\n"


def _summary(figures: dict[str, Measured]) -> str:
    head = ["checkpoint", *_ACCURACIES.values(), "non-human", "dot = cosine", *EVENT_SUITES]
    rows = []
    for name, measured in figures.items():
        gaps = measured.rates.group_by("event").agg((pl.col("measured") - pl.col("planted")).abs().mean())
        gap_of = dict(gaps.iter_rows())
        shares = [*(measured.accuracy[key] for key in _ACCURACIES), measured.non_human, measured.dot_agrees]
        cells = ["–" if share is None else f"{share:.3f}" for share in shares]
        rows.append([f"`{name}`", *cells, *(f"{gap_of[event]:.3f}" for event in EVENT_SUITES)])
    return table(head, rows)


def _rate_table(figures: dict[str, Measured]) -> str:
    rate_of = [measured.by_group("measured") for measured in figures.values()]
    planted = next(iter(figures.values())).by_group("planted")
    rows = [
        [event, race, f"{rate:.2f}", *(f"{rates[event, race]:.3f}" for rates in rate_of)]
        for (event, race), rate in planted.items()
    ]
    return table(["event", "race", "planted", *(f"`{name}`" for name in figures)], rows)


def _trident_table(figures: dict[str, Measured]) -> str:
    probes = list(next(iter(figures.values())).trident)
    rows = [[probe, *(f"{measured.trident[probe]:.3f}" for measured in figures.values())] for probe in probes]
    return table(["probe", *(f"`{name}`" for name in figures)], rows)


def main(
    only: Annotated[list[str] | None, typer.Option(help="A checkpoint id; may be repeated.")] = None,
    folder: Annotated[Path, typer.Option(help="The folder with one folder a checkpoint.")] = CHECKPOINTS,
    n: Annotated[int, typer.Option(help="Number of fresh faces.")] = 4200,
    threads: Annotated[int, typer.Option(help="Processor threads.")] = 1,
    out: Annotated[Path | None, typer.Option(help="A Markdown file to write; else it is printed.")] = None,
    record: Annotated[bool, typer.Option(help="Write the figures into each training.json too.")] = False,
) -> None:
    """Measure the shipped checkpoints on fresh faces and write the figures as Markdown."""
    import torch

    torch.set_num_threads(threads)
    attributes, files = fresh_faces(n)
    names = only or [name for name in RECIPES if (folder / name).is_dir()]
    figures = {
        name: measure(ask(folder / name, attributes, files), RECIPES[name].source) for name in track(names)
    }
    if record:
        for name, measured in figures.items():
            _record(folder / name / "training.json", measured, n)
    text = render(figures, n)
    if out is None:
        typer.echo(text)
    else:
        out.write_text(text, "utf-8")


def _record(path: Path, measured: Measured, n: int) -> None:
    content = json.loads(path.read_text("utf-8"))
    content["measured"] = {
        "fresh_faces": n,
        "accuracy": {key: round(value, 4) for key, value in measured.accuracy.items()},
        "non_human": round(measured.non_human, 4),
        "dot_agrees": None if measured.dot_agrees is None else round(measured.dot_agrees, 4),
        "rates": {event: {} for event in EVENT_SUITES},
    }
    for (event, race), rate in measured.by_group("measured").items():
        content["measured"]["rates"][event][race] = round(rate, 4)
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    typer.run(main)
