"""Names that a table has, imported when they are needed: classes of registries, and what the package promises."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from plumbline.errors import ConfigError


def import_class(place: str, *, below: str) -> Any:
    """Return the class at `module:Class`, whose module lies in the package `below`."""
    module, name = place.split(":")
    return getattr(import_module(f"{below}.{module}"), name)


def of_extra(module: str, extra: str, *, instead: str = "") -> Any:
    """Import a module that one of the extras installs.

    Parameters
    ----------
    instead : str
        What else would do, for the message.

    Raises
    ------
    ConfigError
        If it is not installed: with what installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"this needs the package {module}",
            found=f"not installed in {sys.prefix}",
            expected=f"the extra `{extra}` of Plumbline",
            hint=f"pip install 'plumbline[{extra}]', in a checkout "
            f".venv/bin/python -m pip install -c constraints.txt -e '.[{extra}]'{instead and f'; or {instead}'}",
        ) from error


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
