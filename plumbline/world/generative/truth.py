"""What an audit of the planted generative models should find: rates by group, and scores of counterfactual sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import polars as pl

from plumbline.tables.generation_prompts import instruction_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.world import faces
from plumbline.world.generative.answers import KEYWORD_PROMPTS, SENTENCE_PROMPTS, answers
from plumbline.world.generative.rates import planted, rates

EVENTS = {
    **dict.fromkeys(
        KEYWORD_PROMPTS, ("refusal", "negative", "severe", "competence", "flirtation", "stereotype")
    ),
    **dict.fromkeys(SENTENCE_PROMPTS, ("refusal", "negative", "severe", "stereotype")),
}
"""Which events an answer to a prompt can show."""

_LAST_KEYWORD = {"flirtation": 4}


def said_rates(
    attributes: pl.DataFrame, source: str, event: str, prompt: str, instruction: str = NO_INSTRUCTION
) -> np.ndarray:
    """Return how often each face's answers show an event, its latents being drawn anew: refusals show no other.

    Parameters
    ----------
    attributes : polars.DataFrame
        n faces with race, gender, age group and occupation.
    source, event, prompt, instruction : str
        As in `plumbline.world.generative.rates.rates`.

    Returns
    -------
    numpy.ndarray
        float64, shape (n,).
    """
    refusal = rates(attributes, source, "refusal", prompt, instruction)
    if event == "refusal":
        return refusal
    if _LAST_KEYWORD.get(event, 0) > planted()["keywords_left"][instruction]:
        return np.zeros(len(attributes))
    said = rates(attributes, source, event, prompt, instruction)
    if event == "stereotype":
        # Refusals take the other end of the same latent.
        known = attributes["race"].is_in(list(planted()["words"]["stereotype"])).to_numpy()
        return np.asarray(np.minimum(said, 1 - refusal) * known)
    return np.asarray(said * (1 - refusal))


def planted_language_rates(
    source: str, *, age_groups: Sequence[str] = faces.AGE_GROUPS, prompts: Sequence[str] = tuple(EVENTS)
) -> pl.DataFrame:
    """Return the true rate of every event that an answer can show, by group, prompt and instruction.

    Parameters
    ----------
    source : str
        `bazaar` or `control`.
    age_groups : sequence of str
        Who is in the images: all of them equally often in folders of single faces, `middle_aged` alone in the
        subset race_gender of the planted SocialCounterfactuals.
    prompts : sequence of str
        Ids, of those that ask for words.

    Returns
    -------
    DataFrame
        `attribute, group, prompt, instruction, event, rate`: attributes race, gender, age_group and race_gender
        (`Black_man`), races in FairFace's words.
    """
    cells = pl.DataFrame(
        list(product(faces.RACES, faces.GENDERS, age_groups, faces.OCCUPATIONS)),
        schema=["race", "gender", "age_group", "occupation"],
        orient="row",
    )
    groups = cells.with_columns(race_gender=pl.concat_str("race", "gender", separator="_")).select(
        "race", "gender", "age_group", "race_gender"
    )
    parts = []
    for prompt, instruction in product(prompts, instruction_ids()):
        for event in EVENTS[prompt]:
            rate = pl.Series("rate", said_rates(cells, source, event, prompt, instruction))
            parts += [
                groups.select(group=attribute)
                .with_columns(rate)
                .group_by("group")
                .agg(pl.col("rate").mean())
                .sort("group")
                .select(
                    pl.lit(attribute).alias("attribute"),
                    "group",
                    pl.lit(prompt).alias("prompt"),
                    pl.lit(instruction).alias("instruction"),
                    pl.lit(event).alias("event"),
                    "rate",
                )
                for attribute in groups.columns
            ]
    return pl.concat(parts)


def planted_max_scores(
    attributes: pl.DataFrame,
    sets: Sequence[str],
    source: str,
    prompt: str,
    score: Callable[[list[str]], np.ndarray],
    *,
    instruction: str = NO_INSTRUCTION,
    seed: int = 0,
) -> pl.DataFrame:
    """Return the MaxToxicity, or the like, that a perfectly trained model's answers give each counterfactual set.

    Words of one class have one severity in the offline scorer, so that the words drawn make no difference to it.

    Parameters
    ----------
    attributes : polars.DataFrame
        n images as drawn: the truth beside a planted folder, latents included.
    sets : sequence of str
        The set of each image.
    source, prompt, instruction : str
        As in `plumbline.world.generative.answers.answers`.
    score : callable
        Texts to scores, shape (n,).
    seed : int
        Of the words drawn.

    Returns
    -------
    DataFrame
        `set, value`: largest minus smallest score (Howard et al., equation 1), sorted by set.
    """
    texts = answers(attributes, source, prompt, np.random.default_rng(seed), instruction=instruction)
    scores = pl.DataFrame({"set": list(sets), "score": score(texts)})
    return scores.group_by("set").agg(value=pl.col("score").max() - pl.col("score").min()).sort("set")
