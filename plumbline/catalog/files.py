"""Loader of the catalog's data files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from plumbline.errors import ConfigError, PlumblineError

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C where there is one: it takes a tenth of the time of the one in Python."""


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
    """Return the content of a YAML text."""
    return yaml.load(text, LOADER)  # noqa: S506 - one and the same, in C


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
