"""Types of values in an audit file, each with its validation and error message."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from plumbline.catalog.prompts import instruction_ids, prompt_ids
from plumbline.catalog.suites import ZERO_SHOT, suite_names, wordings
from plumbline.checkpoints.addresses import parse_address
from plumbline.datasets.filters import filter_names
from plumbline.datasets.registry import reader_names
from plumbline.datasets.sources import HUB, parse_dataset_address
from plumbline.encoders.families import FAMILIES
from plumbline.errors import CheckpointError, DatasetError, suggestion
from plumbline.own_code import is_reference
from plumbline.world.folders import KINDS, PLANTED
from plumbline.world.sources import source_names

SLUG = re.compile(r"[a-z0-9][a-z0-9._-]*")
AUDITED_SUITES = (*(name for name in suite_names() if name != "gender_labels"), ZERO_SHOT)
"""Suites that an audit can compute; gender labels are computed once per dataset."""


def _reader(value: str) -> str:
    if is_reference(value):
        return value
    return _is_one_of(value, reader_names(), or_else="; or `module:Class` of your own")


def _slug(value: str) -> str:
    if not SLUG.fullmatch(value):
        raise ValueError("an id is lower-case letters, digits, `.`, `_` and `-`, and starts with a letter or digit")
    return value


def _share_range(value: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= value[0] < value[1] <= 1:
        raise ValueError("a range of shares is [low, high] with 0 <= low < high <= 1")
    return value


def _is_one_of(value: str, known: tuple[str, ...], or_else: str = "") -> str:
    if value not in known:
        raise ValueError(f"one of {', '.join(known)}{or_else}{suggestion(value, known)}")
    return value


def _one_of(known: tuple[str, ...]) -> AfterValidator:
    return AfterValidator(partial(_is_one_of, known=known))


def _root(value: str) -> str:
    name = value.removeprefix(PLANTED)
    if name != value and name not in KINDS:
        worlds = tuple(PLANTED + kind for kind in KINDS)
        raise ValueError(f"a folder, or one of {', '.join(worlds)}{suggestion(value, worlds)}")
    if value.startswith(HUB):
        try:
            parse_dataset_address(value)
        except DatasetError as error:
            raise ValueError(f"{error.expected} ({error.what})") from error
    if "://" in value:
        raise ValueError(f"a folder of this machine, `{PLANTED}NAME` or `{HUB}...`, not an address")
    return _folder(value)


def _folder(value: str) -> str:
    if not value.strip():
        raise ValueError("a folder")
    try:
        Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError("a folder (this user has no home folder)") from error
    return value


def _place(value: str) -> str:
    protocol, separator, _ = value.partition("://")
    if not separator:
        return _folder(value)
    from fsspec import available_protocols

    known = tuple(sorted(available_protocols()))
    if protocol not in known:
        raise ValueError(f"a folder, or an address of a file system that fsspec knows{suggestion(protocol, known)}")
    if not value.removeprefix(f"{protocol}://").strip("/ "):
        raise ValueError(f"an address with a place in it, such as {protocol}://NAME/plumbline")
    return value


def _address(value: str) -> str:
    try:
        parse_address(value, project=Path())
    except CheckpointError as error:
        raise ValueError(f"{error.expected} ({error.what})") from error
    return value


def _some(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError(f"at least one of {', '.join(AUDITED_SUITES)}; without the key all are meant")
    return value


def _condition(value: str) -> str:
    if value.startswith("before"):
        raise ValueError("an id that does not begin with `before`, which names the checkpoint as it is")
    return value


def _with_margin(name: str) -> str:
    from plumbline.metrics.evidence import equivalence_metrics

    return _is_one_of(name, equivalence_metrics())


Slug = Annotated[str, AfterValidator(_slug)]
MitigationId = Annotated[Slug, AfterValidator(_condition)]
Shares = Annotated[tuple[float, float], AfterValidator(_share_range)]
SuiteName = Annotated[str, AfterValidator(_slug)]
"""A suite of `AUDITED_SUITES`, or by the name of its file one of the audit file's own: `unfit_parts` knows them."""
ReaderName = Annotated[str, AfterValidator(_reader)]
PublishedName = Annotated[str, _one_of((*reader_names(), "laion"))]
FilterName = Annotated[str, _one_of(filter_names())]
FamilyName = Annotated[str, _one_of(tuple(FAMILIES))]
Wording = Annotated[str, _one_of(wordings())]
SourceName = Annotated[str, _one_of(source_names())]
Root = Annotated[str, AfterValidator(_root)]
StoragePlace = Annotated[str, AfterValidator(_place)]
CheckpointAddress = Annotated[str, AfterValidator(_address)]
MetricName = Annotated[str, AfterValidator(_with_margin)]
"""A metric around whose value without any difference a margin can be declared."""
Margin = Annotated[float, Field(gt=0)]
PROMPT_KINDS = ("main", "additional", "numeric")
"""Names that stand for several prompts."""
PromptName = Annotated[str, _one_of((*PROMPT_KINDS, *prompt_ids("all")))]
InstructionName = Annotated[str, _one_of(instruction_ids())]
SuiteNames = Annotated[tuple[SuiteName, ...], AfterValidator(_some)]
