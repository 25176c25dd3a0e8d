"""Mistakes in an audit file, said by line, key, found and expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from plumbline.config.audit import Audit
from plumbline.config.entries import (
    AuditEntry,
    DatasetEntry,
    DecodingSettings,
    EncoderEntry,
    Engine,
    GenerateEntry,
    Generation,
    Language,
    Limit,
    LvlmEntry,
    Statistics,
    Storage,
    Thresholds,
    Watch,
)
from plumbline.config.parts import suggestion
from plumbline.datasets.folder import ColumnMap
from plumbline.errors import ConfigError
from plumbline.http.settings import EndpointSettings
from plumbline.mitigations.registry import SETTINGS
from plumbline.scorers.kinds import SCORER_SETTINGS

# Parts whose entries are of several kinds -> the key that says which.
_TAGS = {"mitigations": "method", "scorers": "kind"}


def repeated_keys(root: yaml.Node | None) -> Iterator[str]:
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


def describe(mistake: Any, node: yaml.Node | None, models: Mapping[str, type[BaseModel]]) -> str:
    """Say one mistake of pydantic: line, key, found, expected.

    Parameters
    ----------
    mistake : mapping
        As `ValidationError.errors()` has it.
    node : yaml.Node or None
        The parsed file, for the line.
    models : mapping
        Place to the model that says which keys there are: "" for the whole file, the top-level key for its
        entries, `datasets.map` for a key below an entry.
    """
    location = [
        part
        for part in mistake["loc"]
        if not str(part).startswith(("literal[", "tuple[", "function-")) and part != "[key]"
    ]
    kind, found = mistake["type"], mistake["input"]
    known = _known_keys(location[:-1], models)
    tag = _TAGS.get(str(location[0])) if location else None
    if tag and len(location) > 2:
        # Pydantic names the chosen method or kind between the entry and its key; the file does not.
        del location[2]
    key = ".".join(str(part) for part in location) or "(whole file)"
    if kind == "extra_forbidden":
        expected = f"one of {', '.join(known)}{suggestion(str(location[-1]), known)}"
        found = f"unknown key `{location[-1]}`"
    elif kind == "missing":
        expected, found = f"the key `{location[-1]}`", "nothing"
    elif kind == "union_tag_not_found":
        expected, found = f"the key `{tag}`, which says what its other keys are", "nothing"
    elif kind == "union_tag_invalid":
        names = mistake["ctx"]["expected_tags"].replace("'", "").split(", ")
        found = mistake["ctx"]["tag"]
        key, expected = f"{key}.{tag}", f"one of {', '.join(names)}{suggestion(found, names)}"
        found = repr(found)
    else:
        expected = mistake["msg"].removeprefix("Value error, ")
        found = "see expected" if isinstance(found, dict) else repr(found)
    return _said(_line(node, location), key, found, expected)


def _said(line: int, key: str, found: object, expected: str) -> str:
    return f"  - line {line}, key {key}\n      found:    {found}\n      expected: {expected}"


def _known_keys(location: list[Any], models: Mapping[str, type[BaseModel]]) -> list[str]:
    names = [str(part) for part in location] or [""]
    below = models.get(f"{names[0]}.{names[-1]}")
    return list((below or models.get(names[0], models[""])).model_fields)


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


# --- Reading the audit file: validated, with mistakes reported by file, line, key, found and expected.

_BASE_KEY = "based_on"

PARTS: dict[str, type[BaseModel]] = {
    "": Audit, "datasets": DatasetEntry, "datasets.map": ColumnMap, "encoders": EncoderEntry, "audit": AuditEntry,
    "storage": Storage, "engine": Engine, "statistics": Statistics, "thresholds": Thresholds,
    "generate": GenerateEntry, "generation": Generation, "generation.decoding": DecodingSettings,
    "generation.limit": Limit, "language": Language, "language.judge": EndpointSettings,
    "lvlms": LvlmEntry, "lvlms.endpoint": EndpointSettings, "watch": Watch,
    **{f"mitigations.{name}": model for name, model in SETTINGS.items()},
    **{f"scorers.{name}": model for name, model in SCORER_SETTINGS.items()},
}  # fmt: skip


def read_audit(path: Path) -> Audit:
    """Read and validate an audit file.

    A file with `based_on: OTHER.yaml` says only what differs from the other: entries of mappings, such as one more
    dataset, are added or replaced by their key, everything else is replaced.

    Raises
    ------
    ConfigError
        If the file is absent, is not YAML, or any key in it is unknown, missing, repeated or of a wrong value. All
        mistakes are listed at once, each with line, key, found and expected.
    """
    text = _text(path)
    name = _loaded(text, path)[0].get(_BASE_KEY)
    base = path.parent / str(name) if name is not None else None
    return _parse(text, path, base, None if base is None else _text(base))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError("the audit file cannot be read", where=path, found=error.strerror) from error


# Every step of an audit reads the file anew, so that an edit is seen; equal text need not be parsed again.
@lru_cache(maxsize=4)
def _loaded(text: str, path: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    try:
        content, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError("the audit file is not valid YAML", where=path, found=error) from error
    if not isinstance(content, dict):
        raise ConfigError("the audit file must be a mapping", where=path, found=type(content).__name__)
    return content, node


@lru_cache(maxsize=4)
def _parse(text: str, path: Path, base: Path | None, base_text: str | None) -> Audit:
    content, node = _loaded(text, path)
    if base is not None and base_text is not None:
        if _BASE_KEY not in _loaded(base_text, base)[0]:
            # Its own mistakes are said with its own lines.
            _parse(base_text, base, None, None)
        content = _laid_over(content, _loaded(base_text, base)[0], path)
    repeated = list(repeated_keys(node))
    try:
        audit = Audit.model_validate(content)
    except ValidationError as error:
        said = (describe(mistake, node, PARTS) for mistake in error.errors())
        raise _refusal([*repeated, *said], path) from error
    if repeated:
        raise _refusal(repeated, path)
    return audit


def _laid_over(own: dict[str, Any], base: dict[str, Any], path: Path) -> dict[str, Any]:
    if _BASE_KEY in base:
        raise ConfigError(
            "an audit file can be based on one other, not on a chain of them",
            where=path,
            found=f"{own[_BASE_KEY]}, based on {base[_BASE_KEY]}",
            expected="a file that is complete in itself",
        )
    joined = dict(base)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        joined[key] = {**base[key], **value} if both else value
    del joined[_BASE_KEY]
    return joined


def _refusal(mistakes: list[str], path: Path) -> ConfigError:
    shown = "\n".join(mistakes)
    return ConfigError(f"the audit file has {len(mistakes)} mistake(s)\n{shown}", where=path)
