"""Which suites an encoder can answer: what each family of suites needs, against what its own family offers."""

from __future__ import annotations

from collections.abc import Iterable

from plumbline.encoders.capability import Capability
from plumbline.encoders.families import Family, require
from plumbline.tables.suites import Suite

NEEDS: dict[str, frozenset[Capability]] = {
    # A top-1 among candidates asks for an order and no more.
    "trident": frozenset({Capability.LOGITS}),
    "outcomes": frozenset({Capability.LOGITS}),
    # These compare cosines with each other, not only their order within an image.
    "perception": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
    "markedness": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
    "templates": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
    "captions": frozenset({Capability.LOGITS}),
    # A probability with a margin is a softmax over scaled cosines.
    "labels": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
}
"""Family of suites -> what must be asked of an encoder."""


def answers(family: Family, suite: Suite) -> bool:
    """Return whether encoders of a family can answer a suite."""
    return NEEDS[suite.family] <= family.offers


def require_suites(family: Family | str, suites: Iterable[Suite]) -> None:
    """Refuse suites that an encoder's family cannot answer.

    Raises
    ------
    ConfigError
        With the suite, what it needs, and which families offer that.
    """
    for suite in suites:
        purpose = "the automatic gender label" if suite.family == "labels" else f"the suite `{suite.id}`"
        require(family, NEEDS[suite.family], purpose)
