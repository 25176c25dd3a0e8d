"""The words by which a text names a gender, a race or an age, and what is left of them in a neutral text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from plumbline.errors import ConfigError
from plumbline.tables.data_files import data_yaml


@dataclass(frozen=True)
class AttributeWords:
    """The words of one attribute, in lower case; a space stands for a space, a hyphen, a slash or an
    underscore.

    Attributes
    ----------
    variants : mapping of str to str
        Label of the records -> the word that makes a neutral text name it; in the order of the variants.
    nouns : mapping of str to str
        Word -> what a neutral text has in its place.
    pronouns : mapping of str to str
        Likewise, for words that stand for a person and take no adjective.
    modifiers : tuple of str
        Words that a neutral text lacks: `female`.
    before_persons : tuple of str
        Such words that are about people only before a person: `black`, `old`.
    phrases : tuple of str
        Regular expressions that a neutral text lacks: an age in numbers.
    """

    variants: Mapping[str, str]
    nouns: Mapping[str, str]
    pronouns: Mapping[str, str]
    modifiers: tuple[str, ...]
    before_persons: tuple[str, ...]
    phrases: tuple[str, ...]


@dataclass(frozen=True)
class PersonWords:
    """The words of every attribute, with those that say where a person is.

    Attributes
    ----------
    id, source : str
    version : int
    persons : tuple of str
        Nouns for people that name no label of any attribute, and `female` and `male`, which can stand for
        one.
    pictures : tuple of str
        Words for the picture itself: `photo`.
    no_nouns : tuple of str
        Words that cannot be the noun after a modifier.
    attributes : mapping of str to AttributeWords
        `gender`, `race`, `age`.
    """

    id: str
    version: int
    source: str
    persons: tuple[str, ...]
    pictures: tuple[str, ...]
    no_nouns: tuple[str, ...]
    attributes: Mapping[str, AttributeWords]


@cache
def person_words() -> PersonWords:
    """Return the words of the data file."""
    content = data_yaml("person_words.yaml")
    return PersonWords(
        id=content["id"],
        version=content["version"],
        source=content["source"],
        persons=tuple(content["persons"]),
        pictures=tuple(content["pictures"]),
        no_nouns=tuple(content["no_nouns"]),
        attributes={
            attribute: AttributeWords(
                variants=words["variants"],
                nouns=words["nouns"],
                pronouns=words["pronouns"],
                modifiers=tuple(words["modifiers"]),
                before_persons=tuple(words["before_persons"]),
                phrases=tuple(words["phrases"]),
            )
            for attribute, words in content["attributes"].items()
        },
    )


def attribute_words(attribute: str) -> AttributeWords:
    """Return the words of one attribute.

    Raises
    ------
    ConfigError
        If there are none: the attributes are `gender`, `race` and `age`.
    """
    known = person_words().attributes
    if attribute not in known:
        raise ConfigError(
            "there are no person words for this attribute",
            where="plumbline/tables/person_words.yaml",
            found=attribute,
            expected=", ".join(known),
        )
    return known[attribute]
