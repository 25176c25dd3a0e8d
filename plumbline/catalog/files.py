"""Loader of the catalog's data files, and of YAML that other people wrote."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from plumbline.errors import ConfigError, PlumblineError

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

DEEPEST = 100
"""Levels that foreign YAML may nest."""
LARGEST = 200_000
"""Values of foreign YAML once its aliases are written out: nine levels of nine aliases each are 400 million."""
LONGEST_NUMBER = 1_000
"""Digits of a whole number of foreign YAML: Python takes quadratic time to print one, or refuses to."""

_WHOLE = re.compile(r"[-+]?(?:0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z")
_NUMBERS = {
    "tag:yaml.org,2002:int": _WHOLE,
    "tag:yaml.org,2002:float": re.compile(
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, in C where there is one: it takes a tenth of the time of the one in Python."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node; one that its tag does not allow is refused with its line."""
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, OverflowError, AttributeError, TypeError) as error:
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"this is no {kind}: {str(node.value)[:40]!r}", node.start_mark
            ) from error


def data_bytes(name: str) -> bytes:
    """Return the bytes of a data file, such as `person_words.yaml`."""
    return (files("plumbline.catalog") / name).read_bytes()


def data_text(name: str) -> str:
    """Return the text of a data file."""
    return data_bytes(name).decode("utf-8")


def data_yaml(name: str) -> Any:
    """Return the content of a YAML data file."""
    return parse_yaml(data_text(name))


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text of our own; of anybody's with `foreign_yaml`."""
    return yaml.load(text, _Loader)  # noqa: S506 - it is safe


# Of YAML 1.1: `59:59` is a number to base 60, which takes quadratic time, and which nobody means.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, _pattern, list("-+0123456789."))


def text_within(path: Path, most: int, *, errors: str = "strict") -> str:
    """Return the UTF-8 text of a file that somebody else made, of which no more than `most` bytes are read.

    Raises
    ------
    OSError
        If it cannot be read, is larger, or is no plain file: a device has no end, and a pipe waits.
    UnicodeDecodeError
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no plain file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes")
    return data.decode("utf-8", errors)


def foreign_yaml(text: str) -> tuple[Any, yaml.Node | None]:
    """Return the content of a YAML text that may be anything, and its nodes, which know their lines.

    Raises
    ------
    yaml.YAMLError
        If it is not YAML, a value is not what its tag says, or it is nested deeper than `DEEPEST` or larger than
        `LARGEST` once its aliases are written out; with the line.
    """
    _require_bounded(text)
    # Reading writes merged keys into the nodes: those that are returned are as they were written.
    return parse_yaml(text), yaml.compose(text, Loader=_Loader)


def _beyond(what: str, event: yaml.Event) -> yaml.YAMLError:
    at = event.start_mark
    return yaml.YAMLError(what if at is None else f"{what} at line {at.line + 1}, column {at.column + 1}")


def _require_bounded(text: str) -> None:
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]  # anchor and size so far
    for event in yaml.parse(text, _Loader):
        size = 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
            if len(open_nodes) > DEEPEST:
                raise _beyond(f"nested more than {DEEPEST} levels deep", event)
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_nodes.pop()
        elif isinstance(event, yaml.AliasEvent):
            anchor, size = None, sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            anchor = event.anchor
            number = event.implicit[0] or (event.tag or "").endswith(":int")
            if number and len(event.value) > LONGEST_NUMBER and _WHOLE.match(event.value):
                raise _beyond(f"a number of more than {LONGEST_NUMBER:,} digits", event)
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        outer, so_far = open_nodes[-1]
        open_nodes[-1] = (outer, so_far + size)
        if so_far + size > LARGEST:
            raise _beyond(f"more than {LARGEST:,} values once its aliases are written out", event)


Place = tuple[str, ...]
"""Keys that lead to a value of a file."""


def key_lines(root: yaml.Node | None) -> Iterator[tuple[Place, int]]:
    """Yield the place of every key and entry of a file, and its 1-based line."""
    waiting: list[tuple[yaml.Node | None, Place]] = [(root, ())]
    # An alias is the same node again, and may even lie within what it stands for.
    met: set[int] = set()
    while waiting:
        node, location = waiting.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        children: list[tuple[str, yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            children = [(str(key.value), key, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            children = [(str(i), value, value) for i, value in enumerate(node.value)]
        yield from (((*location, name), key.start_mark.line + 1) for name, key, _ in children)
        waiting += [(value, (*location, name)) for name, value in {name: value for name, _, value in children}.items()]


def repeated_keys(root: yaml.Node | None) -> list[tuple[Place, int, int]]:
    """Return each key that stands again in its mapping, with the lines of it and of the first.

    YAML's own reader lets the last one win without a word.
    """
    first: dict[Place, int] = {}
    again: list[tuple[Place, int, int]] = []
    for place, line in key_lines(root):
        if place in first:
            again.append((place, line, first[place]))
        first.setdefault(place, line)
    return again


def line_of(place: Sequence[Any], lines: Mapping[Place, int]) -> int:
    """Return the line of the deepest part of a place that stands in the file."""
    keys = tuple(map(str, place))
    return next((lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in lines), 1)


def typed(kind: type[T], content: Any) -> T:
    """Return the content of a data file as a dataclass, nested ones included; keys without a field are dropped.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing or its value is of another type.
    """
    return TypeAdapter(kind).validate_python(content)


def checked_yaml(
    path: Path | Traversable, model: type[Model], what: str, *, error: type[PlumblineError] = ConfigError
) -> Model:
    """Return a YAML file as a pydantic model.

    Raises
    ------
    PlumblineError
        If it is no YAML, or not what the model says: with the file, and key, found and expected of the first error. An
        item of a list that has a `name` goes by it.
    """
    content = None
    try:
        content = parse_yaml(path.read_text("utf-8"))
        return model.model_validate(content)
    except (yaml.YAMLError, UnicodeDecodeError) as mistake:
        raise error(f"{what} is not YAML", where=path, found=" ".join(str(mistake).split())) from mistake
    except ValidationError as mistake:
        first = mistake.errors()[0]
        key = ".".join(_places(first["loc"], content))
        raise error(
            f"{what} is not right",
            where=f"{path}, key {key}" if key else path,
            found=None if first["type"] == "missing" or not key else repr(first["input"])[:200],
            expected=first["msg"].removeprefix("Value error, "),
        ) from mistake


def _places(keys: tuple[int | str, ...], content: Any) -> Iterator[str]:
    """Yield the keys that lead to a value, an item of a list by its name."""
    for key in keys:
        content = dict(enumerate(content)) if isinstance(content, list) else content
        if isinstance(content, dict):
            content = content.get(key)
            yield str(content["name"] if isinstance(content, dict) and "name" in content else key)


def entry(known: Mapping[str, T], name: str, what: str, file: str, *, error: type[PlumblineError] = ConfigError) -> T:
    """Return the entry of a data file that has this name.

    Raises
    ------
    PlumblineError
        If there is none: `what`, with the file, the name and the names that there are.
    """
    if name not in known:
        raise error(what, where=f"plumbline/catalog/{file}", found=name, expected=", ".join(known))
    return known[name]
