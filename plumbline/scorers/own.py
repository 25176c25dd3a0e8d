"""A scorer of one's own: a function of the audit file that gives each text its scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.digests import digest_json
from plumbline.own_code import OwnCode, Reference, broken, called, code_digest, own_code
from plumbline.scorers.scorer import Scored, Scorer, ScorerSettings

if TYPE_CHECKING:
    from plumbline.checkpoints.device import Placement

_AT_ONCE = 64
_EXAMPLE = ("", "The person is kind.", "The person is a thief, and dangerous.")
Scores = Literal[SCORED_ATTRIBUTES]  # type: ignore[valid-type]


class OwnScorer:
    """Scores texts by a function of one's own: `plumbline.scorers.scorer.Scorer`.

    Parameters
    ----------
    reference : str
    attributes : tuple of str
        What the function scores.
    """

    offline_stand_in = False

    def __init__(self, reference: str, attributes: tuple[str, ...]) -> None:
        self.attributes = attributes
        self._code = own_code(reference)
        digest = code_digest(reference)
        self.version = f"{reference}, code {digest}"
        self.identity = digest_json({"kind": "own", "code": digest, "attributes": attributes})

    def score(self, texts: Sequence[str]) -> Iterator[tuple[int, Scored]]:
        """See `Scorer`."""
        for start in range(0, len(texts), _AT_ONCE):
            yield from enumerate(scored(self._code, texts[start : start + _AT_ONCE], self.attributes), start)


class OwnSettings(ScorerSettings):
    """A function of your own, `function(texts)`, which gives one mapping of attribute to score a text."""

    kind: Literal["own"]
    """what scores"""
    function: Reference
    """`module:function` of a list of texts, found beside the audit file or installed"""
    attributes: Annotated[tuple[Scores, ...], Field(min_length=1)] = ("toxicity",)
    """what it scores, each from 0 to 1"""

    def content(self, *, project: Path, fetched: Path) -> str:
        """See `ScorerSettings`."""
        return code_digest(self.function)

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        return OwnScorer(self.function, self.attributes)


def scored(code: OwnCode, texts: Sequence[str], attributes: Sequence[str]) -> list[Scored]:
    """Return what a function says of some texts.

    Raises
    ------
    ConfigError
        If it fails, or gives something else than a score of each attribute for each text.
    """
    given = called(code, code.thing, list(texts), told=f"called with {len(texts)} texts")
    rows = given if isinstance(given, Sequence) and not isinstance(given, str) else None
    if rows is None or len(rows) != len(texts):
        shown = type(given).__name__ if rows is None else f"{len(rows)} of {len(texts)}"
        raise broken(code, "what it returns", found=shown, expected="a list with one mapping a text, in their order")
    return [Scored(_checked(code, row, attributes)) for row in rows]


def _checked(code: OwnCode, row: Any, attributes: Sequence[str]) -> dict[str, float]:
    if not isinstance(row, Mapping) or {*row} != {*attributes}:
        shown = sorted(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise broken(code, "the scores of a text", found=shown, expected=f"a mapping with {', '.join(attributes)}")
    for name, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isnan(value) or 0 <= value <= 1):
            raise broken(code, f"the score `{name}`", found=repr(value)[:100], expected="a number from 0 to 1, or nan")
    return {name: float(value) for name, value in row.items()}


def require_scorer(settings: OwnSettings) -> None:
    """Try a scorer on three texts: together, and each alone.

    Raises
    ------
    ConfigError
        If it is no function of texts, gives something else than scores, or scores a text by the others beside it.
    """
    code = own_code(settings.function)
    if not callable(code.thing):
        expected = "a function of a list of texts"
        raise broken(code, "it is not a function", found=type(code.thing).__name__, expected=expected)
    together = scored(code, _EXAMPLE, settings.attributes)
    alone = [scored(code, [text], settings.attributes)[0] for text in _EXAMPLE]
    for text, one, other in zip(_EXAMPLE, together, alone):
        if any(not _same(one.scores[name], other.scores[name]) for name in settings.attributes):
            raise broken(
                code, f"the score of `{text}` depends on the texts beside it", found=one.scores, expected=other.scores
            )


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
