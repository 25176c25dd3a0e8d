"""The command that reads data and models in seconds and says what an audit of them will meet."""

from __future__ import annotations

from functools import partial

import typer

from orchestration.audit_file import workspace_of
from plumbline.commands.terminal import ConfigOption, RateOption


def check_command(config: ConfigOption = None, rate: RateOption = 0.1) -> None:
    """Look at the data and models of the audit file, in seconds: nothing is embedded, no model is loaded.

    Says of each dataset how many images are listed and refused, by code, with examples; which groups there are, and
    which rows have none; what an audit of this size can detect; and of each model what is wrong with its files. Exits
    with 2 where the audit is bound to fail.
    """
    from plumbline.commands.checks import print_checks
    from plumbline.config.own import own_code_mistakes
    from resources.lvlms import wrong_models, wrong_scoring

    workspace = workspace_of(config)
    mistakes = [*own_code_mistakes(workspace.audit, workspace.dataset_root), *wrong_scoring(workspace)]
    if print_checks(
        workspace.audit, home=workspace.home, rate=rate, generators=partial(wrong_models, workspace), mistakes=mistakes
    ):
        raise typer.Exit(2)
