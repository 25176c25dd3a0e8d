"""The audit file: what is audited on what, validated, with mistakes reported by file, line, key, found and expected."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from plumbline.audit_values import (
    AUDITED_SUITES,
    BalancedLabel,
    CheckpointAddress,
    FilterName,
    ReaderName,
    Root,
    Shares,
    Slug,
    SourceName,
    SuiteName,
    SuiteNames,
    suggestion,
)
from plumbline.digests import digest_json
from plumbline.errors import ConfigError

_BASE, _COMPOSITE = "trident", "trident_composite"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatasetEntry(_Part):
    """A dataset: its reader, its folder, and the shares its labels must have before anything is computed on it."""

    reader: ReaderName
    root: Root = Field(description="a folder, or `planted:NAME` for a folder of the planted world")
    balance: dict[BalancedLabel, Shares] = Field(
        default_factory=dict,
        description="record column, or `COLUMN_gender` with the automatic label -> allowed share of each label",
    )
    filters: dict[SuiteName, FilterName] = Field(
        default_factory=dict, description="suite -> named row filter"
    )
    padding: float | None = Field(
        default=None, description="FairFace exists with 0.25 and 1.25: part of its identity"
    )


class EncoderEntry(_Part):
    """A checkpoint: `local-dir:PATH`, `hf-hub:ORG/NAME@COMMIT` or an open_clip `ARCHITECTURE/TAG`."""

    address: CheckpointAddress
    factors: dict[str, str] = Field(
        default_factory=dict, description="design factors, such as size or data source"
    )
    planted_source: SourceName | None = Field(
        default=None, description="for checkpoints of the planted world: their source"
    )


class AuditEntry(_Part):
    """One rectangle of the grid: these encoders on these datasets with these suites."""

    encoders: Literal["all"] | tuple[Slug, ...] = "all"
    datasets: Literal["all"] | tuple[Slug, ...] = "all"
    suites: SuiteNames = AUDITED_SUITES


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
    def _parts_fit(self) -> Audit:
        mistakes = [*self._undefined_names()]
        # Cells are made of defined names only.
        mistakes += [] if mistakes else self._composites_alone()
        if mistakes:
            raise ValidationError.from_exception_data("Audit", mistakes)
        return self

    def _undefined_names(self) -> Iterator[InitErrorDetails]:
        defined = {"encoders": tuple(self.encoders), "datasets": tuple(self.datasets)}
        wanted: list[tuple[tuple[str | int, ...], str, tuple[str, ...]]]
        wanted = [(("labeller",), self.labeller, defined["encoders"])]
        for i, entry in enumerate(self.audit):
            for key, names in defined.items():
                chosen = getattr(entry, key)
                if not chosen:
                    yield _mistake(("audit", i, key), [], f"`all`, or at least one of {', '.join(names)}")
                wanted += [
                    (("audit", i, key, j), name, names)
                    for j, name in enumerate(chosen if chosen != "all" else ())
                ]
        for location, name, names in wanted:
            if name not in names:
                yield _mistake(location, name, f"one of {', '.join(names)}{suggestion(name, names)}")

    def _composites_alone(self) -> Iterator[InitErrorDetails]:
        lacking = {
            cell for cell, suites in self.cells.items() if _COMPOSITE in suites and _BASE not in suites
        }
        for i, entry in enumerate(self.audit):
            if _COMPOSITE in entry.suites and lacking.intersection(self._rectangle(entry)):
                yield _mistake(
                    ("audit", i, "suites", entry.suites.index(_COMPOSITE)),
                    _COMPOSITE,
                    f"`{_BASE}` beside it for the same datasets and encoders: alone it has no results",
                )

    def _rectangle(self, entry: AuditEntry) -> list[tuple[str, str]]:
        datasets = self.datasets if entry.datasets == "all" else entry.datasets
        encoders = self.encoders if entry.encoders == "all" else entry.encoders
        return [(dataset, encoder) for dataset in datasets for encoder in encoders]

    @cached_property
    def cells(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return (dataset, encoder) -> suites, in file order; suites of overlapping entries are joined."""
        joined: dict[tuple[str, str], dict[str, None]] = {}
        for entry in self.audit:
            for cell in self._rectangle(entry):
                joined.setdefault(cell, {}).update(dict.fromkeys(entry.suites))
        return {cell: tuple(suites) for cell, suites in joined.items()}

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the resolved file: defaults filled in, where results are stored left out."""
        return digest_json(self.model_dump(mode="json", exclude={"storage": {"root"}, "title": True}))


def _mistake(location: tuple[str | int, ...], found: object, expected: str) -> InitErrorDetails:
    # An expectation may hold braces, which a template would replace: it goes in as a value.
    kind = PydanticCustomError("unfit", "{expected}", {"expected": expected})
    return InitErrorDetails(type=kind, loc=location, input=found)


def read_audit(path: Path) -> Audit:
    """Read and validate an audit file.

    Raises
    ------
    ConfigError
        If the file is absent, is not YAML, or any key in it is unknown, missing, repeated or of a wrong value. All
        mistakes are listed at once, each with line, key, found and expected.
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
    repeated = list(_repeated_keys(node))
    try:
        audit = Audit.model_validate(content)
    except ValidationError as error:
        raise _refusal(
            [*repeated, *(_describe(mistake, node) for mistake in error.errors())], path
        ) from error
    if repeated:
        raise _refusal(repeated, path)
    return audit


def _refusal(mistakes: list[str], path: Path) -> ConfigError:
    shown = "\n".join(mistakes)
    return ConfigError(f"the audit file has {len(mistakes)} mistake(s)\n{shown}", where=path)


def _repeated_keys(root: yaml.Node | None) -> Iterator[str]:
    """Say every key that its mapping has already: YAML's own reader lets the last one win without a word."""
    waiting: list[tuple[yaml.Node, tuple[str, ...]]] = [(root, ())] if root else []
    # An alias is the same node again, and may even lie within what it stands for.
    met: set[int] = set()
    while waiting:
        node, location = waiting.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        first: dict[str, int] = {}
        for name, (key, value) in _children(node):
            line, place = key.start_mark.line + 1, (*location, name)
            if name in first and isinstance(node, yaml.MappingNode):
                found = f"a second `{name}`; the first is on line {first[name]}"
                yield _said(line, ".".join(place), found, "every key once")
            first.setdefault(name, line)
            waiting.append((value, place))


def _describe(mistake: Any, node: yaml.Node | None) -> str:
    location = [
        part
        for part in mistake["loc"]
        if not str(part).startswith(("literal[", "tuple[", "function-")) and part != "[key]"
    ]
    kind, found = mistake["type"], mistake["input"]
    key = ".".join(str(part) for part in location) or "(whole file)"
    if kind == "extra_forbidden":
        known = _known_keys(location[:-1])
        expected = f"one of {', '.join(known)}{suggestion(str(location[-1]), known)}"
        found = f"unknown key `{location[-1]}`"
    elif kind == "missing":
        expected, found = f"the key `{location[-1]}`", "nothing"
    else:
        expected = mistake["msg"].removeprefix("Value error, ")
        found = "see expected" if isinstance(found, dict) else repr(found)
    return _said(_line(node, location), key, found, expected)


def _said(line: int, key: str, found: object, expected: str) -> str:
    return f"  - line {line}, key {key}\n      found:    {found}\n      expected: {expected}"


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
