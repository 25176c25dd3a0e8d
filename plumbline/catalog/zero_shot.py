"""Zero-shot classification: the classes of a labelled folder as a suite, with the names and templates of open_clip."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from plumbline.catalog.suites import ZERO_SHOT, Candidate, Suite
from plumbline.config.parts import Part
from plumbline.errors import ConfigError

_WNID = re.compile(r"n[0-9]{8}")
_TEMPLATES = {"imagenet": "OPENAI_IMAGENET_TEMPLATES", "simple": "SIMPLE_IMAGENET_TEMPLATES"}
_SLOT = "{}"
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
