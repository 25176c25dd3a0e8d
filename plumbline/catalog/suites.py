"""Prompt suites: their files, validation, and rendered candidates; a suite is identified by its rendered text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from plumbline.catalog.files import checked_yaml, typed
from plumbline.config.parts import Part
from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.recording import note, unrecorded

_SLOT = "{}"


def _one_slot(template: str) -> str:
    if template.count(_SLOT) != 1:
        raise ValueError("a template with one slot {} for the word")
    return template


class _Block(BaseModel):
    """Words of one category in one template."""

    model_config = ConfigDict(extra="forbid")
    category: str
    template: Annotated[str, AfterValidator(_one_slot)]
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)


class _Head(BaseModel):
    """Keys of every file; a family adds its own."""

    model_config = ConfigDict(extra="allow")
    id: str
    family: Literal["captions", "labels", "markedness", "outcomes", "perception", "templates", "trident"]
    version: int
    source: str


class _Listed(_Head):
    """A suite of words listed by category, with events that are unions of categories."""

    model_config = ConfigDict(extra="forbid")
    candidates: tuple[_Block, ...] = Field(min_length=1)
    events: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    skewed_events: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> _Listed:
        words = [word for block in self.candidates for word in block.words]
        twice = sorted({word for word in words if words.count(word) > 1})
        if twice:
            raise ValueError(f"every word once: {', '.join(twice)} stand(s) in several places")
        known = {block.category for block in self.candidates}
        unknown = sorted({category for of in self.events.values() for category in of} - known)
        if unknown:
            raise ValueError(f"events made of the categories {', '.join(sorted(known))}, not {', '.join(unknown)}")
        lacking = sorted(set(self.skewed_events) - set(self.events))
        if lacking:
            raise ValueError(f"skewed_events that are events; {', '.join(lacking)} is none")
        return self


VARIANT_OF = {
    "agency_photo": "agency", "communion_photo": "communion", "crime_words": "crime", "perception_words": "perception",
}  # fmt: skip
"""Other readings of a published suite, of the same images; they are asked where an audit file names them."""
PUBLISHED = (
    "agency", "communion", "crime", "crime_pooled", "gender_labels", "markedness", "pata_captions", "perception",
    "templates", "trident", *VARIANT_OF,
)  # fmt: skip
"""The suites of the papers; those of one's own list their words, and name events of their own."""

_MODELS: dict[str, type[_Head]] = {"outcomes": _Listed, "labels": _Listed}
"""Family -> what its files hold; the published families that build prompts in other ways have the head checked."""


def read_suite_file(path: Path) -> dict[str, Any]:
    """Return the content of a file of prompts.

    Raises
    ------
    ConfigError
        If it is no YAML, or does not hold what its family needs: with file, key, what was found and expected.
    """
    family = checked_yaml(path, _Head, "a file of prompts").family
    suite = checked_yaml(path, _MODELS.get(family, _Head), "a file of prompts")
    if suite.id != path.stem:
        raise ConfigError("a suite is named as its file", where=f"{path}, key id", found=suite.id, expected=path.stem)
    if path.stem not in PUBLISHED and suite.family != "outcomes":
        raise ConfigError(
            "a suite of one's own lists words and events",
            where=f"{path}, key family",
            found=suite.family,
            expected="outcomes; the other families are those of the published suites alone",
        )
    return suite.model_dump()


# --- Prompt suites: the candidates of every probe, read from data files; their identity is their rendered
# text.

GENDERS = ("man", "woman")
VALENCES = ("negative", "neutral", "positive")
JUDGED = ("outcomes", "trident")
"""The families of suites that a mitigation is judged by."""

TASK_EVENTS = {"crime": "crime", "communion": "negative_communion", "agency": "negative_agency"}
"""The three tasks, which are suites of outcomes, and the harmful event of each."""
TASKS = tuple(TASK_EVENTS)
"""Suites whose skews "Data Matters Most" averages (its footnote 2)."""
TRIDENT_SUITES = ("trident", "trident_composite")
"""Suites of datasets that have a label set."""
MIXED_SUITES = ("trident_mixed", "trident_composite")
"""The column `suite` of rows that depend on automatic gender labels."""
SCENE_SUITES = ("pata_captions",)
"""Suites of datasets that have scenes."""
ZERO_SHOT = "zero_shot"
"""The suite of a dataset's own classes, see `plumbline.catalog.suites`; it has no file of prompts."""
VARIANT_SUITES = ("crime_pooled", "agency_photo", "communion_photo", "crime_words", *SCENE_SUITES)
"""Outcome suites that are variants of another."""


@dataclass(frozen=True)
class Candidate:
    """One text that an image can be assigned to.

    Attributes
    ----------
    id : str
        The label or word, unique in its suite.
    text : str
        The rendered prompt.
    category : str
        What kind of candidate it is: a class, a valence, `crime`, `negative` and so on.
    word, template : str
        In a templated suite: what fills the slot (empty where the slot is left out), and the template's name.
    """

    id: str
    text: str
    category: str
    word: str = ""
    template: str = ""


@dataclass(frozen=True)
class Suite:
    """An ordered set of candidates that are tested together.

    Attributes
    ----------
    id : str
        Name in `audit.yaml` and in the column `suite` of the metric table.
    family : str
        `trident`, `outcomes`, `labels`, `perception`, `markedness`, `templates`, `captions` or `utility`: which metrics
        read it.
    attribute : str or None
        For `trident` and `utility`: the record column that holds the class.
    events : dict of str to tuple of str
        For `outcomes`: event name to the categories that make it up.
    skewed_events : tuple of str
        Events for which Max Skew is defined; the others have a harm rate only.
    scales : dict of str to tuple of str
        For `perception`: dimension to its words. A word may belong to several.
    ensemble : tuple of str
        For `utility`: templates with a slot `{}`; a candidate's vector is the mean of its word's over all of them.
    """

    id: str
    family: str
    version: int
    source: str
    candidates: tuple[Candidate, ...]
    attribute: str | None = None
    events: dict[str, tuple[str, ...]] = field(default_factory=dict)
    skewed_events: tuple[str, ...] = ()
    scales: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ensemble: tuple[str, ...] = ()

    @cached_property
    def hash(self) -> str:
        """Return the sha256 of all that its numbers depend on: prompts, roles, attribute, events."""
        content = {
            "candidates": [[c.id, c.text, c.category] for c in self.candidates],
            "attribute": self.attribute,
            "events": self.events,
            "skewed_events": sorted(self.skewed_events),
        }
        more = {"scales": self.scales, "ensemble": [list(self.ensemble), [c.word for c in self.candidates]]}
        given = {"scales": bool(self.scales), "ensemble": bool(self.ensemble)}
        return digest_json(content | {name: value for name, value in more.items() if given[name]})

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the rendered prompts in candidate order."""
        return tuple(c.text for c in self.candidates)

    def columns(self, *categories: str) -> list[int]:
        """Return the positions of the candidates of the given categories."""
        return [i for i, c in enumerate(self.candidates) if c.category in categories]

    @property
    def templates(self) -> tuple[str, ...]:
        """Return the names of the templates, in order; none where the suite is not templated."""
        return tuple(dict.fromkeys(c.template for c in self.candidates if c.template))

    @property
    def class_labels(self) -> tuple[str, ...]:
        """Return the labels of the `class` candidates, in order."""
        return tuple(c.id for c in self.candidates if c.category == "class")

    @property
    def probes(self) -> tuple[Candidate, ...]:
        """Return the candidates that are no class, in order; of a Trident suite each makes a test of its own."""
        return tuple(c for c in self.candidates if c.category != "class")


def with_article(word: str) -> str:
    """Put `a` or `an` before a word by its first letter: `a thief`, `an individual`."""
    return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"


@cache
def _read(name: str) -> dict[str, Any]:
    path = Path(str(files("plumbline.catalog"))) / "suites" / f"{name}.yaml"
    if not path.is_file():
        raise ConfigError("there is no such prompt suite", found=name, expected=", ".join(suite_names()))
    content = read_suite_file(path)
    if name not in PUBLISHED:
        _require_own_events(path, content)
    return content


def _require_own_events(path: Path, content: dict[str, Any]) -> None:
    """Reject a user suite with an event name of a published suite: their numbers would be mixed."""
    published = {event for name in PUBLISHED for event in _read(name).get("events", ())}
    if taken := sorted(published.intersection(content.get("events", ()))):
        raise ConfigError(
            "an event of a suite of one's own has the name of a published one",
            where=f"{path}, key events",
            found=", ".join(taken),
            expected=f"another name, such as {path.stem}_{taken[0]}",
        )


def suite_names() -> tuple[str, ...]:
    """Return the names that `load_suite` knows.

    Examples
    --------
    >>> import plumbline
    >>> plumbline.suite_names()[:3]
    ('agency', 'agency_photo', 'communion')
    """
    folder = files("plumbline.catalog") / "suites"
    listed = {item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")}
    return tuple(sorted(listed | {"trident_composite"}))


def shows_mitigation(name: str) -> bool:
    """Return whether a suite is of the families that a mitigation is judged by."""
    return name != ZERO_SHOT and _read(name.removesuffix("_composite"))["family"] in JUDGED


def trident_class_sets() -> tuple[str, ...]:
    """Return the names of the label sets that a Trident suite can be built on."""
    return tuple(_read("trident")["classes"])


def load_suite(name: str, *, classes: str | None = None, wording: str = "released") -> Suite:
    """Build one suite from its data file.

    Parameters
    ----------
    name : str
        One of `suite_names()`.
    classes : str, optional
        For the Trident suites: the label set, such as `fairface`.
    wording : str
        For the Trident suites: one of `wordings()`. The others have one wording.

    Raises
    ------
    ConfigError
        If the suite, the label set or the wording does not exist.

    Examples
    --------
    >>> import plumbline
    >>> suite = plumbline.load_suite("crime")
    >>> suite.events["crime"], suite.texts[0]
    (('crime',), 'a photo of a white man')
    """
    suite = _built(name, classes, wording)
    note("suite", name, classes, wording, value=suite.hash)
    return suite


@cache
def _built(name: str, classes: str | None, wording: str) -> Suite:
    if name.startswith("trident"):
        return _trident(name, classes, wording)
    content = _read(name)
    return typed(Suite, content | {"candidates": _CANDIDATES.get(content["family"], _listed)(content)})


def _listed(content: dict[str, Any]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(id=word, text=block["template"].format(with_article(word)), category=block["category"])
        for block in content["candidates"]
        for word in block["words"]
    )


def _templated(content: dict[str, Any], slots: list[tuple[str, str, str, str]]) -> tuple[Candidate, ...]:
    """Fill every template with every slot: (its part of the id, category, word, text in the slot)."""
    return tuple(
        Candidate(
            id=f"{template}:{name}",
            # A blank slot leaves no second space behind.
            text=" ".join(text.format(filling).split()),
            category=category,
            word=word,
            template=template,
        )
        for template, text in content["templates"].items()
        for name, category, word, filling in slots
    )


def _of_scales(content: dict[str, Any]) -> tuple[Candidate, ...]:
    words = dict.fromkeys(word for scale in content["scales"].values() for word in scale)
    slots = [("blank", "blank", "", content["blank"]), *((word, "adjective", word, word) for word in words)]
    return _templated(content, slots)


def _of_marks(content: dict[str, Any]) -> tuple[Candidate, ...]:
    """Return the unmarked prompts and those that name a label; `category` is then the label's attribute."""
    slots = [("blank", "blank", "", content["blank"])]
    for attribute, marks in content["marks"].items():
        slots += [(f"{attribute}:{label}", attribute, label, word) for label, word in marks.items()]
    return _templated(content, slots)


def _of_tasks(content: dict[str, Any]) -> tuple[Candidate, ...]:
    """Return the prompts of several tasks; `category` is `task:kind`."""
    slots = [
        (f"{task}:{word}", f"{task}:{kind}", word, with_article(word))
        for task, kinds in content["tasks"].items()
        for kind, words in kinds.items()
        for word in words
    ]
    return _templated(content, slots)


def _of_scenes(content: dict[str, Any]) -> tuple[Candidate, ...]:
    """Return the captions of every scene, unchanged; `category` is `scene:attribute:pos` or `:neg`."""
    return tuple(
        Candidate(id=f"{scene}:{attribute}:{side}:{number}", text=text, category=f"{scene}:{attribute}:{side}")
        for scene, attributes in content["scenes"].items()
        for attribute, sides in attributes.items()
        for side, texts in sides.items()
        for number, text in enumerate(texts, 1)
    )


_CANDIDATES = {"perception": _of_scales, "markedness": _of_marks, "templates": _of_tasks, "captions": _of_scenes}
"""Family of suites -> how its data file becomes candidates; the others list theirs."""


def wordings() -> tuple[str, ...]:
    """Return the named wordings of the Trident prompts, the default first."""
    return tuple(_read("trident")["wordings"])


def _trident(name: str, classes: str | None, wording: str) -> Suite:
    content = _read("trident")
    if wording not in content["wordings"]:
        raise ConfigError("the Trident suite has no such wording", found=wording, expected=", ".join(wordings()))
    if classes not in content["classes"] or name not in ("trident", "trident_composite"):
        raise ConfigError(
            "the Trident suite needs a known label set",
            found=f"{name} over {classes}",
            expected=", ".join(content["classes"]),
        )
    chosen, style = content["classes"][classes], content["wordings"][wording]
    words = {**chosen["labels"], **(chosen.get("readable", {}) if style.get("readable") else {})}
    if name == "trident_composite":
        words = {f"{label}_{gender}": f"{text}_{gender}" for label, text in words.items() for gender in GENDERS}
    groups = [Candidate(id=label, text=style["class"].format(text), category="class") for label, text in words.items()]
    probes = [
        Candidate(id=word, text=style["probe"].format(with_article(word), bare=word), category=valence)
        for valence in VALENCES
        for word in content["probes"][valence]
    ]
    return Suite(
        id=name,
        family="trident",
        version=content["version"],
        source=content["source"],
        candidates=(*groups, *probes),
        attribute=chosen["attribute"],
    )


def all_suites() -> tuple[Suite, ...]:
    """Return every suite, the Trident ones over every label set and in every wording, in a fixed order."""
    built = [
        load_suite(name, classes=classes, wording=wording)
        for name in suite_names()
        for classes in (trident_class_sets() if name.startswith("trident") else (None,))
        for wording in (wordings() if name.startswith("trident") else ("released",))
    ]
    # A wording changes only some label sets.
    return tuple({suite.hash: suite for suite in built}.values())


_LABELS = "gender_labels"


def own_texts() -> dict[str, tuple[str, ...]]:
    """Return suite id -> its own prompts, of every suite, in a fixed order; one of several suites is the first's.

    Together they are what `text_embeddings` embeds. What one suite says leaves those of the others as they are, unless
    both have a prompt in common.
    """
    with unrecorded():
        texts_of: dict[str, dict[str, None]] = {}
        for suite in all_suites():
            texts_of.setdefault(suite.id, {}).update(dict.fromkeys(suite.texts))
    # The two labels last, which other suites have too: a pass over a couple of texts gives them other last bits.
    texts_of[_LABELS] = texts_of.pop(_LABELS)
    by_suite: dict[str, tuple[str, ...]] = {}
    known: set[str] = set()
    for suite_id, texts in texts_of.items():
        if mine := tuple(text for text in texts if text not in known):
            by_suite[suite_id] = mine
        known |= texts.keys()
    note("texts", value=[*by_suite.values()])
    return by_suite


def all_texts() -> tuple[str, ...]:
    """Return every distinct prompt of every suite, in a fixed order."""
    return tuple(text for texts in own_texts().values() for text in texts)


# --- Zero-shot classification: the classes of a labelled folder as a suite, with the names and templates
# of open_clip.

_WNID = re.compile(r"n[0-9]{8}")
_TEMPLATES = {"imagenet": "OPENAI_IMAGENET_TEMPLATES", "simple": "SIMPLE_IMAGENET_TEMPLATES"}
_MOST_SHOWN = 5


def _with_slot(templates: tuple[str, ...]) -> tuple[str, ...]:
    if wrong := [template for template in templates if template.count(_SLOT) != 1]:
        raise ValueError(f"templates with one slot {{}} for the class, not `{wrong[0]}`")
    return templates


class ZeroShotSettings(Part):
    """How the classes of a labelled dataset are put into words for the suite `zero_shot`."""

    names: dict[str, str] = Field(default_factory=dict)
    """label -> what it is called; by default ImageNet's names where all labels are its wnids, else the labels"""
    templates: (
        Literal["imagenet", "simple"] | Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_with_slot)]
    ) = "imagenet"
    """imagenet: the 80 of OpenAI; simple: the 7 best of them; or a list, each with one slot {}"""


@cache
def _open_clip_data() -> Any:
    """Return open_clip's module of names and templates by itself: importing open_clip takes seconds."""
    path = Path(str(next(iter(_package("open_clip").submodule_search_locations or ())))) / "zero_shot_metadata.py"
    spec = spec_from_file_location("_open_clip_zero_shot_metadata", path)
    if spec is None or spec.loader is None:
        raise ConfigError("open_clip has no names of ImageNet's classes", where=path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _package(name: str) -> Any:
    spec = find_spec(name)
    if spec is None:
        raise ConfigError(f"{name} is not installed", hint=f"pip install {name}")
    return spec


@cache
def imagenet_names() -> dict[str, str]:
    """Return wnid -> name of ImageNet's 1,000 classes: timm's list of wnids, in whose order open_clip has its names."""
    folder = Path(str(next(iter(_package("timm").submodule_search_locations or ()))))
    wnids = (folder / "data" / "_info" / "imagenet_synsets.txt").read_text("utf-8").split()
    return dict(zip(wnids, _open_clip_data().IMAGENET_CLASSNAMES, strict=True))


def templates_of(settings: ZeroShotSettings) -> tuple[str, ...]:
    """Return templates with a slot `{}`."""
    if not isinstance(settings.templates, str):
        return settings.templates
    return tuple(template(_SLOT) for template in getattr(_open_clip_data(), _TEMPLATES[settings.templates]))


def class_names(labels: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the classes of a dataset are called, in their order.

    Raises
    ------
    ConfigError
        If `names` has a label that the dataset has not, or two classes are called the same: nothing could tell them
        apart.
    """
    if unknown := sorted(names.keys() - set(labels)):
        raise ConfigError(
            "names are given to classes that the dataset has not",
            where="zero_shot.names",
            found=", ".join(unknown[:_MOST_SHOWN]),
            expected=", ".join(labels[:_MOST_SHOWN]),
        )
    known = imagenet_names() if labels and all(map(_WNID.fullmatch, labels)) else {}
    called = tuple(names.get(label) or known.get(label) or label.replace("_", " ") for label in labels)
    if twice := sorted({name for name in called if called.count(name) > 1}):
        raise ConfigError(
            "two classes are called the same",
            where="zero_shot.names",
            found=", ".join(twice[:_MOST_SHOWN]),
            expected="a name for each class",
            hint="name them in the audit file",
        )
    return called


def zero_shot_suite(labels: Sequence[str], settings: ZeroShotSettings) -> Suite:
    """Return the suite of some classes: a candidate a class, whose vector is the mean over all templates.

    Parameters
    ----------
    labels : sequence of str
        As the records have them, in order.

    Raises
    ------
    ConfigError
        As `class_names` does.
    """
    templates = templates_of(settings)
    candidates = tuple(
        Candidate(id=label, text=f"{name} (mean of {len(templates)} templates)", category="class", word=name)
        for label, name in zip(labels, class_names(labels, settings.names))
    )
    source = "Radford et al. 2021, section 3.1; class names and templates of open_clip.zero_shot_metadata"
    return Suite(ZERO_SHOT, "utility", 1, source, candidates, attribute="label", ensemble=templates)
