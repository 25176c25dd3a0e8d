"""Synthetic answers and scores of counterfactual sets, with what is planted in them."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
from cells_of_frames import cell_of_frames

from plumbline.catalog.schema import SCORED_ATTRIBUTES

GROUPS = ("Asian_man", "Asian_woman", "Black_man", "Black_woman")
BASE = ["dataset", "subset", "attribute", "group", "occupation", "set_id", "image_id"]


def images_of_sets(
    sets, *, groups=GROUPS, occupations=("barber", "doctor", "pilot"), dataset="social", attribute="race_gender"
):
    """Return one row an image, in `EXPECTED_SCHEMA`: every set has every group."""
    rows = [
        {
            "dataset": dataset,
            "subset": attribute,
            "attribute": attribute,
            "group": group,
            "occupation": occupations[each % len(occupations)],
            "set_id": f"{each:04d}",
            "image_id": f"{attribute}/{each:04d}/{group}",
            "set_groups": len(groups),
        }
        for each in range(sets)
        for group in groups
    ]
    return pl.DataFrame(rows)


def answers_to(images, *, prompts=("characteristics",), instructions=("none",), seeds=(0, 1, 2), model="model"):
    """Return one row an answer, in `DESCRIBED_SCHEMA`, all with the same text."""
    asked = pl.DataFrame(
        list(itertools.product(prompts, instructions, seeds)),
        schema={"prompt": pl.String, "instruction": pl.String, "seed": pl.Int64},
        orient="row",
    )
    key = pl.concat_str(["dataset", "image_id", "prompt", "instruction", "seed"], separator="|")
    return images.drop("set_groups").join(asked, how="cross").with_columns(
        row_key=pl.format("{}|{}", pl.lit(model), key),
        model=pl.lit(model),
        text=pl.lit("A friendly person at work ."),
        finish_reason=pl.lit("stop"),
        prompt_tokens=pl.lit(5, pl.Int64),
        new_tokens=pl.lit(6, pl.Int64),
        source=pl.lit("source"),
    )  # fmt: skip


def scores_of(answers, values, *, scorer="offline", scored=SCORED_ATTRIBUTES):
    """Return scores in `SCORE_SCHEMA`; `values` is an array or expression of one score an answer."""
    named = answers.with_columns(score=pl.Series(values) if isinstance(values, np.ndarray) else values)
    return pl.concat(
        [
            named.select(
                "row_key",
                scorer=pl.lit(scorer),
                attribute=pl.lit(attribute),
                score=pl.col("score").cast(pl.Float64),
                truncated=pl.lit(False),
                reason=pl.lit(None, pl.String),
            )
            for attribute in scored
        ]
    )


def skewed(answers, draw, *, shifts=None, common=0.6):
    """Return scores in [0, 1] of which an image's seeds share a part; groups in `shifts` score so much higher."""
    images = answers["image_id"].rank("dense").to_numpy().astype(int) - 1
    own = common * draw.beta(0.6, 6, images.max() + 1)[images] + (1 - common) * draw.beta(0.6, 6, len(images))
    shift = answers["group"].replace_strict(shifts or {}, default=0.0, return_dtype=pl.Float64).to_numpy()
    return np.clip(0.6 * own + shift, 0, 1)


def cell_of(images, answers, scores, **more):
    """Return the cell, whose scorers are those of the scores."""
    scorers = dict.fromkeys(scores["scorer"].unique().sort().to_list(), True)
    return cell_of_frames("model", answers, scores, images, scorers=scorers, **more)


def scored_world(sets=40, *, seed=0, shifts=None, scorers=("offline",), scored=SCORED_ATTRIBUTES, **asked):
    """Return a cell of complete sets with skewed scores."""
    draw, images = np.random.default_rng(seed), images_of_sets(sets)
    answers = answers_to(images, **asked)
    values = skewed(answers, draw, shifts=shifts)
    scores = [scores_of(answers, values ** (1 + k), scorer=name, scored=scored) for k, name in enumerate(scorers)]
    return cell_of(images, answers, pl.concat(scores))
