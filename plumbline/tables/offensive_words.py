"""Words with severities for the scored attributes: what the small offline scorer knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from plumbline.tables.data_files import data_yaml


@dataclass(frozen=True)
class OffensiveWords:
    """The words of the data file.

    Attributes
    ----------
    id, source : str
    version : int
    cap : float
        No text has a higher score.
    classes : mapping of str to tuple of str
        Class -> its words, in lower case; each word is of one class.
    severities : mapping of str to mapping of str to float
        Word -> scored attribute -> severity in [0, 1]; attributes that its class does not name are absent.
    """

    id: str
    version: int
    source: str
    cap: float
    classes: Mapping[str, tuple[str, ...]]
    severities: Mapping[str, Mapping[str, float]]


@cache
def offensive_words() -> OffensiveWords:
    """Return the words of the data file."""
    content = data_yaml("offensive_words.yaml")
    classes = content["classes"]
    return OffensiveWords(
        id=content["id"],
        version=content["version"],
        source=content["source"],
        cap=content["cap"],
        classes={name: tuple(of_class["words"]) for name, of_class in classes.items()},
        severities={
            word: of_class["severity"] for of_class in classes.values() for word in of_class["words"]
        },
    )
