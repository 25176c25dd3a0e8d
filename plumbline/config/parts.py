"""What every part of the audit file has: strictness, and how a mistake is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError


class Part(BaseModel):
    """A part of the audit file; the docstring below a key is its description in the documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


FROM_FILES = "from files"
"""Marks a key that is filled in from other files: it stands in no audit file."""

RENAMED_KEYS = {("lvlms", "twin"): "base_llm"}
"""Part of the audit file and key of an earlier version -> the key now."""


def with_current_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings of an earlier version with the keys of this one."""
    return {
        part: {
            name: {RENAMED_KEYS.get((part, key), key): value for key, value in entry.items()}
            if isinstance(entry, Mapping)
            else entry
            for name, entry in entries.items()
        }
        if isinstance(entries, Mapping)
        else entries
        for part, entries in settings.items()
    }


def written_keys(part: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a part that an audit file may have, with what is known of them."""
    return {name: field for name, field in part.model_fields.items() if FROM_FILES not in field.metadata}


def unfit(location: tuple[str | int, ...], value: object, expected: str) -> InitErrorDetails:
    """Return a mistake at a place below the part that is validated, for `ValidationError.from_exception_data`."""
    # An expectation may hold braces, which a template would replace: it goes in as a value.
    kind = PydanticCustomError("unfit", "{expected}", {"expected": expected})
    return InitErrorDetails(type=kind, loc=location, input=value)
