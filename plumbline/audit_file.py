"""The audit file: what is audited on what, validated, with mistakes reported by file, line, key, found and expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.tables.suites import suite_names

_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]*")
_AUDITED_SUITES = tuple(name for name in suite_names() if name != "gender_labels")


def _slug(value: str) -> str:
    if not _SLUG.fullmatch(value):
        raise ValueError(
            "an id is lower-case letters, digits, `.`, `_` and `-`, and starts with a letter or digit"
        )
    return value


def _share_range(value: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= value[0] < value[1] <= 1:
        raise ValueError("a range of shares is [low, high] with 0 <= low < high <= 1")
    return value


def _suite(value: str) -> str:
    if value not in _AUDITED_SUITES:
        raise ValueError(f"one of {', '.join(_AUDITED_SUITES)}" + _suggestion(value, _AUDITED_SUITES))
    return value


def _suggestion(found: str, known: tuple[str, ...] | list[str]) -> str:
    close = difflib.get_close_matches(str(found), known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


Slug = Annotated[str, AfterValidator(_slug)]
Shares = Annotated[tuple[float, float], AfterValidator(_share_range)]
SuiteName = Annotated[str, AfterValidator(_suite)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatasetEntry(_Part):
    """A dataset: its reader, its folder, and the shares its labels must have before anything is computed on it."""

    reader: str
    root: str = Field(description="a folder, or `planted:NAME` for a folder of the planted world")
    balance: dict[str, Shares] = Field(
        default_factory=dict,
        description="record column or composite -> allowed share of every one of its labels",
    )
    filters: dict[SuiteName, str] = Field(default_factory=dict, description="suite -> named row filter")
    padding: float | None = Field(
        default=None, description="FairFace exists with 0.25 and 1.25: part of its identity"
    )


class EncoderEntry(_Part):
    """A checkpoint: `local-dir:PATH`, `hf-hub:ORG/NAME@REVISION` or an open_clip `ARCHITECTURE/TAG`."""

    address: str
    factors: dict[str, str] = Field(
        default_factory=dict, description="design factors, such as size or data source"
    )
    planted_source: str | None = Field(
        default=None, description="for checkpoints of the planted world: their source"
    )


class AuditEntry(_Part):
    """One rectangle of the grid: these encoders on these datasets with these suites."""

    encoders: Literal["all"] | tuple[Slug, ...] = "all"
    datasets: Literal["all"] | tuple[Slug, ...] = "all"
    suites: tuple[SuiteName, ...] = _AUDITED_SUITES


class Storage(_Part):
    """Where results live and how arrays are cut."""

    root: str | None = Field(
        default=None, description="folder or fsspec address; `.plumbline/lake` when absent"
    )
    shard_rows: int = Field(default=4096, ge=1)
    batch_rows: int = Field(default=64, ge=1)


class Statistics(_Part):
    """How uncertainty is computed."""

    seed: int = Field(default=20260801, ge=0)
    resamples: int = Field(default=10_000, ge=100)
    permutations: int = Field(default=10_000, ge=100)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    min_group: int = Field(default=30, ge=1)
    label_margin: float = Field(default=0.2, ge=0, lt=1)


class Adjustment(_Part):
    """Settings of Adaptive Logit Adjustment (paper: N = 20, learning rate 0.01, 20 epochs, 3 trials)."""

    per_class: int = Field(default=20, ge=1)
    learning_rate: float = Field(default=0.01, gt=0)
    epochs: int = Field(default=20, ge=1)
    trials: int = Field(default=3, ge=1)


class Thresholds(_Part):
    """Limits of the quality checks."""

    label_error: float = Field(
        default=0.15, ge=0, le=1, description="largest automatic-label error rate of a group"
    )
    quarantine_rate: float = Field(default=0.05, ge=0, le=1)


class Audit(_Part):
    """The whole audit file."""

    title: str = "A Plumbline audit"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    labeller: Slug
    storage: Storage = Storage()
    statistics: Statistics = Statistics()
    adjustment: Adjustment = Adjustment()
    thresholds: Thresholds = Thresholds()
    datasets: dict[Slug, DatasetEntry]
    encoders: dict[Slug, EncoderEntry]
    audit: tuple[AuditEntry, ...]

    @model_validator(mode="after")
    def _names_exist(self) -> Audit:
        defined = {"encoders": list(self.encoders), "datasets": list(self.datasets)}
        wanted = [("labeller", self.labeller, defined["encoders"])]
        for i, entry in enumerate(self.audit):
            for key, names in defined.items():
                chosen = getattr(entry, key)
                wanted += [(f"audit.{i}.{key}", name, names) for name in (chosen if chosen != "all" else ())]
        for key, name, names in wanted:
            if name not in names:
                raise ValueError(
                    f"{key}: `{name}` is not defined; one of {', '.join(names)}{_suggestion(name, names)}"
                )
        return self

    @cached_property
    def cells(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return (dataset, encoder) -> suites, in file order; suites of overlapping entries are joined."""
        joined: dict[tuple[str, str], dict[str, None]] = {}
        for entry in self.audit:
            for dataset in self.datasets if entry.datasets == "all" else entry.datasets:
                for encoder in self.encoders if entry.encoders == "all" else entry.encoders:
                    joined.setdefault((dataset, encoder), {}).update(dict.fromkeys(entry.suites))
        return {cell: tuple(suites) for cell, suites in joined.items()}

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the resolved file: defaults filled in, where results are stored left out."""
        return digest_json(self.model_dump(mode="json", exclude={"storage": {"root"}, "title": True}))


def read_audit(path: Path) -> Audit:
    """Read and validate an audit file.

    Raises
    ------
    ConfigError
        If the file is absent, is not YAML, or any key in it is unknown, missing or of a wrong value. All mistakes
        are listed at once, each with line, key, found and expected.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError("the audit file cannot be read", where=path, found=error.strerror) from error
    return _parse(text, path)


# Every step of an audit reads the file anew, so that an edit is seen; equal text need not be parsed again.
@lru_cache(maxsize=4)
def _parse(text: str, path: Path) -> Audit:
    try:
        content, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError("the audit file is not valid YAML", where=path, found=error) from error
    if not isinstance(content, dict):
        raise ConfigError("the audit file must be a mapping", where=path, found=type(content).__name__)
    try:
        return Audit.model_validate(content)
    except ValidationError as error:
        mistakes = "\n".join(_describe(mistake, node) for mistake in error.errors())
        raise ConfigError(
            f"the audit file has {error.error_count()} mistake(s)\n{mistakes}", where=path
        ) from error


def _describe(mistake: Any, node: yaml.Node | None) -> str:
    location = [
        part for part in mistake["loc"] if not str(part).startswith(("literal[", "tuple[", "function-"))
    ]
    kind, found = mistake["type"], mistake["input"]
    key = ".".join(str(part) for part in location) or "(whole file)"
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        expected = f"one of {', '.join(known)}{_suggestion(str(location[-1]), known)}"
        found = f"unknown key `{location[-1]}`"
    elif kind == "missing":
        expected, found = f"the key `{location[-1]}`", "nothing"
    else:
        expected = mistake["msg"].removeprefix("Value error, ")
        found = "see expected" if isinstance(found, dict) else repr(found)
    return f"  - line {_line(node, location)}, key {key}\n      found:    {found}\n      expected: {expected}"


def _known_keys(location: list[Any]) -> list[str]:
    model: type[BaseModel] = Audit
    named: dict[str, type[BaseModel]] = {
        "datasets": DatasetEntry, "encoders": EncoderEntry, "audit": AuditEntry, "storage": Storage,
        "statistics": Statistics, "adjustment": Adjustment, "thresholds": Thresholds,
    }  # fmt: skip
    if location:
        model = named.get(str(location[0]), Audit)
    return list(model.model_fields)


def _line(node: yaml.Node | None, location: list[Any]) -> int:
    """Return the 1-based line of the deepest part of a key path that exists in the file."""
    line = node.start_mark.line + 1 if node else 1
    for part in location:
        step = next((child for name, child in _children(node) if name == str(part)), None)
        if step is None:
            break
        key, node = step
        line = key.start_mark.line + 1
    return line


def _children(node: yaml.Node | None) -> Iterator[tuple[str, tuple[yaml.Node, yaml.Node]]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield str(key.value), (key, value)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            yield str(i), (value, value)
