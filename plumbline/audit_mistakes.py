"""Mistakes in an audit file, said by line, key, found and expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from plumbline.suggestion import suggestion

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
