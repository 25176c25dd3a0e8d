"""What a file of prompts must hold, so that a mistake in one is told with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from plumbline.errors import ConfigError

_SLOT = "{}"


def _one_slot(template: str) -> str:
    if template.count(_SLOT) != 1:
        raise ValueError("a template with one slot {} for the word")
    return template


class _Block(BaseModel):
    """Words of one category in one template."""

    model_config = ConfigDict(extra="forbid")
    category: str
    template: Annotated[str, AfterValidator(_one_slot)]
    words: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)


class _Head(BaseModel):
    """What every file says of itself; a family adds its keys."""

    id: str
    family: Literal["captions", "labels", "markedness", "outcomes", "perception", "templates", "trident"]
    version: int
    source: str


class _Listed(_Head):
    """A suite whose words are listed by category, and events that are categories together."""

    model_config = ConfigDict(extra="forbid")
    candidates: tuple[_Block, ...] = Field(min_length=1)
    events: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    skewed_events: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> _Listed:
        words = [word for block in self.candidates for word in block.words]
        twice = sorted({word for word in words if words.count(word) > 1})
        if twice:
            raise ValueError(f"every word once: {', '.join(twice)} stand(s) in several places")
        known = {block.category for block in self.candidates}
        unknown = sorted({category for of in self.events.values() for category in of} - known)
        if unknown:
            raise ValueError(
                f"events made of the categories {', '.join(sorted(known))}, not {', '.join(unknown)}"
            )
        lacking = sorted(set(self.skewed_events) - set(self.events))
        if lacking:
            raise ValueError(f"skewed_events that are events; {', '.join(lacking)} is none")
        return self


PUBLISHED = (
    "agency", "communion", "crime", "crime_pooled", "gender_labels", "markedness", "pata_captions", "perception",
    "templates", "trident",
)  # fmt: skip
"""The suites of the papers; those of one's own list their words, and name events of their own."""

_MODELS: dict[str, type[_Head]] = {"outcomes": _Listed, "labels": _Listed}
"""Family -> what its files hold; the published families that build prompts in other ways have the head checked."""


def read_suite_file(path: Path) -> dict[str, Any]:
    """Return the content of a file of prompts.

    Raises
    ------
    ConfigError
        If it is no YAML, or does not hold what its family needs: with file, key, what was found and expected.
    """
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            "a file of prompts is no YAML", where=path, found=" ".join(str(error).split())
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(
            "a file of prompts holds no keys", where=path, found=repr(content), expected="id, family, …"
        )
    model = _MODELS.get(str(content.get("family")), _Head)
    try:
        found = model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(
            "a file of prompts is not right",
            where=f"{path}, key {key}" if key else path,
            found=None if first["type"] == "missing" or not key else repr(first["input"])[:200],
            expected=first["msg"].removeprefix("Value error, "),
        ) from error
    if found.id != path.stem:
        raise ConfigError(
            "a suite is named as its file", where=f"{path}, key id", found=found.id, expected=path.stem
        )
    if path.stem not in PUBLISHED and found.family != "outcomes":
        raise ConfigError(
            "a suite of one's own lists words and events",
            where=f"{path}, key family",
            found=found.family,
            expected="outcomes; the other families are those of the published suites alone",
        )
    return content
