"""A small corpus of generations with known word rates, in counterfactual sets."""

import numpy as np
import polars as pl
from cells_of_frames import cell_of_frames

from plumbline.catalog.schema import SCORE_SCHEMA
from plumbline.language.cell import DESCRIBED_SCHEMA

GROUPS = ("Asian_man", "Asian_woman", "Black_man", "Black_woman")
FILLERS = tuple(f"filler{a}{b}" for a in "abcdefghij" for b in "klmno")


def answers(
    text_of,
    *,
    sets=60,
    groups=GROUPS,
    prompts=("describe",),
    instructions=("none",),
    seeds=(0, 1),
    occupations=("barber", "pilot"),
    dataset="faces",
    attribute="race_gender",
    finish=lambda group: "stop",
):
    """Return `DESCRIBED_SCHEMA` rows; `text_of(group, set, prompt, rng)` writes each, image by image."""
    rng = np.random.default_rng(11)
    rows = [
        {
            "row_key": f"{dataset}-{attribute}-{s}-{g}-{prompt}-{instruction}-{seed}",
            "model": "model",
            "dataset": dataset,
            "subset": attribute,
            "image_id": f"{attribute}-{s}-{g}",
            "set_id": None if sets is None else f"set-{s}",
            "prompt": prompt,
            "instruction": instruction,
            "seed": seed,
            "text": text_of(group, s, prompt, rng),
            "finish_reason": finish(group),
            "attribute": attribute,
            "group": group,
            "occupation": occupations[s % len(occupations)],
        }
        for s in range(sets)
        for g, group in enumerate(groups)
        for prompt in prompts
        for instruction in instructions
        for seed in seeds
    ]
    return pl.DataFrame(rows, schema=DESCRIBED_SCHEMA)


def cell_of(*frames, **more):
    generations = pl.concat(frames)
    expected = (
        generations.select("dataset", "subset", "set_id", "image_id", "attribute", "group", "occupation")
        .unique(maintain_order=True)
        .with_columns(set_groups=pl.lit(len(GROUPS)))
    )
    scores = pl.DataFrame(schema=SCORE_SCHEMA)
    return cell_of_frames("model", generations, scores, expected, **more)


def fillers(rng, number):
    return " ".join(rng.choice(FILLERS, number))
