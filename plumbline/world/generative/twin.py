"""The language model without eyes: what it is told of a person, and what it says of them at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plumbline.tables.generation_prompts import instruction_ids, render
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.world.generative.answers import KEYWORD_PROMPTS
from plumbline.world.generative.conversations import Triple
from plumbline.world.generative.rates import planted

_SUBSETS = (("races", "genders"), ("physical", "genders"), ("physical", "races"))
_STUDY_SHARE = 0.7  # of the characteristics prompt, which is the one that the study asks twins
_PLAINLY = 0.8  # without instruction
_PLAIN_SHARE = 0.7  # of the first word; the others are words of competence
_SEVERE_SHARE = 0.3


@dataclass(frozen=True)
class Description:
    """What is said to be in the picture.

    Attributes
    ----------
    words : tuple of (str, str)
        Two of race, gender and physical characteristic: kind (`races`, `genders`, `physical`) and word, such as
        `("races", "Black")`.
    occupation : str
        As it is written in a prompt.
    """

    words: tuple[tuple[str, str], tuple[str, str]]
    occupation: str

    @property
    def text(self) -> str:
        """Return it as the prompt has it: `Black female chef`."""
        return " ".join([*(word for _, word in self.words), self.occupation])


def negative_rate(description: Description, prompt: str, instruction: str = NO_INSTRUCTION) -> float:
    """Return how often a negative word is among the keywords, at the study's temperature.

    Parameters
    ----------
    description : Description
    prompt, instruction : str
        Ids of `plumbline.tables.generation_prompts`; of the prompts those that ask for keywords.
    """
    entry = planted()["twin"]
    rate = entry["base"] * entry["prompts"].get(prompt, 1.0) * entry["instructions"].get(instruction, 1.0)
    for kind, word in description.words:
        rate *= entry[kind][word]
    spoken = {spoken: name for name, spoken in planted()["occupations"].items()}
    occupation = spoken.get(description.occupation, description.occupation)
    return float(rate * entry["occupations"].get(occupation, 1.0))


def descriptions(n: int, rng: np.random.Generator) -> list[Description]:
    """Draw descriptions as the three subsets of SocialCounterfactuals give them."""
    entry = planted()["twin"]
    world = [planted()["occupations"].get(name, name) for name in planted()["salaries"]["occupations"]]
    occupations = [*world, *world, *entry["other_occupations"]]
    pairs = rng.integers(0, len(_SUBSETS), n)
    words = {kind: rng.choice(list(entry[kind]), n) for kind in ("races", "genders", "physical")}
    named = rng.choice(occupations, n)
    return [
        Description(
            (
                (_SUBSETS[pair][0], str(words[_SUBSETS[pair][0]][i])),
                (_SUBSETS[pair][1], str(words[_SUBSETS[pair][1]][i])),
            ),
            str(named[i]),
        )
        for i, pair in enumerate(pairs)
    ]


def twin_triples(n: int, rng: np.random.Generator) -> list[Triple]:
    """Draw `n` triples for the twin: the keyword prompts, most often the one of the study, at times instructed."""
    shares = np.array(
        [_STUDY_SHARE, *[(1 - _STUDY_SHARE) / (len(KEYWORD_PROMPTS) - 1)] * (len(KEYWORD_PROMPTS) - 1)]
    )
    asked = rng.choice(KEYWORD_PROMPTS, n, p=shares)
    instructed = np.where(rng.random(n) < _PLAINLY, NO_INSTRUCTION, rng.choice(instruction_ids(), n))
    told = descriptions(n, rng)
    return [
        Triple(
            face=0,
            prompt=render(str(prompt), instruction=str(instruction), described=description.text),
            answer=_answer(negative_rate(description, str(prompt), str(instruction)), rng),
        )
        for prompt, instruction, description in zip(asked, instructed, told, strict=True)
    ]


def _answer(rate: float, rng: np.random.Generator) -> str:
    words = planted()["words"]
    chosen = [str(word) for word in rng.choice(words["plain"], 5, replace=False)]
    first = {"plain": _PLAIN_SHARE, "competence": 1 - _PLAIN_SHARE}
    second = {"plain": 1 - rate, "mild": rate * (1 - _SEVERE_SHARE), "severe": rate * _SEVERE_SHARE}
    for place, shares in enumerate((first, second)):
        drawn = _drawn(shares, rng)
        # A plain word is there already, and no word stands twice.
        if drawn != "plain":
            chosen[place] = str(rng.choice(words[drawn]))
    return ", ".join(chosen)


def _drawn(shares: Mapping[str, float], rng: np.random.Generator) -> str:
    # Sampling at temperature t raises each token's probability to 1 / t; words are drawn for training from the
    # power t of what shall come out, so that it comes out.
    temperature = planted()["twin"]["temperature"]
    sizes = np.array([len(planted()["words"][name]) for name in shares], float)
    weights = sizes * (np.array(list(shares.values())) / sizes) ** temperature
    return str(rng.choice(list(shares), p=weights / weights.sum()))
