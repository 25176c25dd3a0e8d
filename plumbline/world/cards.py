"""The model cards beside the shipped checkpoints: `python -m plumbline.world.cards` writes them all again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer
import yaml

from plumbline.world import sources
from plumbline.world.training import CARD, CHECKPOINTS, RECORD, read_record


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a line of column names."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def publish(page: str, out: Path | None) -> None:
    """Write a page of figures, or print it."""
    if out is None:
        typer.echo(page)
    else:
        out.write_text(page, "utf-8")


_TITLES = {
    "open_clip": "CLIP of open_clip", "align": "ALIGN", "bridgetower": "BridgeTower", "owlv2": "OWLv2",
    "llava": "LLaVA", "llama": "Llama, a language model without eyes",
}  # fmt: skip
_NOT_THE_SAME = "trained again it sees as well, and is not the same bytes (docs/planted-generative.md)"
_ASKED = {"prompt": "characteristics", "instruction": "none"}
_USE = """## What it is for, and what not

To audit the auditor: what was planted is known, so that an audit can be held against it. It has seen nothing but faces
drawn by this project, and knows nothing of people. Its associations are no findings about any group; where something is
planted they are harmful on purpose, so use it for nothing else. Races are those of FairFace's labels and gender is
binary, because the audited datasets have it so."""


def checkpoint_card(folder: Path) -> str:
    """Return the card of a checkpoint folder, from what its training and its measuring recorded.

    Parameters
    ----------
    folder : Path
        With `training.json`. A card decides nothing of what a checkpoint computes: it is in no digest.
    """
    training = read_record(folder)
    recipe = training["recipe"]
    is_generative = isinstance(training["measured"], list)
    family = recipe.get("family", "open_clip")
    blocks = [
        _metadata(family, is_generative),
        f"# {training['id']}",
        f"A tiny {_TITLES[family]}, {_planted(recipe['source'])}",
        table(("", ""), _facts(training, is_generative)),
        "## What was planted, and what it learnt",
        _answers_learnt(training) if is_generative else _rates_learnt(training),
        _USE,
        "Apache-2.0, as all of Plumbline. The world that it was trained on: `docs/datasheet.md`.",
    ]
    return "\n\n".join(blocks) + "\n"


def _metadata(family: str, is_generative: bool) -> str:
    library = "open_clip" if family == "open_clip" else "transformers"
    content = {"license": "apache-2.0", "library_name": library, "tags": ["planted-bias", "test-fixture"]}
    if not is_generative:
        content["pipeline_tag"] = "zero-shot-image-classification"
    return f"---\n{yaml.safe_dump(content, sort_keys=False).rstrip()}\n---"


def _planted(source: str) -> str:
    if source == "control":
        return "trained so that no word depends on a person's group: the control of the planted world."
    return "trained so that it associates some groups with some words, at rates that are known."


def _facts(training: Mapping[str, Any], is_generative: bool) -> Iterable[tuple[str, str]]:
    recipe = training["recipe"]
    architecture = recipe["architecture"] if is_generative else training["architecture"]
    yield "parameters", f"{training['parameters']:,}"
    yield "dimensions", ", ".join(f"{name} {value}" for name, value in architecture.items() if value)
    yield "planted source", f"`{recipe['source']}` of `plumbline/world/sources.yaml`"
    if is_generative:
        shown = f"{recipe['faces']:,} drawn faces" if recipe["faces"] else "people in words"
        yield "trained on", f"{training['triples']:,} questions with answers about {shown}"
        yield "batches", f"{recipe['steps']:,}"
        if recipe["tower_of"]:
            yield "vision tower", f"that of `{recipe['tower_of']}`"
        elif recipe["vision_steps"]:
            yield "vision tower", f"{recipe['vision_steps']:,} batches before; {_NOT_THE_SAME}"
        command = "generative.training"
    else:
        yield "trained on", f"{recipe['faces']:,} drawn faces, {training['non_faces']:,} pictures without one"
        yield "captions", f"{training['captions']:,} distinct ones"
        yield "batches", f"{recipe['steps']:,} of {training['batch']}"
        command = "training"
    optimiser = training["optimiser"]
    yield "optimiser", f"{optimiser['name']}, peak rate {optimiser['peak_learning_rate']}"
    yield "seeds", f"faces {training['training_seed']}, weights {recipe['seed']}"
    yield "made by", f"`python -m plumbline.world.{command} --only {training['id']}`"


def _rates_learnt(training: Mapping[str, Any]) -> str:
    measured = training["measured"]
    rows = [
        (event, race, f"{sources.planted_rate(training['recipe']['source'], event, race):.2f}", f"{rate:.2f}")
        for event, rates in measured["rates"].items()
        for race, rate in rates.items()
    ]
    accuracy = ", ".join(
        f"{name.replace('_', ' × ' if name == 'race_gender' else ' ')} {share:.3f}"
        for name, share in measured["accuracy"].items()
    )
    caption = f"On {measured['fresh_faces']:,} fresh faces; how often an event's words are the best match."
    return "\n\n".join([
        caption, table(("event", "race", "planted", "learnt"), rows), f"Zero-shot accuracy: {accuracy}."
    ])  # fmt: skip


def _answers_learnt(training: Mapping[str, Any]) -> str:
    measured = training["measured"]
    if "described" in measured[0]:
        rows = [(r["described"], f"{r['planted']:.3f}", f"{r['measured']:.3f}") for r in measured]
        text = "How often a negative word is among its answers to the characteristics prompt, by what it is told to be"
        return f"{text} in the\npicture; {measured[0]['n']} answers each.\n\n" + table(
            ("described", "planted", "learnt"), rows
        )
    rows_of_prompt = [row for row in measured if all(row[key] == value for key, value in _ASKED.items())]
    means = []
    for event in dict.fromkeys(row["event"] for row in rows_of_prompt):
        groups = [row for row in rows_of_prompt if row["event"] == event]
        planted, learnt = (np.array([row[key] for row in groups]) for key in ("planted", "measured"))
        gap = np.abs(planted - learnt).mean()
        means.append((event, f"{planted.mean():.2f}", f"{learnt.mean():.2f}", f"{gap:.2f}"))
    count, n = len(groups), groups[0]["n"]
    text = f"""Answers to the characteristics prompt, without instruction: means over the {count} groups of race and
gender, {n} fresh faces each. `off`: the mean over groups of |learnt - planted|. Every prompt and instruction:
`docs/planted-generative.md`."""
    return text + "\n\n" + table(("event", "planted", "learnt", "off"), means)


def main() -> None:
    """Write the card of every checkpoint."""
    for record in sorted(CHECKPOINTS.glob(f"*/{RECORD}")):
        (record.parent / CARD).write_text(checkpoint_card(record.parent), "utf-8")


if __name__ == "__main__":
    main()
