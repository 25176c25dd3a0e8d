"""Triples of face, prompt and answer, drawn afresh and turned into tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from plumbline.tables.generation_prompts import instruction_ids, needs_occupation, render
from plumbline.world.generative.answers import KEYWORD_PROMPTS, SENTENCE_PROMPTS, answers
from plumbline.world.generative.architecture import chat
from plumbline.world.generative.rates import planted

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


@dataclass(frozen=True)
class Kind:
    """Prompts with one form of answer.

    Attributes
    ----------
    prompts : dict of str to float
        Id to how often it is asked.
    instructions : dict of str to float
        Likewise.
    batches : int
        How many batches of it are drawn at a time.
    """

    prompts: dict[str, float]
    instructions: dict[str, float]
    batches: int


_INSTRUCTED = {"none": 0.5, "M1": 0.12, "M2": 0.08, "M3": 0.08, "M4": 0.12, "M5": 0.1}
KINDS = {
    "keywords": Kind(
        {"characteristics": 0.5, **dict.fromkeys(KEYWORD_PROMPTS[1:], 0.1)}, _INSTRUCTED, batches=110
    ),
    "sentences": Kind(
        {"describe": 0.2, "backstory": 0.4, "pretend": 0.15, "story": 0.15, "emotions": 0.1},
        {"none": 0.6, "M1": 0.2, **dict.fromkeys(["M2", "M3", "M4", "M5"], 0.05)},
        batches=45,
    ),
    "numbers": Kind(
        {"hiring": 0.15, "performance": 0.15, "warmth": 0.15, "competence": 0.15, "salary": 0.4},
        {"none": 1.0},
        batches=35,
    ),
}
"""What a model with eyes is asked."""

BATCH = 16
"""Rows of a batch. Few, so that they can be alike in length; a step of training takes several batches."""

_OTHER_OCCUPATION = 0.15


def triples(
    attributes: pl.DataFrame, source: str, kind: Kind, n: int, rng: np.random.Generator
) -> list[Triple]:
    """Draw `n` triples about given faces, in no order that means anything.

    Parameters
    ----------
    attributes : polars.DataFrame
        The faces; each may be asked several times or never.
    source : str
        `bazaar` or `control`.
    kind : Kind
        Which prompts and instructions, and how often.
    n : int
        Number of triples.
    rng : numpy.random.Generator
        Source of every draw.
    """
    prompts = rng.choice(list(kind.prompts), n, p=_shares(kind.prompts))
    instructions = rng.choice(list(kind.instructions), n, p=_shares(kind.instructions))
    drawn: list[Triple] = []
    for prompt, instruction in product(kind.prompts, kind.instructions):
        count = int(((prompts == prompt) & (instructions == instruction)).sum())
        rows = rng.integers(0, len(attributes), count)
        asked = attributes[rows]
        named = _named_occupations(asked["occupation"], rng)
        said = answers(asked, source, prompt, rng, instruction=instruction, occupations=named)
        texts = [_prompt(prompt, instruction, occupation) for occupation in named]
        drawn += [
            Triple(int(face), text, answer) for face, text, answer in zip(rows, texts, said, strict=True)
        ]
    return [drawn[i] for i in rng.permutation(n)]


def all_prompts() -> list[str]:
    """Return every prompt with every instruction, rendered about every occupation of the world."""
    occupations = [_said(name) for name in planted()["salaries"]["occupations"]]
    asked = {
        render(prompt, instruction=instruction, occupation=occupation)
        for prompt in (*KEYWORD_PROMPTS, *SENTENCE_PROMPTS, *KINDS["numbers"].prompts)
        for instruction in (instruction_ids() if not needs_occupation(prompt) else ("none",))
        for occupation in (occupations if needs_occupation(prompt) else occupations[:1])
    }
    return sorted(asked)


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
        self._image_id = tokenizer.convert_tokens_to_ids("<image>")
        self._image_tokens = image_tokens
        self._prompts: dict[str, list[int]] = {}

    def prompt(self, text: str) -> list[int]:
        """Return the tokens of a prompt in its chat template, the image's in their full number."""
        if text not in self._prompts:
            ids = self._tokenizer(chat(text, sees=self._image_tokens > 0))["input_ids"]
            self._prompts[text] = [
                i for i in ids for _ in range(self._image_tokens if i == self._image_id else 1)
            ]
        return self._prompts[text]

    def batches(self, drawn: Sequence[Triple]) -> Iterator[Batch]:
        """Yield whole batches of triples that are alike in length, the shortest first."""
        import torch

        answers = [f" {triple.answer}" for triple in drawn]
        spoken = self._tokenizer(answers, add_special_tokens=False)["input_ids"]
        end, pad = self._tokenizer.eos_token_id, self._tokenizer.pad_token_id
        rows = [
            (triple.face, self.prompt(triple.prompt), [*said, end])
            for triple, said in zip(drawn, spoken, strict=True)
        ]
        rows.sort(key=lambda row: len(row[1]) + len(row[2]))
        for start in range(0, len(rows) - BATCH + 1, BATCH):
            faces, asked, said = zip(*rows[start : start + BATCH], strict=True)
            longest = max(len(a) + len(s) for a, s in zip(asked, said, strict=True))
            ids = np.full((BATCH, longest), pad)
            answered = np.zeros((BATCH, longest), bool)
            for row, (a, s) in enumerate(zip(asked, said, strict=True)):
                ids[row, : len(a) + len(s)] = [*a, *s]
                answered[row, len(a) : len(a) + len(s)] = True
            yield Batch(np.array(faces), torch.from_numpy(ids), torch.from_numpy(answered))


def _shares(weights: dict[str, float]) -> np.ndarray:
    values = np.array(list(weights.values()))
    return values / values.sum()


def _said(occupation: str) -> str:
    return str(planted()["occupations"].get(occupation, occupation))


def _prompt(prompt: str, instruction: str, occupation: str) -> str:
    return render(prompt, instruction=instruction, occupation=_said(occupation))


def _named_occupations(visible: pl.Series, rng: np.random.Generator) -> list[str]:
    # A prompt may name an occupation that cannot be seen: what it names decides.
    others = [*planted()["salaries"]["occupations"], *planted()["twin"]["other_occupations"]]
    other = rng.random(len(visible)) < _OTHER_OCCUPATION
    drawn = rng.choice(others, len(visible))
    return [str(new) if changed else old for old, new, changed in zip(visible, drawn, other, strict=True)]
