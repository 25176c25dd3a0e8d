"""Classes that registries name, loaded when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_class(place: str, *, below: str) -> Any:
    """Return the class at `module:Class`, whose module lies in the package `below`."""
    module, name = place.split(":")
    return getattr(import_module(f"{below}.{module}"), name)
