"""The backend interface, common to local models and endpoints, and its requests and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plumbline.digests import digest_json

ROW_KEY_DIGITS = 32


@dataclass(frozen=True)
class Decoding:
    """Settings of sampling.

    Attributes
    ----------
    max_new_tokens : int
    temperature : float
        0 is greedy.
    top_k : int
        0 is none. transformers samples with a silent 50, which is the default here too.
    top_p : float
        1 is none.
    """

    max_new_tokens: int = 512
    temperature: float = 0.75
    top_k: int = 50
    top_p: float = 1.0


@dataclass(frozen=True)
class Question:
    """One prompt with one instruction and one seed, as it is asked of one image.

    Attributes
    ----------
    prompt, instruction : str
        Ids, for the columns of the row.
    text : str
        Rendered: instruction and occupation filled in; the text alone, without any chat template.
    seed : int
    """

    prompt: str
    instruction: str
    text: str
    seed: int


@dataclass(frozen=True)
class Subject:
    """The subject of a question: an image, or a description of it for a language model without vision.

    Attributes
    ----------
    image_id : str
        sha256 of the file's bytes.
    path : Path or None
        None where the model gets no image.
    set_id : str or None
    """

    image_id: str
    path: Path | None
    set_id: str | None = None


@dataclass(frozen=True)
class Asked:
    """One row to generate."""

    subject: Subject
    question: Question
    key: str


@dataclass(frozen=True)
class Answer:
    """A generated text and how it ended; see `plumbline.catalog.schema.GENERATION_SCHEMA` for the columns."""

    text: str
    finish_reason: str
    prompt_tokens: int
    new_tokens: int
    source: str
    thinking: str = ""
    thinking_tokens: int | None = 0


class Backend(Protocol):
    """A model that answers.

    Attributes
    ----------
    identity : str
        Digest of everything besides the question that its answers depend on: weights, processor, chat template, dtype
        and library versions of a local model; address and model name of an endpoint.
    device : str
        Such as `cpu`, `cuda`, or `endpoint`.
    sees : bool
        Whether it takes images.
    at_once : int
        Subjects that it wants in one call of `answers`: a batch never crosses it, so that a resumed run has the same
        batches.
    """

    identity: str
    device: str
    sees: bool
    at_once: int

    def answers(self, asked: Sequence[Asked], decoding: Decoding) -> Iterator[tuple[int, Answer]]:
        """Yield (position in `asked`, answer) as answers become ready, each once; rows of one subject are adjacent.

        Raises
        ------
        GenerationError
            If a row cannot be answered at all; what was yielded before is kept by the caller.
        """


def row_key(identity: str, subject: Subject, question: Question, decoding: Decoding) -> str:
    """Return the key of a row: a digest of all that its text depends on, which excludes batch and order of work.

    Its first 128 bits of sha256 also seed the row's own random numbers.
    """
    return digest_json(
        {
            "model": identity,
            # A model without eyes gets a draw of its own for every image that is described to it.
            "image": [subject.image_id, subject.path is not None],
            "prompt": question.text,
            "decoding": vars(decoding),
            "seed": question.seed,
        }
    )[:ROW_KEY_DIGITS]
