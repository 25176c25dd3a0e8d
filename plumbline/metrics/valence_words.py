"""The words of a suite that stand for a pole of a dimension, such as `warm` for positive communion."""

from __future__ import annotations

from plumbline.tables.suites import Suite

VALENCES = ("positive", "negative")


def valence_words(suite: Suite) -> dict[str, tuple[str, str]]:
    """Return word -> (dimension, valence) of the scales of a suite that have two poles: those of the ABC model."""
    found: dict[str, tuple[str, str]] = {}
    for scale, words in suite.scales.items():
        dimension, _, valence = scale.rpartition("_")
        if valence in VALENCES:
            found |= dict.fromkeys(words, (dimension, valence))
    return found
