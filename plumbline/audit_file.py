"""Reading the audit file: validated, with mistakes reported by file, line, key, found and expected."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from plumbline.audit import Audit
from plumbline.audit_entries import (
    AuditEntry,
    DatasetEntry,
    EncoderEntry,
    Engine,
    Statistics,
    Storage,
    Thresholds,
    Watch,
)
from plumbline.audit_mistakes import describe, repeated_keys
from plumbline.datasets.column_map import ColumnMap
from plumbline.errors import ConfigError
from plumbline.generation_entries import (
    DecodingSettings,
    GenerateEntry,
    Generation,
    Language,
    Limit,
    LvlmEntry,
)
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.mitigation.entries import SETTINGS
from plumbline.scorers.kinds import SCORER_SETTINGS

_BASE_KEY = "based_on"

PARTS: dict[str, type[BaseModel]] = {
    "": Audit, "datasets": DatasetEntry, "datasets.map": ColumnMap, "encoders": EncoderEntry, "audit": AuditEntry,
    "storage": Storage, "engine": Engine, "statistics": Statistics, "thresholds": Thresholds,
    "generate": GenerateEntry, "generation": Generation, "generation.decoding": DecodingSettings,
    "generation.limit": Limit, "language": Language, "language.judge": EndpointSettings,
    "lvlms": LvlmEntry, "lvlms.endpoint": EndpointSettings, "watch": Watch,
    **{f"mitigations.{name}": model for name, model in SETTINGS.items()},
    **{f"scorers.{name}": model for name, model in SCORER_SETTINGS.items()},
}  # fmt: skip


def read_audit(path: Path) -> Audit:
    """Read and validate an audit file.

    A file with `based_on: OTHER.yaml` says only what differs from the other: entries of mappings, such as one more
    dataset, are added or replaced by their key, everything else is replaced.

    Raises
    ------
    ConfigError
        If the file is absent, is not YAML, or any key in it is unknown, missing, repeated or of a wrong value. All
        mistakes are listed at once, each with line, key, found and expected.
    """
    text = _text(path)
    name = _loaded(text, path)[0].get(_BASE_KEY)
    base = path.parent / str(name) if name is not None else None
    return _parse(text, path, base, None if base is None else _text(base))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError("the audit file cannot be read", where=path, found=error.strerror) from error


# Every step of an audit reads the file anew, so that an edit is seen; equal text need not be parsed again.
@lru_cache(maxsize=4)
def _loaded(text: str, path: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    try:
        content, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError("the audit file is not valid YAML", where=path, found=error) from error
    if not isinstance(content, dict):
        raise ConfigError("the audit file must be a mapping", where=path, found=type(content).__name__)
    return content, node


@lru_cache(maxsize=4)
def _parse(text: str, path: Path, base: Path | None, base_text: str | None) -> Audit:
    content, node = _loaded(text, path)
    if base is not None and base_text is not None:
        if _BASE_KEY not in _loaded(base_text, base)[0]:
            # Its own mistakes are said with its own lines.
            _parse(base_text, base, None, None)
        content = _laid_over(content, _loaded(base_text, base)[0], path)
    repeated = list(repeated_keys(node))
    try:
        audit = Audit.model_validate(content)
    except ValidationError as error:
        said = (describe(mistake, node, PARTS) for mistake in error.errors())
        raise _refusal([*repeated, *said], path) from error
    if repeated:
        raise _refusal(repeated, path)
    return audit


def _laid_over(own: dict[str, Any], base: dict[str, Any], path: Path) -> dict[str, Any]:
    if _BASE_KEY in base:
        raise ConfigError(
            "an audit file can be based on one other, not on a chain of them",
            where=path,
            found=f"{own[_BASE_KEY]}, based on {base[_BASE_KEY]}",
            expected="a file that is complete in itself",
        )
    joined = dict(base)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        joined[key] = {**base[key], **value} if both else value
    del joined[_BASE_KEY]
    return joined


def _refusal(mistakes: list[str], path: Path) -> ConfigError:
    shown = "\n".join(mistakes)
    return ConfigError(f"the audit file has {len(mistakes)} mistake(s)\n{shown}", where=path)
