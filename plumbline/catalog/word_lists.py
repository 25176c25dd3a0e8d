"""Word lists and texts that ship with the project, with their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from plumbline.catalog.files import data_bytes, data_text, data_yaml, entry, typed
from plumbline.catalog.suites import all_texts, with_article
from plumbline.digests import digest_bytes, digest_json
from plumbline.recording import note


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
    return typed(PersonWords, data_yaml("person_words.yaml"))


def attribute_words(attribute: str) -> AttributeWords:
    """Return the words of one attribute.

    Raises
    ------
    ConfigError
        If there are none: the attributes are `gender`, `race` and `age`.
    """
    what = "there are no person words for this attribute"
    return entry(person_words().attributes, attribute, what, "person_words.yaml")


# --- Words with severities for the scored attributes: what the small offline scorer knows.


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
    read = {
        "classes": {name: of_class["words"] for name, of_class in classes.items()},
        "severities": {word: each["severity"] for each in classes.values() for word in each["words"]},
    }
    return typed(OffensiveWords, content | read)


# --- Sentences about people that name no gender, race or age, to train on beside a dataset's captions.


@dataclass(frozen=True)
class NeutralCaptions:
    """The sentences of the data file.

    Attributes
    ----------
    id, source : str
    version : int
    texts : tuple of str
        Occupations and qualities in every template, and activities.
    rewordings : mapping of str to str
        Beginning of a caption -> another that means the same.
    """

    id: str
    version: int
    source: str
    texts: tuple[str, ...]
    rewordings: Mapping[str, str]


@cache
def neutral_captions() -> NeutralCaptions:
    """Return the sentences of the data file."""
    content = data_yaml("neutral_captions.yaml")
    persons = [
        template.format(with_article(person)) for template in content["templates"] for person in content["persons"]
    ]
    activities = [f"a person {activity}" for activity in content["activities"]]
    return typed(NeutralCaptions, content | {"texts": persons + activities})


# --- Sensitive queries: texts that mitigations are trained on, none of which is ever asked in an audit.


@dataclass(frozen=True)
class SensitiveQueries:
    """Queries about a person that their group should not decide.

    Attributes
    ----------
    source : str
    pairs : tuple of (str, str)
        Opposite queries of which both may be trained on, the favourable one first.
    texts : tuple of str
        Every query that may be trained on, those without their opposite too.
    left_out : tuple of str
        Queries of the source that are prompts of a suite: training text must not be evaluation text.
    """

    source: str
    pairs: tuple[tuple[str, str], ...]
    texts: tuple[str, ...]
    left_out: tuple[str, ...]


@cache
def load_sensitive_queries() -> SensitiveQueries:
    """Read the queries from their data file, and leave out those that are prompts of a suite in any case."""
    content: dict[str, Any] = data_yaml("sensitive_queries.yaml")
    prompts = {text.lower() for text in all_texts()}
    pairs = [
        (content["template"].format(with_article(good)), content["template"].format(with_article(bad)))
        for good, bad in content["pairs"]
    ]
    texts = [text for pair in pairs for text in pair]
    return SensitiveQueries(
        source=content["source"],
        pairs=tuple(pair for pair in pairs if not prompts.intersection(pair)),
        texts=tuple(text for text in texts if text not in prompts),
        left_out=tuple(text for text in texts if text in prompts),
    )


# --- Texts that name a protected attribute: what Bias Prompts projects out, and which pairs it draws
# together.


@dataclass(frozen=True)
class AttributeTexts:
    """The texts of one attribute.

    Attributes
    ----------
    prompts : tuple of str
        Each names one group and nothing else, such as `a photo of a woman`.
    pairs : tuple of (str, str)
        Texts that differ in the group alone, such as `a photo of a male doctor` and `a photo of a female doctor`:
        every two groups, over every occupation.
    contrast : (str, str)
        Two of the prompts, whose difference stands for the attribute where one direction has to.
    """

    prompts: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    contrast: tuple[str, str]

    @property
    def texts(self) -> tuple[str, ...]:
        """Return every distinct text, prompts first."""
        return tuple(dict.fromkeys([*self.prompts, *(text for pair in self.pairs for text in pair)]))


@cache
def attribute_texts(attribute: str) -> AttributeTexts:
    """Return the texts of `gender`, `race` or `age`.

    Raises
    ------
    ConfigError
        If the data file has no such attribute.
    """
    content: dict[str, Any] = data_yaml("attribute_texts.yaml")
    what = "there are no texts that name this attribute"
    about = entry(content["attributes"], attribute, what, "attribute_texts.yaml")

    def rendered(word: str) -> str:
        return str(content["template"].format(with_article(word)))

    one, other = about["contrast"]
    return AttributeTexts(
        prompts=tuple(map(rendered, about["prompts"])),
        pairs=tuple(
            (rendered(f"{first} {occupation}"), rendered(f"{second} {occupation}"))
            for occupation in content["occupations"]
            for first, second in combinations(about["terms"], 2)
        ),
        contrast=(rendered(one), rendered(other)),
    )


# --- Which data files say what words in answers mean: who is named, what is competent, what refuses, what
# offends, which number is meant.

_LISTS = (
    "competence_words.txt", "number_patterns.yaml", "offensive_words.yaml", "person_words.yaml",
    "refusal_patterns.yaml", "stop_words.txt",
)  # fmt: skip


def answer_words_digest() -> str:
    """Return the digest of the word lists that answers are read with."""
    digest = _answer_words_digest()
    note("answer_words", value=digest)
    return digest


@cache
def _answer_words_digest() -> str:
    return digest_json([digest_bytes(data_bytes(name)) for name in _LISTS])


# --- Words that carry no content of their own, left out of shares and of the lists of associated words.


@cache
def stop_words() -> frozenset[str]:
    """Return the English stop words of `plumbline/catalog/stop_words.txt`, written as `words_of` writes them.

    The paper does not say which list it used; this is one of function words alone.
    """
    text = data_text("stop_words.txt")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())
