"""The page of every key of the audit file, from the models that read it."""

from collections.abc import Iterator
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from plumbline.config.file import PARTS
from plumbline.config.parts import written_keys

_OPENING = """# The audit file

Generated from the models that read it. A file needs `encoders` or `lvlms`, `datasets`, and what is asked (`audit`,
`generate`); all else has a default. `based_on: OTHER.yaml` takes over what is not said again.
[What is audited](../inputs.md) has examples.
"""
_BOUNDS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}


def audit_file_reference() -> str:
    """Return the page, in Markdown: a table a part of the file."""
    return "\n".join([_OPENING, *(_part(name, model) for name, model in PARTS.items())])


def _part(name: str, model: type[BaseModel]) -> str:
    heading = f"## {name}" if name else "## The file as a whole"
    rows = [
        f"| `{field.alias or key}` | {_type_text(field.annotation, field)} | {_default(field)} "
        f"| {_cell(field.description or '')} |"
        for key, field in written_keys(model).items()
    ]
    # What is raised is for those who call the model.
    told = cleandoc(model.__doc__ or "").partition("\nRaises\n---")[0].partition("\nAttributes\n---")[0].rstrip()
    return "\n".join([heading, "", told, "", "| key | value | without it | meaning |", "|---|---|---|---|", *rows, ""])


def _type_text(annotation: Any, field: FieldInfo | None = None) -> str:
    """Return what a key may hold, in words."""
    bounds = " ".join(_bounds(field.metadata)) if field is not None else ""
    return f"{_kind(annotation)} {bounds}".strip()


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for each in metadata:
        if type(each) in _BOUNDS:
            sign, name = _BOUNDS[type(each)]
            yield f"{sign} {getattr(each, name)}"


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_kind(each) for each in arguments if each is not NoneType))
    if origin is dict:
        return f"mapping of {_kind(arguments[0])} to {_kind(arguments[1])}"
    if origin in (tuple, list):
        return "list of " + " or ".join(dict.fromkeys(_kind(each) for each in arguments if each is not ...))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "keys of its own"
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(annotation, "text")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be there"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or (not value and not isinstance(value, int | float)):
        return "–"
    if isinstance(value, dict) and any(isinstance(each, BaseModel) for each in value.values()):
        return ", ".join(f"`{name}`" for name in value)
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value) if len(value) <= 6 else "all of them"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
