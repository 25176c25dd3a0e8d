"""What commands share: where they print to, and options that several have."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

# Piped output has no width of its own: 80 columns would break every row of a table.
console = Console(width=None if sys.stdout.isatty() else 120)
errors = Console(stderr=True)

RateOption = Annotated[
    float, typer.Option(min=0.001, max=0.999, help="Share of images with a harmful label, for what can be found.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Audit file. Default: `audit.yaml`.")]
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model", "--encoder", help="A checkpoint: a folder, `hf-hub:ORG/NAME` or `ARCHITECTURE/TAG`."),
]
ImagesOption = Annotated[Path | None, typer.Option("--images", help="A folder of images, with `--labels`.")]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="A table (CSV or Parquet) with a row an image; else the one in there.")
]
MapOption = Annotated[
    list[str] | None,
    typer.Option("--map", help="`gender=sex,race=origin`: attribute = column; `path=photo` where paths are."),
]
DatasetOption = Annotated[
    list[str] | None, typer.Option("--dataset", help="`READER=FOLDER`, such as `fairface=/data/fairface`.")
]
SuiteOption = Annotated[list[str] | None, typer.Option("--suite", help="`crime,agency`; all that apply when absent.")]


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

    from plumbline.visible import visible

    return escape(visible(text))
