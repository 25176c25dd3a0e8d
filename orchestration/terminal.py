"""What all commands share: where they print to, and the audit file that a person names."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from resources.workspace import Workspace

# Piped output has no width of its own: 80 columns would break every row of a table.
console = Console(width=None if sys.stdout.isatty() else 120)
errors = Console(stderr=True)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Audit file. Default: `audit.yaml` of the checkout.")
]


def workspace_of(config: Path | None) -> Workspace:
    """Return the workspace of the audit file that is named; from here on no hub is asked for anything."""
    if config is not None:
        os.environ["PLUMBLINE_AUDIT"] = str(config.resolve())
    # Nothing is downloaded in the middle of a run: only `plumbline fetch` goes to a hub.
    os.environ["HF_HUB_OFFLINE"] = "1"
    from resources.workspace import Workspace

    return Workspace.from_environment()


def say_warnings_plainly() -> None:
    """Print what is logged as a warning or worse as its words alone, on stderr, whatever else this process imports.

    Python does so by itself until something is logged through the module `logging`, as open_clip does: from then on it
    would put level and module before every line.
    """
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        root.addHandler(handler)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on stderr that a command is at work, where that is a terminal: scripts and pipes see nothing of it."""
    if not errors.is_terminal:
        yield
        return
    with errors.status(what):
        yield


def say(text: object, *, style: str | None = None) -> None:
    """Print a line as it is: paths and messages may hold brackets, and are copied, so that they are not broken."""
    console.print(str(text), style=style, highlight=False, markup=False, soft_wrap=True)


def safe(text: object) -> str:
    """Return a text of a model or a file as it can stand in markup: nothing in it is obeyed, nothing hides."""
    from rich.markup import escape

    from plumbline.report.visible import visible

    return escape(visible(text))
