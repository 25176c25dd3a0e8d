"""What every part of the audit file has: strictness, and how a mistake is reported."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict
from pydantic_core import InitErrorDetails, PydanticCustomError


def suggestion(name: object, known: Sequence[str]) -> str:
    """Return `; did you mean ...?` if a known name is close, else nothing."""
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


# --- What every part of the audit file is: frozen, and without keys that nobody reads; and how a mistake
# in it is said.


class Part(BaseModel):
    """A part of the audit file; the docstring below a key is its description in the documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def unfit(location: tuple[str | int, ...], value: object, expected: str) -> InitErrorDetails:
    """Return a mistake at a place below the part that is validated, for `ValidationError.from_exception_data`."""
    # An expectation may hold braces, which a template would replace: it goes in as a value.
    kind = PydanticCustomError("unfit", "{expected}", {"expected": expected})
    return InitErrorDetails(type=kind, loc=location, input=value)
