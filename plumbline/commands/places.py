"""Where relative paths start, and where what a command makes goes."""

from __future__ import annotations

import os
from pathlib import Path

from plumbline.datasets.sources import HUB, dataset_folder
from plumbline.world.folders import PLANTED, ensure

FOLDER = "PLUMBLINE_FOLDER"
"""Variable with the folder that a command was started in, for the servers and runs that it starts elsewhere."""


def here() -> Path:
    """Return the folder where relative paths start: the one that the command was started in."""
    return Path(os.environ.get(FOLDER) or Path.cwd())


def from_here(path: str) -> Path:
    """Return where a path that the user names leads: a relative one starts `here`, `~` is the home folder."""
    return (here() / Path(path).expanduser()).resolve()


def default_home() -> Path:
    """Return the folder for everything that is stored: `PLUMBLINE_HOME`, or `.plumbline`."""
    return from_here(os.environ.get("PLUMBLINE_HOME", ".plumbline"))


def dataset_place(root: str, *, home: Path) -> Path:
    """Return the folder of a dataset whose `root` an audit file gives; one of the planted world is written first."""
    if root.startswith(PLANTED):
        return ensure(root.removeprefix(PLANTED), home / "world")
    return dataset_folder(root, home) if root.startswith(HUB) else from_here(root)
