"""Prompt suites: their files, validation, and rendered candidates; a suite is identified by its rendered text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from plumbline.catalog.files import data_yaml, typed
from plumbline.config.parts import Part
from plumbline.digests import digest_json
from plumbline.errors import ConfigError, suggestion
from plumbline.recording import note, unrecorded

_SLOT = "{}"
AS_WRITTEN = "as_written"
"""Key `articles` of a file whose words and templates keep their articles, whatever follows them."""


VARIANT_OF = {
    "agency_photo": "agency", "communion_photo": "communion", "crime_words": "crime", "perception_words": "perception",
}  # fmt: skip
"""Other readings of a published suite -> that suite: not asked by default, only where an audit file names them."""
GENDERS = ("man", "woman")
RELEASED = "released"
"""The wording of the Trident prompts in the released code."""
VALENCES = ("negative", "neutral", "positive")
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
UTILITY = "utility"
"""The family of suites whose candidates are the classes of things."""
ZERO_SHOT = "zero_shot"
"""The suite of a dataset's own classes, see `zero_shot_suite`; it has no file of prompts."""
VARIANT_SUITES = ("crime_pooled", "agency_photo", "communion_photo", "crime_words", *SCENE_SUITES)
"""Outcome suites with another's words or scenes: left out where tasks are compared, and of what labels are named."""


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

    @property
    def embedded(self) -> tuple[str, ...]:
        """Return the texts that are embedded: the prompts, or each candidate's word in each template in turn."""
        if not self.ensemble:
            return self.texts
        return tuple(template.replace("{}", c.word) for c in self.candidates for template in self.ensemble)

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


_AN = re.compile(r"[aeiou]|(hour|honest|honou?r|heir)", re.IGNORECASE)
_A = re.compile(r"(uni(?![nm])|us(e|u)|eu|one\b|u\b)", re.IGNORECASE)


def with_article(word: str) -> str:
    """Put `a` or `an` before a word as it sounds: `a thief`, `an individual`, `an honest person`, `a uniform`."""
    return f"{'an' if _AN.match(word) and not _A.match(word) else 'a'} {word}"


_SLOT_ARTICLE = re.compile(r"\b(a|an) *\{\}", re.IGNORECASE)
_WORD = re.compile(r"(a|an) +(\S+)", re.IGNORECASE)


def filled(template: str, word: str, *, article: bool = False, as_written: bool = False) -> str:
    """Return a template with a word in its slot `{}`; an empty word leaves no second space behind.

    Parameters
    ----------
    article : bool
        Whether the word gets an article where the template has none before its slot.
    as_written : bool
        Nothing is changed: neither gets the word an article, nor becomes `a` before the slot `an`.
    """
    before = None if as_written else _SLOT_ARTICLE.search(template)
    if article and not as_written and before is None and word:
        word = with_article(word)
    text = " ".join(template.replace(_SLOT, word).split())
    if before is None or (match := _WORD.match(text, before.start())) is None:
        return text
    agreeing = with_article(match[2])
    capital = match[1][0].isupper()
    return text[: match.start()] + (agreeing[0].upper() + agreeing[1:] if capital else agreeing) + text[match.end() :]


@cache
def data_of(name: str) -> dict[str, Any]:
    """Return the content of the data file of a published suite."""
    if name == "trident_composite":
        name = "trident"
    if name not in suite_names():
        close = suggestion(name, suite_names())
        raise ConfigError(
            "there is no such prompt suite",
            found=f"{name}{close}",
            expected=", ".join(suite_names()),
            hint=None if close else "a suite of your own is named by the path of its file, such as ./jobs.yaml",
        )
    content: dict[str, Any] = data_yaml(f"suites/{name}.yaml")
    return content


def suite_names() -> tuple[str, ...]:
    """Return the names that `load_suite` knows.

    Examples
    --------
    >>> import plumbline
    >>> plumbline.suite_names()[:3]
    ('agency', 'agency_photo', 'communion')
    """
    return _listed_suites()


@cache
def _listed_suites() -> tuple[str, ...]:
    folder = files("plumbline.catalog") / "suites"
    listed = {item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")}
    return tuple(sorted(listed | {"trident_composite"}))


def shows_mitigation(name: str, family: str) -> bool:
    """Return whether a mitigation is judged by a suite: one of outcomes, or a Trident suite of the published labels."""
    return family == "outcomes" or name in TRIDENT_SUITES


def trident_class_sets() -> tuple[str, ...]:
    """Return the names of the label sets that a Trident suite can be built on."""
    return tuple(data_of("trident")["classes"])


def load_suite(name: str, *, classes: str | None = None, wording: str = RELEASED) -> Suite:
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
    return suite_of(data_of(name))


def suite_of(content: Mapping[str, Any]) -> Suite:
    """Return the suite of the content of a file."""
    family = content["family"]
    as_written = content.get("articles") == AS_WRITTEN
    built = {"candidates": _CANDIDATES.get(family, _listed)(content, as_written)}
    return typed(Suite, {**content, **built})


def _listed(content: Mapping[str, Any], as_written: bool) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            id=word,
            text=filled(block["template"], word, article=True, as_written=as_written),
            category=block["category"],
        )
        for block in content["candidates"]
        for word in block["words"]
    )


def _templated(
    content: Mapping[str, Any], slots: list[tuple[str, str, str, str]], as_written: bool, *, article: bool = False
) -> tuple[Candidate, ...]:
    """Fill every template with every slot: (its part of the id, category, word, text in the slot)."""
    return tuple(
        Candidate(
            id=f"{template}:{name}",
            text=filled(text, filling, article=article, as_written=as_written),
            category=category,
            word=word,
            template=template,
        )
        for template, text in content["templates"].items()
        for name, category, word, filling in slots
    )


def _of_scales(content: Mapping[str, Any], as_written: bool) -> tuple[Candidate, ...]:
    words = dict.fromkeys(word for scale in content["scales"].values() for word in scale)
    slots = [("blank", "blank", "", content.get("blank", "")), *((word, "adjective", word, word) for word in words)]
    return _templated(content, slots, as_written)


def _of_marks(content: Mapping[str, Any], as_written: bool) -> tuple[Candidate, ...]:
    """Return the unmarked prompts and those that name a label; `category` is then the label's attribute."""
    slots = [("blank", "blank", "", content.get("blank", ""))]
    for attribute, marks in content["marks"].items():
        slots += [(f"{attribute}:{label}", attribute, label, word) for label, word in marks.items()]
    return _templated(content, slots, as_written)


def _of_tasks(content: Mapping[str, Any], as_written: bool) -> tuple[Candidate, ...]:
    """Return the prompts of several tasks; `category` is `task:kind`."""
    slots = [
        (f"{task}:{word}", f"{task}:{kind}", word, word)
        for task, kinds in content["tasks"].items()
        for kind, words in kinds.items()
        for word in words
    ]
    return _templated(content, slots, as_written, article=True)


def _of_scenes(content: Mapping[str, Any], as_written: bool) -> tuple[Candidate, ...]:
    """Return the captions of every scene, unchanged; `category` is `scene:attribute:pos` or `:neg`."""
    return tuple(
        Candidate(id=f"{scene}:{attribute}:{side}:{number}", text=text, category=f"{scene}:{attribute}:{side}")
        for scene, attributes in content["scenes"].items()
        for attribute, sides in attributes.items()
        for side, texts in sides.items()
        for number, text in enumerate(texts, 1)
    )


def _of_probes(content: Mapping[str, Any], as_written: bool) -> tuple[Candidate, ...]:
    """Return the classes of a Trident suite of one's own, and the probes of every valence."""
    classes, probes = content["classes"], content["probes"]
    return (
        *(
            Candidate(id=label, text=filled(classes["template"], word, as_written=as_written), category="class")
            for label, word in classes["words"].items()
        ),
        *(
            Candidate(
                id=word, text=filled(probes["template"], word, article=True, as_written=as_written), category=valence
            )
            for valence in VALENCES
            for word in probes[valence]
        ),
    )


_CANDIDATES = {
    "perception": _of_scales, "markedness": _of_marks, "templates": _of_tasks, "captions": _of_scenes,
    "trident": _of_probes,
}  # fmt: skip
"""Family of suites -> how its data file becomes candidates; the others list theirs."""


def wordings() -> tuple[str, ...]:
    """Return the named wordings of the Trident prompts, the default first."""
    return tuple(data_of("trident")["wordings"])


def _trident(name: str, classes: str | None, wording: str) -> Suite:
    content = data_of("trident")
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


def all_suites(own: Sequence[Suite] = ()) -> tuple[Suite, ...]:
    """Return every suite, the Trident ones over every label set and in every wording, in a fixed order.

    Parameters
    ----------
    own : sequence of Suite
        Those of an audit file's own, which stand at the end.
    """
    built = [
        load_suite(name, classes=classes, wording=wording)
        for name in suite_names()
        for classes in (trident_class_sets() if name.startswith("trident") else (None,))
        for wording in (wordings() if name.startswith("trident") else ("released",))
    ]
    # A wording changes only some label sets.
    return tuple({suite.hash: suite for suite in (*built, *own)}.values())


_LABELS = "gender_labels"


def own_texts(own: Sequence[Suite] = ()) -> dict[str, tuple[str, ...]]:
    """Return suite id -> its own prompts, of every suite, in a fixed order; one of several suites is the first's.

    Together they are what `text_embeddings` embeds. What one suite says leaves those of the others as they are, unless
    both have a prompt in common.

    Parameters
    ----------
    own : sequence of Suite
        Those of an audit file's own.
    """
    with unrecorded():
        texts_of: dict[str, dict[str, None]] = {}
        for suite in all_suites(own):
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
    """Return every distinct prompt of every suite of the package, in a fixed order.

    What reads them depends on the package's own files, which are part of its version, and on no suite of an audit file.
    """
    with unrecorded():
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
        apart. ImageNet's names are taken as open_clip has them, with two missiles and two sunglasses: of such a pair
        the first class is always chosen, there as here.
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
    times = Counter(called)
    given = {name for label, name in zip(labels, called) if known.get(label) != name}
    if twice := sorted(name for name in given if times[name] > 1):
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
    templates, names = templates_of(settings), class_names(labels, settings.names)
    times = Counter(names)
    candidates = tuple(
        Candidate(
            id=label,
            text=f"{name if times[name] == 1 else f'{name}, {label}'} (mean of {len(templates)} templates)",
            category="class",
            word=name,
        )
        for label, name in zip(labels, names)
    )
    source = "Radford et al. 2021, section 3.1; class names and templates of open_clip.zero_shot_metadata"
    return Suite(ZERO_SHOT, "utility", 1, source, candidates, attribute="label", ensemble=templates)
