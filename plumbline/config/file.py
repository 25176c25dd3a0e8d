"""Reads and validates an audit file; errors point to the line and key, and say what was found and expected."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ValidationError

from plumbline.catalog.files import Place, foreign_yaml, key_lines, line_of, repeated_keys
from plumbline.catalog.own_suites import is_suite_file, read_own_suite
from plumbline.config.audit import Audit
from plumbline.config.entries import (
    AuditEntry,
    DatasetEntry,
    DecodingSettings,
    EncoderEntry,
    Engine,
    GenerateEntry,
    Generation,
    Language,
    Limit,
    LvlmEntry,
    OwnMetricEntry,
    OwnQuestion,
    Predictions,
    Statistics,
    Storage,
    Thresholds,
    Watch,
)
from plumbline.config.parts import RENAMED_KEYS, written_keys
from plumbline.datasets.folder import ColumnMap
from plumbline.digests import digest_file
from plumbline.errors import ConfigError, suggestion
from plumbline.generators.stored_answers import StoredAnswersSettings
from plumbline.http.settings import EndpointSettings
from plumbline.mitigations.registry import SETTINGS
from plumbline.own_code import admit, is_reference
from plumbline.scorers.kinds import SCORER_SETTINGS

# Parts with several kinds of entries -> the key that names the kind.
_TAGS = {"mitigations": "method", "scorers": "kind"}


def describe(mistake: Any, lines: Mapping[Place, int]) -> str:
    """Return one error of pydantic in words: line, key, found, expected.

    Parameters
    ----------
    mistake : mapping
        As `ValidationError.errors()` has it.
    lines : mapping
        Place of a key in the file -> its line.
    """
    location = [
        str(part)
        for part in mistake["loc"]
        if not str(part).startswith(("literal[", "tuple[", "function-")) and part != "[key]"
    ]
    kind, value = mistake["type"], mistake["input"]
    known = _known_keys(location[:-1])
    tag = _TAGS.get(location[0]) if location else None
    if tag and len(location) > 2:
        # Pydantic names the chosen method or kind between the entry and its key; the file does not.
        del location[2]
    key = ".".join(location) or "(whole file)"
    line = line_of(location, lines)
    if kind == "extra_forbidden":
        if renamed := RENAMED_KEYS.get((location[0], location[-1])):
            return _message(line, key, f"unknown key `{location[-1]}`", f"`{renamed}`, as the key is called now")
        expected = f"one of {', '.join(known)}{suggestion(location[-1], known)}"
        return _message(line, key, f"unknown key `{location[-1]}`", expected)
    if kind == "missing":
        return _message(line, key, "nothing", f"the key `{location[-1]}`")
    if kind == "union_tag_not_found":
        return _message(line, key, "nothing", f"the key `{tag}`, which says what its other keys are")
    if kind == "union_tag_invalid":
        names, name = mistake["ctx"]["expected_tags"].replace("'", "").split(", "), mistake["ctx"]["tag"]
        return _message(line, f"{key}.{tag}", repr(name), f"one of {', '.join(names)}{suggestion(name, names)}")
    shown = f"the keys {', '.join(map(str, value)) or '(none)'}" if isinstance(value, dict) else repr(value)
    return _message(line, key, shown, mistake["msg"].removeprefix("Value error, "))


def _message(line: int, key: str, found: str, expected: str) -> str:
    return f"  - line {line}, key {key}\n      found:    {found}\n      expected: {expected}"


def _known_keys(location: list[str]) -> list[str]:
    top, last = (location[0], location[-1]) if location else ("", "")
    model = PARTS.get(f"{top}.{last}") or PARTS.get(top) or PARTS[""]
    return list(written_keys(model))


_BASE_KEY = "based_on"

PARTS: dict[str, type[BaseModel]] = {
    "": Audit, "datasets": DatasetEntry, "datasets.map": ColumnMap, "encoders": EncoderEntry, "audit": AuditEntry,
    "storage": Storage, "engine": Engine, "statistics": Statistics, "thresholds": Thresholds,
    "generate": GenerateEntry, "generation": Generation, "generation.decoding": DecodingSettings,
    "generation.limit": Limit, "language": Language, "language.judge": EndpointSettings,
    "lvlms": LvlmEntry, "lvlms.endpoint": EndpointSettings, "watch": Watch,
    "metrics": OwnMetricEntry, "metrics.question": OwnQuestion,
    "lvlms.answers": StoredAnswersSettings, "encoders.predictions": Predictions,
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
    base_text = None if base is None else _text(base)
    named = [*_suite_files(text, path), *(() if base is None else _suite_files(str(base_text), base))]
    for content, folder in ((text, path.parent), *(((str(base_text), base.parent),) if base is not None else ())):
        admit(_references(_loaded(content, path)[0]), folder)
    suite_digests = tuple((file, digest_file(file) if file.is_file() else "") for file in dict.fromkeys(named))
    return _parse(text, path, base, base_text, suite_digests)


def _suite_files(text: str, path: Path) -> Iterator[Path]:
    """Yield the files of the suites that entries name by a path, which starts at the folder of the audit file."""
    for name in _suite_paths(_loaded(text, path)[0]):
        yield _beside(path, name)


def _suite_paths(content: Mapping[str, Any]) -> Iterator[str]:
    for entry in _entries(content):
        names = entry.get("suites")
        yield from (name for name in (names if isinstance(names, list) else ()) if _is_path(name))


def _entries(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = content.get("audit")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


_REFERRING = {"datasets": "reader", "metrics": "function", "scorers": "function"}
"""Part of the audit file -> the key of its entries that may name code of one's own."""


def _references(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an audit file names of its own code."""
    for part, key in _REFERRING.items():
        entries = content.get(part)
        for entry in entries.values() if isinstance(entries, dict) else ():
            name = entry.get(key) if isinstance(entry, dict) else None
            if isinstance(name, str) and is_reference(name):
                yield name


def _is_path(name: object) -> bool:
    return isinstance(name, str) and is_suite_file(name)


def _beside(path: Path, name: str) -> Path:
    return (path.parent / Path(name).expanduser()).resolve()


class _Broken(NamedTuple):
    """A suite by path that cannot be read: its name, and what is wrong in words."""

    name: str
    mistake: str


def _with_suites(
    content: dict[str, Any], path: Path, lines: Mapping[Place, int]
) -> tuple[dict[str, Any], list[_Broken]]:
    """Return the content of an audit file with the suites of other files in it, each named as its file.

    Those that cannot be read are left out, and returned with the lines that name them.
    """
    suites: dict[str, Any] = {}
    files: dict[str, Path] = {}
    broken: dict[str, _Broken] = {}
    for number, entry in enumerate(content["audit"] if _entries(content) else ()):
        names = entry.get("suites") if isinstance(entry, dict) else None
        for place, name in enumerate(names if isinstance(names, list) else ()):
            if not _is_path(name) or name in broken:
                continue
            file = _beside(path, name)
            try:
                if files.setdefault(file.stem, file) != file:
                    raise ConfigError("two suites have one name", found=file.stem, expected="names of their own")
                suites[file.stem] = suites.get(file.stem) or read_own_suite(file)
            except ConfigError as error:
                key = ("audit", str(number), "suites", str(place))
                mistake = f"line {line_of(key, lines)}, key {'.'.join(key)}: {name}: {error}"
                broken[name] = _Broken(file.stem, "  - " + mistake.replace("\n", "\n    "))
    if not files:
        return content, []
    entries = []
    for entry in content["audit"]:
        named = entry.get("suites") if isinstance(entry, dict) else None
        if isinstance(named, list):
            kept = [_beside(path, name).stem if _is_path(name) else name for name in named if name not in broken]
            entry = {**entry, "suites": kept} if kept else {k: v for k, v in entry.items() if k != "suites"}
        entries.append(entry)
    return {**content, "audit": entries, "own_suites": suites}, list(broken.values())


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        hint = "`plumbline init FOLDER` writes one; `--config FILE` names another"
        raise ConfigError("the audit file cannot be read", where=path, found=error.strerror, hint=hint) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        bad_byte = f"byte {error.object[error.start]:#04x} on line {line}"
        raise ConfigError("the audit file is not text in UTF-8", where=path, found=bad_byte) from error


# Every step of an audit reads the file anew, so that an edit is seen; equal text need not be parsed again.
@lru_cache(maxsize=4)
def _loaded(text: str, path: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    try:
        content, node = foreign_yaml(text)
    except yaml.YAMLError as error:
        complaint = re.sub(r"in \"<[a-z ]+>\", ", "at ", str(error))
        raise ConfigError(
            "the audit file is not valid YAML",
            where=path,
            found=" ".join(complaint.split()),
            expected="lines that begin with spaces, not with a tab" if _begins_with_tab(text, error) else None,
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(
            "the audit file must be a mapping",
            where=path,
            found="nothing" if content is None else f"a {type(content).__name__}",
            expected="keys with values, such as `datasets`, `encoders` and `audit`",
            hint="`plumbline init FOLDER` writes one for a folder of images",
        )
    return content, node


def _begins_with_tab(text: str, error: yaml.YAMLError) -> bool:
    """Return whether the line that YAML complains of begins with a tab, which YAML does not take for an indent."""
    mark, lines = getattr(error, "problem_mark", None), text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    return "\t" in line[: len(line) - len(line.lstrip())]


@lru_cache(maxsize=4)
def _parse(text: str, path: Path, base: Path | None, base_text: str | None, own: tuple[tuple[Path, str], ...]) -> Audit:
    """Return the audit file of a text; `own` are its suites by path with their digests, so that an edit is seen."""
    content, node = _loaded(text, path)
    mistakes: list[str] = []
    lines: dict[Place, int] = {(): 1}
    for place, line, first in repeated_keys(node):
        repeated = f"a second `{place[-1]}`; the first is on line {first}"
        mistakes.append(_message(line, ".".join(place), repeated, "every key once"))
    for place, line in key_lines(node):
        lines.setdefault(place, line)
    unknown = content.keys() & (Audit.model_fields.keys() - written_keys(Audit).keys())
    for name in sorted(unknown):
        known = f"one of {', '.join(written_keys(Audit))}"
        mistakes.append(_message(line_of((name,), lines), name, f"unknown key `{name}`", known))
    content = {name: value for name, value in content.items() if name not in unknown}
    content, broken = _with_suites(content, path, lines)
    mistakes += [each.mistake for each in broken]
    if base is not None and base_text is not None:
        if _BASE_KEY not in _loaded(base_text, base)[0]:
            # Its errors are reported with its own lines.
            _parse(base_text, base, None, None, own)
        content = _laid_over(content, _with_suites(_loaded(base_text, base)[0], base, {})[0], path)
        if "own_suites" in content:
            named = {name for entry in _entries(content) for name in entry.get("suites") or ()}
            content["own_suites"] = {name: suite for name, suite in content["own_suites"].items() if name in named}
    mistakes += _control_characters(content, lines)
    try:
        audit = Audit.model_validate(content)
    except ValidationError as error:
        described = [describe(mistake, lines) for mistake in error.errors()]
        # What is only missing because its file could not be read is no mistake of its own.
        mistakes += [
            one for one in described if not any(" key audit." in one and f"`{each.name}`" in one for each in broken)
        ]
    if mistakes:
        raise _refused(mistakes, path)
    return audit


def _refused(mistakes: list[str], path: Path) -> ConfigError:
    shown = "\n".join(mistakes)
    return ConfigError(f"the audit file has {len(mistakes)} mistake(s)\n{shown}", where=path)


def _control_characters(content: Any, lines: Mapping[Place, int], place: Place = ()) -> Iterator[str]:
    """Yield a mistake for every text that no file name or page can hold, such as one with a zero byte."""
    if isinstance(content, str):
        unseen = sorted({letter for letter in content if unicodedata.category(letter) == "Cc"} - {"\n", "\t"})
        if unseen:
            yield _message(
                line_of(place, lines), ".".join(place), f"the control character {unseen[0]!r}", "a text without one"
            )
    elif isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for name, value in items:
            yield from _control_characters(value, lines, (*place, str(name)))


def _laid_over(content: dict[str, Any], base: dict[str, Any], path: Path) -> dict[str, Any]:
    if _BASE_KEY in base:
        raise ConfigError(
            "an audit file can be based on one other, not on a chain of them",
            where=path,
            found=f"{content[_BASE_KEY]}, based on {base[_BASE_KEY]}",
            expected="a file that is complete in itself",
        )
    joined = dict(base)
    for key, value in content.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        joined[key] = {**base[key], **value} if both else value
    del joined[_BASE_KEY]
    return joined
