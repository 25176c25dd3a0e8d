"""The command that shows a suite of one's own as models are asked it, and begins a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestration.terminal import ConfigOption, say


def suite_command(
    file: Annotated[Path, typer.Argument(help="A file of prompts; with `--new` the one to write.")],
    new: Annotated[
        str | None,
        typer.Option(
            help="Write a commented starter of this kind: outcomes, perception, trident, markedness, templates, "
            "captions."
        ),
    ] = None,
    encoder: Annotated[
        list[str] | None,
        typer.Option(help="Count tokens with the tokenizer of this encoder: an id of the audit file, or an address."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every prompt, not a few of each category.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show a suite of your own as models will be asked it, and say what is wrong with it; nothing is computed.

    Prints the rendered prompts, the kind and which metrics read it, words to look at twice (`a` and `an`, words that
    stand twice), and how many tokens the prompts have to each encoder of the audit file, or to `--encoder`, against
    its limit, with what would be cut. Exits with 2 where an audit would refuse the file.
    """
    from orchestration.shown_suite import print_suite, write_starter

    if new is not None:
        write_starter(file, new)
        say(
            f"{file} is written; `plumbline suite {file}` shows it, `suites: [./{file.name}]` of an audit file asks it."
        )
        return
    if print_suite(file, config=config, encoders=encoder, every=every):
        raise typer.Exit(2)
