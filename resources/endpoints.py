"""What endpoints said that they are, kept in the home: one that changed is a new version of the model."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upath import UPath

from plumbline.digests import digest_json
from plumbline.errors import PlumblineError
from plumbline.storage.atomic import commit_bytes

if TYPE_CHECKING:
    from plumbline.lvlm.endpoint_report import EndpointReport
    from resources.places import Places

_LOG = logging.getLogger(__name__)


def changed_endpoint(home: Path, model: str) -> str | None:
    """Return what tells the endpoint of now from the one that was met first; None while it is the same."""
    return _kept(home, model).get("changed")


def ask_endpoints(places: Places, models: Iterable[str]) -> None:
    """Ask the endpoints among these models what they are; of one that does not answer the old version stands."""
    from plumbline.lvlm.endpoint_report import ask_what_it_is

    for model in models:
        endpoint = places.lvlm_entry(model).endpoint
        if endpoint is None or not endpoint.follow:
            continue
        try:
            keep_report(places.home, model, ask_what_it_is(endpoint))
        except PlumblineError as error:
            stands = ", so that what it said before stands" if _kept(places.home, model) else ""
            _LOG.warning("%s did not say what it is%s: %s", model, stands, error)


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
    try:
        kept: dict[str, Any] = json.loads(_path(home, model).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return kept


def _path(home: Path, model: str) -> Path:
    return home / "endpoints" / f"{model}.json"
