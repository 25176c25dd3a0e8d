"""Asking the endpoints of an audit what they are, so that one that became another model is found out."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from plumbline.errors import PlumblineError
from resources.endpoints import keep_report, was_asked
from resources.workspace import Workspace

_LOG = logging.getLogger(__name__)


def ask_endpoints(workspace: Workspace, models: Iterable[str]) -> None:
    """Ask the endpoints among these models what they are; of one that does not answer the old version stands."""
    from plumbline.generators.endpoint import ask_what_it_is

    for model in models:
        endpoint = workspace.lvlm_entry(model).endpoint
        if endpoint is None or not endpoint.follow:
            continue
        try:
            keep_report(workspace.home, model, ask_what_it_is(endpoint))
        except PlumblineError as error:
            stands = ", so that what it said before stands" if was_asked(workspace.home, model) else ""
            _LOG.warning("%s did not say what it is%s: %s", model, stands, error)
