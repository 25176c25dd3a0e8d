"""The command that reads data and models in seconds and says what an audit of them will meet."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestration.terminal import ConfigOption, workspace_of


def check_command(
    config: ConfigOption = None,
    rate: Annotated[
        float, typer.Option(min=0.001, max=0.999, help="Share of images with a harmful label, for what can be found.")
    ] = 0.1,
) -> None:
    """Look at the data and models of the audit file, in seconds: nothing is embedded, no model is loaded.

    Says of each dataset how many images are listed and refused, by code, with examples; which groups there are, and
    which rows have none; what an audit of this size can detect; and of each model what is wrong with its files. Exits
    with 2 where the audit is bound to fail.
    """
    from orchestration.checked import print_checks

    if print_checks(workspace_of(config), rate=rate):
        raise typer.Exit(2)
