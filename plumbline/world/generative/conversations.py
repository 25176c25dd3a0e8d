"""What the planted generative models learn from: triples of face, prompt and answer, as tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from plumbline.catalog.prompts import instruction_ids, render
from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.world.generative.answers import KEYWORD_PROMPTS, answers, planted

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Triple:
    """One face, what is asked of it and what is answered.

    Attributes
    ----------
    face : int
        Row of the faces.
    prompt : str
        The rendered prompt, without chat template.
    answer : str
    """

    face: int
    prompt: str
    answer: str


def kinds() -> dict[str, dict[str, Any]]:
    """Return what a model with eyes is asked, by the form of the answer.

    Each kind has `prompts` and `instructions`, ids with how often they are asked, and the number of `batches` of it
    that are drawn at a time.
    """
    content: dict[str, dict[str, Any]] = planted()["kinds"]
    return content


def chat(prompt: str, *, sees: bool) -> str:
    """Return what a model reads before it answers, as its chat template renders it: that of LLaVA-1.5 and Vicuna."""
    return f"USER: {IMAGE + chr(10) if sees else ''}{prompt} ASSISTANT:"


IMAGE = "<image>"

BATCH = 16
"""Rows of a batch. Few, so that they can be alike in length; a step of training takes several batches."""

_OTHER_OCCUPATION = 0.15


def triples(
    attributes: pl.DataFrame, source: str, kind: Mapping[str, Any], n: int, rng: np.random.Generator
) -> list[Triple]:
    """Draw `n` triples about given faces, in no order that means anything.

    Parameters
    ----------
    attributes : polars.DataFrame
        The faces; each may be asked several times or never.
    source : str
        `bazaar` or `control`.
    kind : mapping
        One of `kinds`.
    n : int
        Number of triples.
    rng : numpy.random.Generator
        Source of every draw.
    """
    prompts = rng.choice(list(kind["prompts"]), n, p=_shares(kind["prompts"]))
    instructions = rng.choice(list(kind["instructions"]), n, p=_shares(kind["instructions"]))
    drawn: list[Triple] = []
    for prompt, instruction in product(kind["prompts"], kind["instructions"]):
        count = int(((prompts == prompt) & (instructions == instruction)).sum())
        rows = rng.integers(0, len(attributes), count)
        shown = attributes[rows]
        named = _named_occupations(shown["occupation"], rng)
        texts_answered = answers(shown, source, prompt, rng, instruction=instruction, occupations=named)
        texts = [render(prompt, instruction=instruction, occupation=_said(name)) for name in named]
        drawn += [
            Triple(int(face), text, answer) for face, text, answer in zip(rows, texts, texts_answered, strict=True)
        ]
    return [drawn[i] for i in rng.permutation(n)]


class Batch(NamedTuple):
    """Triples as tokens.

    Attributes
    ----------
    faces : numpy.ndarray
        int64, shape (b,): row of the faces.
    ids : (b, t) tensor
        int64; padding follows the answer.
    answered : (b, t) tensor
        bool: which tokens belong to the answer, its end among them.
    """

    faces: np.ndarray
    ids: torch.Tensor
    answered: torch.Tensor


class Tokenised:
    """Turns triples into tokens: chat template and prompt, then the answer and its end.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerFast
    image_tokens : int
        How many tokens stand for an image; 0 for a model without eyes.
    """

    def __init__(self, tokenizer: Any, *, image_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._image_id = tokenizer.convert_tokens_to_ids(IMAGE)
        self._image_tokens = image_tokens
        self._prompts: dict[str, list[int]] = {}

    def prompt(self, text: str) -> list[int]:
        """Return the tokens of a prompt in its chat template, the image's in their full number."""
        if text not in self._prompts:
            ids = self._tokenizer(chat(text, sees=self._image_tokens > 0))["input_ids"]
            self._prompts[text] = [i for i in ids for _ in range(self._image_tokens if i == self._image_id else 1)]
        return self._prompts[text]

    def batches(self, drawn: Sequence[Triple]) -> Iterator[Batch]:
        """Yield whole batches of triples that are alike in length, the shortest first."""
        import torch

        answers = [f" {triple.answer}" for triple in drawn]
        spoken = self._tokenizer(answers, add_special_tokens=False)["input_ids"]
        end, pad = self._tokenizer.eos_token_id, self._tokenizer.pad_token_id
        rows = [
            (triple.face, self.prompt(triple.prompt), [*spoken_answers, end])
            for triple, spoken_answers in zip(drawn, spoken, strict=True)
        ]
        rows.sort(key=lambda row: len(row[1]) + len(row[2]))
        for start in range(0, len(rows) - BATCH + 1, BATCH):
            faces, prompts, spoken_answers = zip(*rows[start : start + BATCH], strict=True)
            longest = max(len(a) + len(s) for a, s in zip(prompts, spoken_answers, strict=True))
            ids = np.full((BATCH, longest), pad)
            answered = np.zeros((BATCH, longest), bool)
            for row, (a, s) in enumerate(zip(prompts, spoken_answers, strict=True)):
                ids[row, : len(a) + len(s)] = [*a, *s]
                answered[row, len(a) : len(a) + len(s)] = True
            yield Batch(np.array(faces), torch.from_numpy(ids), torch.from_numpy(answered))


def _shares(weights: dict[str, float]) -> np.ndarray:
    values = np.array(list(weights.values()))
    return values / values.sum()


def _said(occupation: str) -> str:
    return str(planted()["occupations"].get(occupation, occupation))


def _named_occupations(visible: pl.Series, rng: np.random.Generator) -> list[str]:
    # A prompt may name an occupation that cannot be seen: what it names decides.
    others = [*planted()["salaries"]["occupations"], *planted()["base_llm"]["other_occupations"]]
    other = rng.random(len(visible)) < _OTHER_OCCUPATION
    drawn = rng.choice(others, len(visible))
    return [str(new) if changed else old for old, new, changed in zip(visible, drawn, other, strict=True)]


# --- The language model without eyes: what it is told of a person, and what it says of them at random

_SUBSETS = (("races", "genders"), ("physical", "genders"), ("physical", "races"))
_STUDY_SHARE = 0.7  # of the characteristics prompt, the only one that the study asks base language models
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
        Ids of `plumbline.catalog.prompts`; of the prompts those that ask for keywords.
    """
    entry = planted()["base_llm"]
    rate = entry["base"] * entry["prompts"].get(prompt, 1.0) * entry["instructions"].get(instruction, 1.0)
    for kind, word in description.words:
        rate *= entry[kind][word]
    spoken = {spoken: name for name, spoken in planted()["occupations"].items()}
    occupation = spoken.get(description.occupation, description.occupation)
    return float(rate * entry["occupations"].get(occupation, 1.0))


def descriptions(n: int, rng: np.random.Generator) -> list[Description]:
    """Draw descriptions as the three subsets of SocialCounterfactuals give them."""
    entry = planted()["base_llm"]
    world = [planted()["occupations"].get(name, name) for name in planted()["salaries"]["occupations"]]
    occupations = [*world, *world, *entry["other_occupations"]]
    pairs = rng.integers(0, len(_SUBSETS), n)
    words = {kind: rng.choice(list(entry[kind]), n) for kind in ("races", "genders", "physical")}
    named = rng.choice(occupations, n)
    return [
        Description(((first, str(words[first][i])), (second, str(words[second][i]))), str(named[i]))
        for i, (first, second) in enumerate(_SUBSETS[pair] for pair in pairs)
    ]


def base_llm_triples(n: int, rng: np.random.Generator) -> list[Triple]:
    """Draw `n` triples for the base_llm: the keyword prompts, most often the one of the study, at times instructed."""
    others = len(KEYWORD_PROMPTS) - 1
    shares = np.array([_STUDY_SHARE, *[(1 - _STUDY_SHARE) / others] * others])
    prompts = rng.choice(KEYWORD_PROMPTS, n, p=shares)
    instructed = np.where(rng.random(n) < _PLAINLY, NO_INSTRUCTION, rng.choice(instruction_ids(), n))
    described = descriptions(n, rng)
    return [
        Triple(
            face=0,
            prompt=render(str(prompt), instruction=str(instruction), described=description.text),
            answer=_answer(negative_rate(description, str(prompt), str(instruction)), rng),
        )
        for prompt, instruction, description in zip(prompts, instructed, described, strict=True)
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
    temperature = planted()["base_llm"]["temperature"]
    sizes = np.array([len(planted()["words"][name]) for name in shares], float)
    weights = sizes * (np.array(list(shares.values())) / sizes) ** temperature
    return str(rng.choice(list(shares), p=weights / weights.sum()))
