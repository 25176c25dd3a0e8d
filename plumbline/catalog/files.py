"""The data files of the catalog, which lie beside these modules."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter

from plumbline.errors import ConfigError, PlumblineError

T = TypeVar("T")


def data_bytes(name: str) -> bytes:
    """Return the bytes of a data file, such as `person_words.yaml`."""
    return (files("plumbline.catalog") / name).read_bytes()


def data_text(name: str) -> str:
    """Return the text of a data file."""
    return data_bytes(name).decode("utf-8")


def data_yaml(name: str) -> Any:
    """Return the content of a YAML data file."""
    return yaml.safe_load(data_text(name))


def typed(kind: type[T], content: Any) -> T:
    """Return the content of a data file as a dataclass, nested ones included; keys without a field are dropped.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing or its value is of another type.
    """
    return TypeAdapter(kind).validate_python(content)


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
