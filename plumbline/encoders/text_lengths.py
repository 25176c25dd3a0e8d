"""How long texts are to an encoder: the tokens of its own tokenizer, read without its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from plumbline.checkpoints.folders import CheckpointFiles


@dataclass(frozen=True)
class TokenCounter:
    """How a model counts texts.

    Attributes
    ----------
    count : callable
        From a text to its tokens, the first and last ones of the model included.
    limit : int
        Tokens that the model takes.
    cuts : bool
        Whether a longer text is cut in silence; else the audit refuses it.
    """

    count: Callable[[str], int]
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


def text_lengths(files: CheckpointFiles, texts: Sequence[str]) -> TextLengths | None:
    """Return how long some texts are to the encoder of a checkpoint; None of stored predictions, which read none.

    Raises
    ------
    CheckpointError
        If its tokenizer cannot be read.
    """
    from plumbline.encoders.families import find_family
    from plumbline.imports import import_class

    tower = getattr(files, "tower", None) or files
    family = find_family(tower.family)
    if family.stored:
        return None
    counter: TokenCounter = import_class(family.adapter, below="plumbline.encoders").token_counter(tower.folder)
    counted = [(text, counter.count(text)) for text in texts]
    too_long = [LongText(text, n, _lost(text, counter)) for text, n in counted if n > counter.limit]
    return TextLengths(max((n for _, n in counted), default=0), counter.limit, counter.cuts, too_long)


def _lost(text: str, counter: TokenCounter) -> str:
    """Return the words at the end of a text that do not fit whole."""
    words = text.split()
    kept = next((n for n in range(len(words), 0, -1) if counter.count(" ".join(words[:n])) <= counter.limit), 0)
    return " ".join(words[kept:])
