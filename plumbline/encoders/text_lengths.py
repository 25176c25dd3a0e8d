"""How long texts are to an encoder: the tokens of its own tokenizer, read without its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from plumbline.errors import EncodingError

if TYPE_CHECKING:
    from pathlib import Path

    from plumbline.encoders.families import Family


@dataclass(frozen=True)
class TokenCounter:
    """How a model counts texts.

    Attributes
    ----------
    tokens : callable
        From a text to its tokens, the first and last ones of the model included.
    limit : int
        Tokens that the model takes.
    cuts : bool
        Whether a longer text is cut in silence; else the audit refuses it.
    """

    tokens: Callable[[str], Sequence[int]]
    limit: int
    cuts: bool


class LongText(NamedTuple):
    """A text that a model does not take whole: its tokens, and the words that are lost."""

    text: str
    tokens: int
    lost: str


class TextLengths(NamedTuple):
    """The texts of a suite to one model: the most tokens, the limit, and the texts beyond it."""

    longest: int
    limit: int
    cuts: bool
    too_long: list[LongText]
    alike: int
    """texts whose tokens are those of another text: the model cannot tell them apart"""


def text_lengths(family: Family, folder: Path, texts: Sequence[str]) -> TextLengths | None:
    """Return how long some texts are to the encoder of a folder; None of what is stored, which reads none.

    No weights are read.

    Raises
    ------
    CheckpointError
        If its tokenizer cannot be read.
    """
    if family.stored:
        return None
    from plumbline.checkpoints.loading import loading
    from plumbline.imports import import_class

    counter: TokenCounter = import_class(family.adapter, below="plumbline.encoders").token_counter(folder)
    with loading("the tokenizer of this checkpoint could not read a prompt", where=folder, expected="a tokenizer"):
        tokens = {text: tuple(counter.tokens(text)) for text in texts}
    counted = {text: len(read) for text, read in tokens.items()}
    too_long = [LongText(text, n, _lost(text, counter)) for text, n in counted.items() if n > counter.limit]
    times = Counter(tokens.values())
    alike = sum(times[read] > 1 for read in tokens.values())
    return TextLengths(max(counted.values(), default=0), counter.limit, counter.cuts, too_long, alike)


def tokens_beyond(encoder: object, texts: Sequence[str]) -> dict[str, int]:
    """Return the texts that are longer than a loaded encoder takes -> their tokens; none of one that cuts them."""
    counted = getattr(encoder, "too_long", None)
    return counted(texts) if counted else {}


def too_long_error(text: str, found: str, expected: str | None = None) -> EncodingError:
    """Return the error of a text that an encoder does not take."""
    return EncodingError(
        "a text is longer than this encoder takes",
        where=text,
        found=found,
        expected=expected,
        hint="`plumbline suite NAME` counts the tokens of its prompts to each encoder: shorten them, or leave it out",
    )


def _lost(text: str, counter: TokenCounter) -> str:
    """Return the words at the end of a text that do not fit whole."""
    words = text.split()
    kept = next((n for n in range(len(words), 0, -1) if len(counter.tokens(" ".join(words[:n]))) <= counter.limit), 0)
    return " ".join(words[kept:])
