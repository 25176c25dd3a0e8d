"""Names that a table has, imported when they are needed: classes of registries, and what the package promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


def import_class(place: str, *, below: str) -> Any:
    """Return the class at `module:Class`, whose module lies in the package `below`."""
    module, name = place.split(":")
    return getattr(import_module(f"{below}.{module}"), name)


def promised(name: str, places: Mapping[str, Sequence[str]]) -> Any:
    """Return a name of the package `plumbline` from the module that has it.

    Parameters
    ----------
    places : mapping of str to sequence of str
        Module below the package -> names.

    Raises
    ------
    AttributeError
        If no module has it.
    """
    for module, names in places.items():
        if name in names:
            return getattr(import_module(f"plumbline.{module}"), name)
    raise AttributeError(f"module `plumbline` has no attribute `{name}`")
