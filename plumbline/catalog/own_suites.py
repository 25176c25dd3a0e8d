"""Suites of one's own: what a file of each kind holds, what is refused in it, and what deserves a second look."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from plumbline.catalog.files import foreign_yaml, key_lines, line_of, repeated_keys, text_within
from plumbline.catalog.suites import (
    AS_WRITTEN,
    VALENCES,
    Candidate,
    Suite,
    data_of,
    suite_names,
    suite_of,
    with_article,
)
from plumbline.digests import canonical_json
from plumbline.errors import ConfigError

SUITE_FILES = (".yaml", ".yml")
_LONGEST = 400
_LARGEST_FILE = 1 << 20
_JOINERS = "\u200c\u200d"  # within words of Persian, Hindi and other languages
_ARTICLES = re.compile(r"\b(?:an?|the) (?:an?|the)\b", re.IGNORECASE)
_TWICE = re.compile(r"\b(\w+) \1\b", re.IGNORECASE)
_AGREEMENT = re.compile(r"\b(an?) (\w[\w'-]*)", re.IGNORECASE)


def is_suite_file(name: str) -> bool:
    """Return whether a suite is named by the path of its file."""
    return "/" in name or "\\" in name or name.endswith(SUITE_FILES)


# --- What texts may be.


def _plain(value: object) -> object:
    if isinstance(value, bool | int | float):
        raise ValueError("a text: put it in quotes, since YAML reads it as a number or as true or false")
    return value


def _text(value: str) -> str:
    if not value.strip() or value != value.strip():
        raise ValueError("a text that neither begins nor ends with a space")
    if len(value) > _LONGEST:
        raise ValueError(f"a text of at most {_LONGEST} characters")
    if any(unicodedata.category(letter)[0] == "C" and letter not in _JOINERS for letter in value):
        raise ValueError("a text without control characters and changes of direction")
    if _ARTICLES.search(value):
        raise ValueError("one article, not two in a row")
    return value


def _word(value: str, info: ValidationInfo) -> str:
    if "{" in value or "}" in value:
        raise ValueError("a word without braces: only templates have a slot")
    if not (info.context or {}).get(AS_WRITTEN) and re.match(r"an? ", value, re.IGNORECASE):
        raise ValueError("a word without its article, which is put before it; `articles: as_written` leaves all as is")
    return value


def _caption(value: str) -> str:
    if "{" in value or "}" in value:
        raise ValueError("a caption without a slot: captions are asked as they stand")
    return value


def _template(value: str) -> str:
    if value.count("{}") != 1 or "{" in value.replace("{}", "") or "}" in value.replace("{}", ""):
        raise ValueError("a template with one slot {} for the word, and no other braces")
    return value


Text = Annotated[str, BeforeValidator(_plain), AfterValidator(_text)]
Word = Annotated[Text, AfterValidator(_word)]
Caption = Annotated[Text, AfterValidator(_caption)]
Template = Annotated[Text, AfterValidator(_template)]
Words = Annotated[tuple[Word, ...], Field(min_length=1)]
Name = Annotated[str, BeforeValidator(_plain), AfterValidator(_text)]

Mistake = tuple[tuple[int | str, ...], object, str]
"""Place, value, and what was expected."""


class SuiteFile(BaseModel):
    """What every file says; a kind adds its keys."""

    model_config = ConfigDict(extra="forbid")
    id: str
    family: str
    version: Annotated[int, Field(ge=1)]
    source: Text
    articles: Literal["repaired", "as_written"] = "repaired"

    @model_validator(mode="after")
    def _fits(self) -> SuiteFile:
        if mistakes := [*self.mistakes()]:
            details = [
                InitErrorDetails(
                    type=PydanticCustomError("unfit", "{expected}", {"expected": expected}), loc=place, input=value
                )
                for place, value, expected in mistakes
            ]
            raise ValidationError.from_exception_data(type(self).__name__, details)
        return self

    def mistakes(self) -> Iterator[Mistake]:
        """Yield what does not fit together."""
        yield from ()

    def names(self) -> Iterator[tuple[tuple[int | str, ...], str]]:
        """Yield the names that stand in the column `event`, each with its place."""
        yield from ()


class Block(BaseModel):
    """Words of one category in one template."""

    model_config = ConfigDict(extra="forbid")
    category: Name
    template: Template
    words: Words


class Outcomes(SuiteFile):
    """Texts of which one matches an image best, and events that are made of their categories."""

    candidates: Annotated[tuple[Block, ...], Field(min_length=1)]
    events: Annotated[dict[Name, tuple[Name, ...]], Field(min_length=1)]
    skewed_events: tuple[Name, ...] = ()

    def mistakes(self) -> Iterator[Mistake]:
        """See `SuiteFile`."""
        seen: Counter[str] = Counter()
        for i, block in enumerate(self.candidates):
            for j, word in enumerate(block.words):
                seen[word] += 1
                if seen[word] == 2:
                    yield ("candidates", i, "words", j), word, "every word once: this one stands in several places"
        known = {block.category for block in self.candidates}
        for name, categories in self.events.items():
            if unknown := sorted({*categories} - known):
                yield ("events", name), ", ".join(unknown), f"some of the categories {', '.join(sorted(known))}"
            elif {*categories} >= known:
                yield ("events", name), ", ".join(categories), "an event that leaves a category to choose beside it"
        for i, name in enumerate(self.skewed_events):
            if name not in self.events:
                yield ("skewed_events", i), name, f"one of the events {', '.join(self.events)}"

    def names(self) -> Iterator[tuple[tuple[int | str, ...], str]]:
        """See `SuiteFile`."""
        yield from ((("events", name), name) for name in self.events)


class Templated(SuiteFile):
    """What is asked in several templates."""

    templates: Annotated[dict[Name, Template], Field(min_length=1)]


class Perception(Templated):
    """Words of scales: single associations, associations of two poles, rankings and confounds."""

    blank: str = ""
    scales: Annotated[dict[Name, Words], Field(min_length=1)]

    def mistakes(self) -> Iterator[Mistake]:
        """See `SuiteFile`."""
        for name, words in self.scales.items():
            yield from _twins(("scales", name), words)
            for pole, other in (("_positive", "_negative"), ("_negative", "_positive")):
                if name.endswith(pole) and name.removesuffix(pole) + other not in self.scales:
                    missing = name.removesuffix(pole) + other
                    yield ("scales", name), name, f"its other pole beside it, the scale `{missing}`"

    def names(self) -> Iterator[tuple[tuple[int | str, ...], str]]:
        """See `SuiteFile`."""
        for name in self.scales:
            dimension, _, pole = name.rpartition("_")
            yield ("scales", name), dimension if pole in ("positive", "negative") and dimension else name


class Markedness(Templated):
    """A prompt that names a group, held against the one that names none."""

    blank: str = ""
    marks: Annotated[dict[Name, Annotated[dict[Name, Word], Field(min_length=1)]], Field(min_length=1)]


class Templates(Templated):
    """Words of both sides of a task, each in several wordings."""

    tasks: Annotated[dict[Name, dict[Literal["positive", "negative"], Words]], Field(min_length=1)]

    def mistakes(self) -> Iterator[Mistake]:
        """See `SuiteFile`."""
        for task, sides in self.tasks.items():
            yield from _both(("tasks", task), sides, ("positive", "negative"))
            yield from _twins(("tasks", task), [word for words in sides.values() for word in words])

    def names(self) -> Iterator[tuple[tuple[int | str, ...], str]]:
        """See `SuiteFile`."""
        yield from ((("tasks", name), name) for name in self.tasks)


class Captions(SuiteFile):
    """Captions of scenes, favourable and not, by the attribute whose groups are compared with them."""

    scenes: Annotated[
        dict[Name, dict[Name, dict[Literal["pos", "neg"], Annotated[tuple[Caption, ...], Field(min_length=1)]]]],
        Field(min_length=1),
    ]

    def mistakes(self) -> Iterator[Mistake]:
        """See `SuiteFile`."""
        for scene, attributes in self.scenes.items():
            for attribute, sides in attributes.items():
                yield from _both(("scenes", scene, attribute), sides, ("pos", "neg"))
                yield from _twins(("scenes", scene, attribute), [text for texts in sides.values() for text in texts])


class Classes(BaseModel):
    """What the labels of the attribute are called."""

    model_config = ConfigDict(extra="forbid")
    template: Template
    words: Annotated[dict[Name, Word], Field(min_length=2)]


class Probes(BaseModel):
    """The loaded words of each valence."""

    model_config = ConfigDict(extra="forbid")
    template: Template
    negative: Words
    neutral: Words
    positive: Words


class Trident(SuiteFile):
    """Probes that compete with the true classes of an attribute."""

    attribute: Name
    classes: Classes
    probes: Probes

    def mistakes(self) -> Iterator[Mistake]:
        """See `SuiteFile`."""
        yield from _twins(("classes", "words"), self.classes.words.values())
        yield from _twins(("probes",), [word for valence in VALENCES for word in getattr(self.probes, valence)])


KINDS: dict[str, type[SuiteFile]] = {
    "outcomes": Outcomes,
    "perception": Perception,
    "trident": Trident,
    "markedness": Markedness,
    "templates": Templates,
    "captions": Captions,
}
"""Key `family` of a file -> what it holds."""


def _twins(place: tuple[int | str, ...], words: Iterable[str]) -> Iterator[Mistake]:
    for word, times in Counter(words).items():
        if times > 1:
            yield place, word, "every word once: this one stands in several places"


def _both(place: tuple[int | str, ...], sides: Mapping[Any, Any], names: tuple[str, str]) -> Iterator[Mistake]:
    for name in names:
        if name not in sides:
            yield place, ", ".join(sides), f"both sides: `{name}` is missing"


# --- A file is read.


def read_own_suite(path: Path) -> dict[str, Any]:
    """Return the content of a file of prompts, checked: `suite_of` makes its suite.

    Its keys are sorted, as a record of an audit keeps them: a suite is the same however the keys of its file are
    ordered, and the same when it is read back. The order of what a list holds stays.

    Raises
    ------
    ConfigError
        If there is no such file, or what it says is refused: every mistake with file, line, key, found and expected.
    """
    if path.suffix not in SUITE_FILES:
        raise ConfigError("a suite is a YAML file", where=path, expected=f"a name that ends in {SUITE_FILES[0]}")
    try:
        content, node = foreign_yaml(text_within(path, _LARGEST_FILE))
    except OSError as error:
        raise ConfigError("the file of a suite cannot be read", where=path, found=error.strerror) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError("a file of prompts is not YAML", where=path, found=" ".join(str(error).split())) from error
    if not isinstance(content, dict):
        raise ConfigError("a file of prompts is a mapping", where=path, found=type(content).__name__)
    if repeated := repeated_keys(node):
        mistakes = [
            ConfigError(
                "a key stands twice in a file of prompts",
                where=f"{path}, line {line}",
                found=f"a second `{place[-1]}`; the first is on line {first}",
                expected="every key once",
            )
            for place, line, first in repeated
        ]
        raise ConfigError.all_of(mistakes)
    family = content.get("family")
    if not isinstance(family, str) or family not in KINDS:
        known = f"one of {', '.join(KINDS)}"
        raise _refused(path, ("family",), family, known, dict(key_lines(node)))
    try:
        read = KINDS[family].model_validate(content, context={AS_WRITTEN: content.get("articles") == AS_WRITTEN})
    except ValidationError as error:
        lines = dict(key_lines(node))
        mistakes = [
            _refused(
                path,
                one["loc"],
                None if one["type"] == "missing" else one["input"],
                "the key" if one["type"] == "missing" else one["msg"].removeprefix("Value error, "),
                lines,
            )
            for one in error.errors()
            if one["type"] != "too_short" or not one["input"]  # its items are told one by one
        ]
        raise ConfigError.all_of(mistakes) from error
    _require_names(path, read, dict(key_lines(node)))
    checked: dict[str, Any] = json.loads(canonical_json(read.model_dump(exclude_unset=True, mode="json")))
    _require_different(path, suite_of(checked))
    return checked


def _refused(
    path: Path, place: Iterable[int | str], found: object, expected: str, lines: Mapping[tuple[str, ...], int]
) -> ConfigError:
    keys = tuple(each for each in place if each != "[key]")
    where = f"{path}, line {line_of(keys, lines)}, key {'.'.join(map(str, keys)) or '(whole file)'}"
    shown = None if found is None else repr(found)[:200]
    return ConfigError("a file of prompts is not right", where=where, found=shown, expected=expected)


def _require_names(path: Path, read: SuiteFile, lines: Mapping[tuple[str, ...], int]) -> None:
    """Refuse names of published suites and of their events: their numbers would be mixed."""
    mistakes = []
    if read.id != path.stem:
        mistakes.append(_refused(path, ("id",), read.id, f"{path.stem}, as the file is named", lines))
    elif read.id in suite_names() or not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", read.id):
        expected = "lower-case letters, digits, `.`, `_` and `-`, and no name of a suite of Plumbline's"
        mistakes.append(_refused(path, ("id",), read.id, expected, lines))
    published = _published_names()
    mistakes += [
        _refused(path, place, name, f"another name than a published suite has, such as {path.stem}_{name}", lines)
        for place, name in read.names()
        if name in published
    ]
    if mistakes:
        raise ConfigError.all_of(mistakes)


def _published_names() -> set[str]:
    names: set[str] = set()
    for suite in suite_names():
        content = data_of(suite)
        for key in ("events", "scales", "tasks"):
            names |= {name.removesuffix("_positive").removesuffix("_negative") for name in content.get(key, ())}
    return names


def _require_different(path: Path, suite: Suite) -> None:
    """Refuse two candidates with one text, which nothing could tell apart, and texts with two articles."""
    for text, category in ((each.text, each.category) for each in suite.candidates):
        if _ARTICLES.search(text):
            raise ConfigError(
                "a rendered prompt has two articles in a row",
                where=f"{path}, `{category}`",
                found=text,
                expected="a word or a template without its article: it is put before the word",
            )
    first: dict[tuple[str, str], Candidate] = {}
    for candidate in suite.candidates:
        # Marks of several labels may be one word; captions compete within their scene alone.
        within = candidate.category if suite.family == "captions" else ""
        other = first.setdefault((within, candidate.text), candidate)
        if other is not candidate and suite.family != "markedness":
            raise ConfigError(
                "two candidates have one text",
                where=f"{path}, `{other.id}` and `{candidate.id}`",
                found=candidate.text,
                expected="texts that an image can be told apart by",
            )


def remarks(suite: Suite) -> list[str]:
    """Return what deserves a second look in rendered prompts: articles that do not agree, words that stand twice."""
    doubts: list[str] = []
    for text in suite.texts:
        for article, word in _AGREEMENT.findall(text):
            if with_article(word).split(" ", 1)[0] != article.lower():
                doubts.append(f"`{article} {word}` in `{text}`")
        doubts += [f"`{twice} {twice}` in `{text}`" for twice in _TWICE.findall(text)]
    return list(dict.fromkeys(doubts))


# --- Starters.


def starter(kind: str, name: str) -> str:
    """Return a commented file of a kind, to begin from, whose id is `name`.

    Raises
    ------
    ConfigError
        If there is no such kind.
    """
    if kind not in KINDS:
        raise ConfigError("there is no such kind of suite", found=kind, expected=", ".join(KINDS))
    text = (files("plumbline.catalog") / "starters" / f"{kind}.yaml").read_text("utf-8")
    return text.replace("id: starter\n", f"id: {name}\n", 1)
