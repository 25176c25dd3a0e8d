"""The audit file's watched folder: what is dropped into it is audited as a model that the file already names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.audit import Audit

_OF_THE_TEMPLATE = ("family", "wording")
"""What a found checkpoint shares with the entry that it is audited like; design factors are facts of that one alone."""


def with_watched(audit: Audit, found: Mapping[str, str]) -> Audit:
    """Return the audit file with the checkpoints that were found, asked for wherever `like` is.

    Parameters
    ----------
    found : mapping of str to str
        Id -> folder. Ids that the audit file has itself are left out.
    """
    known = {*audit.encoders, *audit.lvlms}
    added = {name: folder for name, folder in found.items() if name not in known}
    if audit.watch is None or not added:
        return audit
    like = audit.watch.like
    kind, asking = ("encoders", "audit") if like in audit.encoders else ("lvlms", "generate")
    content: dict[str, Any] = audit.model_dump(mode="json", exclude_unset=True)
    template = content[kind][like]
    shared = {name: template[name] for name in _OF_THE_TEMPLATE if name in template}
    content[kind] |= {name: {"address": f"local-dir:{folder}", **shared} for name, folder in added.items()}
    for entry in content.get(asking, ()):
        if like in entry.get(kind, ()) and entry[kind] != "all":
            entry[kind] = [*entry[kind], *added]
    return type(audit).model_validate(content)
