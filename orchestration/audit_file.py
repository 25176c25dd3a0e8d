"""The audit file that a person names, as the workspace of a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resources.workspace import Workspace


def stored_workspace_of(config: Path | None) -> Workspace:
    """Return the workspace as `workspace_of`, for a command that reads its results.

    Raises
    ------
    StorageError
        If the store cannot be reached, or refuses these keys.
    """
    from plumbline.storage.files import require_reachable

    workspace = workspace_of(config)
    require_reachable(workspace.lake.root)
    return workspace


def workspace_of(config: Path | None) -> Workspace:
    """Return the workspace of the audit file that is named; from here on no hub is asked for anything."""
    from plumbline.commands.places import FOLDER, here

    # Servers and runs that are started from here read the same paths, wherever they run.
    os.environ[FOLDER] = str(here())
    if config is not None:
        os.environ["PLUMBLINE_AUDIT"] = str(config.resolve())
    # Nothing is downloaded in the middle of a run: only `plumbline fetch` goes to a hub.
    os.environ["HF_HUB_OFFLINE"] = "1"
    from resources.workspace import Workspace

    return Workspace.from_environment()
