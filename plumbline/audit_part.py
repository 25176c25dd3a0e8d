"""What every part of the audit file is: frozen, and without keys that nobody reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of the audit file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
