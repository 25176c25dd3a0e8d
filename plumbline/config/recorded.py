"""The audit file as a computation sees it whose reads are recorded: each setting counts where it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from plumbline.config.audit import Audit
from plumbline.recording import Recording

Path = list[Any]
_ENTRIES = ("datasets", "encoders", "lvlms")
"""Mappings of the audit file whose entries are read setting by setting; of others an entry counts as a whole."""


def recorded(audit: Audit, recording: Recording) -> Audit:
    """Return an audit file that notes every setting that is read of it, as kind `setting` with the way to it.

    What follows from several settings, such as `cells`, is noted as what it is, not as what it follows from.
    """
    return cast(Audit, _Model(audit, [], lambda path, value: recording.note("setting", *path, value=value)))


def setting(audit: Audit, path: Path) -> Any:
    """Return what stands in an audit file at the end of a noted way.

    Raises
    ------
    LookupError, AttributeError
        If there is no such thing in it.
    """
    value: Any = audit
    for step in path:
        if isinstance(step, str):
            value = getattr(value, step)
        elif "item" in step:
            value = value[_key(step["item"])]
        elif "has" in step:
            value = _key(step["has"]) in value
        elif "keys" in step:
            value = [*value]
        else:
            value = value(*step["call"], **{k: set(v) if isinstance(v, list) else v for k, v in step["with"].items()})
    return _jsonable(value)


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def _jsonable(value: Any) -> Any:
    """Return a value as JSON that keeps the order of entries, which tables and charts may follow; sets have none."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return [[_jsonable(key), _jsonable(each)] for key, each in value.items()]
    if isinstance(value, Set):
        return sorted((_jsonable(each) for each in value), key=repr)
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    return to_jsonable_python(value)


_Note = Callable[[Path, Any], None]


class _Model:
    """A part of the audit file, or an entry of it."""

    def __init__(self, model: BaseModel, path: Path, note: _Note) -> None:
        self._model, self._path, self._note = model, path, note

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Return the class of the part: what takes a part takes this in its place."""
        return type(self._model)

    def __getattr__(self, name: str) -> Any:
        kind = getattr(type(self._model), name, None)
        if self._path and callable(kind) and name != "model_dump":
            # A method of an entry reads what it needs by itself.
            return kind.__get__(self)
        value, path = getattr(self._model, name), [*self._path, name]
        if name == "model_dump" and self._path:
            return partial(self._dumped, value)
        if callable(value) and not isinstance(value, BaseModel):
            return self._calling(value, path)
        if isinstance(value, BaseModel) and not self._path:
            return _Model(value, path, self._note)
        if isinstance(value, Mapping) and not self._path:
            return _Mapping(value, path, self._note)
        if isinstance(value, frozenset):
            return _Set(value, path, self._note)
        self._note(path, _jsonable(value))
        return value

    def _dumped(self, dump: Callable[..., dict[str, Any]], **how: Any) -> dict[str, Any]:
        dumped = dump(**how)
        for name in dumped:
            self._note([*self._path, name], _jsonable(getattr(self._model, name)))
        return dumped

    def _calling(self, method: Callable[..., Any], path: Path) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            value = method(*arguments, **named)
            self._note([*path, {"call": list(arguments), "with": _sets_as_lists(named)}], _jsonable(value))
            return value

        return call

    def __eq__(self, other: object) -> bool:
        return bool(self._whole() == (other._whole() if type(other) is _Model else other))

    def __hash__(self) -> int:
        return hash(repr(self._whole()))

    def _whole(self) -> BaseModel:
        self._note(self._path, _jsonable(self._model))
        return self._model


def _sets_as_lists(named: dict[str, Any]) -> dict[str, Any]:
    return {name: sorted(each) if isinstance(each, Set) else each for name, each in named.items()}


class _Mapping(Mapping):
    """A mapping of the audit file, or one that follows from it."""

    def __init__(self, mapping: Mapping[Any, Any], path: Path, note: _Note) -> None:
        self._mapping, self._path, self._note = mapping, path, note

    def __getitem__(self, key: Any) -> Any:
        if key not in self._mapping:
            self._note([*self._path, {"has": key}], False)
            raise KeyError(key)
        value, path = self._mapping[key], [*self._path, {"item": key}]
        if isinstance(value, BaseModel) and self._path[-1] in _ENTRIES:
            return _Model(value, path, self._note)
        self._note(path, _jsonable(value))
        return value

    def __contains__(self, key: object) -> bool:
        self._note([*self._path, {"has": key}], key in self._mapping)
        return key in self._mapping

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def _keys(self) -> list[Any]:
        keys = list(self._mapping)
        self._note([*self._path, {"keys": True}], _jsonable(keys))
        return keys


class _Set(Set):
    """A set that follows from the audit file."""

    def __init__(self, members: frozenset[Any], path: Path, note: _Note) -> None:
        self._members, self._path, self._note = members, path, note

    def __contains__(self, member: object) -> bool:
        self._note([*self._path, {"has": member}], member in self._members)
        return member in self._members

    def __iter__(self) -> Iterator[Any]:
        self._note(self._path, _jsonable(self._members))
        return iter(self._members)

    def __len__(self) -> int:
        self._note(self._path, _jsonable(self._members))
        return len(self._members)
