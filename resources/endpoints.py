"""What endpoints said that they are, kept in the home: one that changed is a new version of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upath import UPath

from plumbline.digests import digest_json
from plumbline.errors import StorageError
from plumbline.storage.files import commit_bytes

if TYPE_CHECKING:
    from plumbline.generators.endpoint import EndpointReport


def changed_endpoint(home: Path, model: str) -> str | None:
    """Return what tells the endpoint of now from the one that was met first; None while it is the same."""
    return _kept(home, model).get("changed")


def was_asked(home: Path, model: str) -> bool:
    """Return whether an endpoint has ever said what it is."""
    return bool(_kept(home, model))


def keep_report(home: Path, model: str, report: EndpointReport) -> None:
    """Keep what an endpoint said.

    Several machines behind one address have several fingerprints: one that was seen before is no change.
    """
    kept = _kept(home, model)
    seen = kept.get("sources", []) if kept.get("entry") == report.entry else []
    if report.source in seen:
        return
    now: dict[str, Any] = {"entry": report.entry, "sources": [*seen, report.source], "changed": None}
    if kept:
        now["changed"] = digest_json([kept["changed"], now["entry"], now["sources"]])
    path = _path(home, model)
    path.parent.mkdir(parents=True, exist_ok=True)
    commit_bytes(UPath(path), json.dumps(now, indent=1).encode())


def _kept(home: Path, model: str) -> dict[str, Any]:
    path = _path(home, model)
    try:
        kept = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        kept = None
    if not isinstance(kept, dict) or not {"entry", "sources", "changed"} <= kept.keys():
        # Without it nobody knows which answers are of the model that answers now.
        raise StorageError(
            f"what was noted of the endpoint of {model} is damaged",
            where=path,
            hint="delete the file if the endpoint serves the model that gave the stored answers, else delete those too",
        )
    return kept


def _path(home: Path, model: str) -> Path:
    return home / "endpoints" / f"{model}.json"
