"""The command `plumbline`: in a checkout that of the pipeline, else what the package alone can do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from plumbline.commands.audits import audit_command, check_command, init_command, scorecard_command, suite_command
from plumbline.commands.terminal import console, errors, say_warnings_plainly
from plumbline.errors import PlumblineError
from plumbline.version import __version__

PIPELINE = (
    "diff", "explain", "export", "export-mitigation", "fetch", "plan", "report", "sample-annotations", "status", "ui",
    "verify",
)  # fmt: skip
"""Commands that need the pipeline."""


def _of_pipeline(command: str, hint: str) -> PlumblineError:
    return PlumblineError(
        f"{command} is a command of the pipeline, which is not part of the installed package",
        where=sys.prefix,
        expected="a checkout of the project: there `make audit` sets it up, and `.venv/bin/plumbline` has it",
        hint=hint,
    )


class _Commands(TyperGroup):
    """Commands of the package; of those of the pipeline it says where they are."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in PIPELINE:
            raise _of_pipeline(
                f"`plumbline {args[0]}`", f"the package itself has: {', '.join(self.list_commands(ctx))}"
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Plumbline audits the social bias of vision-language models, here in memory.

**Start here**: `plumbline init FOLDER --model CHECKPOINT` writes an audit file, `plumbline check` looks at data and
model in seconds, `plumbline audit` audits and writes the report below `.plumbline` of this folder, or `PLUMBLINE_HOME`.

The pipeline (Dagster, MLflow, mitigations, generative models, incremental audits with lineage) runs from a checkout of
the project: there `make audit` sets it up, and this command has all of it.
""",
)


def _print_version(asked: bool) -> None:
    if asked:
        console.print(__version__, highlight=False)
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
]


@app.callback()
def _options(version: VersionOption = False) -> None: ...


_COMMANDS: dict[str, Callable[..., None]] = {
    "init": init_command,
    "check": check_command,
    "suite": suite_command,
    "audit": audit_command,
    "scorecard": scorecard_command,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)


def run(commands: Callable[[], object]) -> None:
    """Run a command line; errors that have a remedy are shown without a traceback."""
    say_warnings_plainly()
    try:
        commands()
    except PlumblineError as error:
        errors.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


def _in_checkout() -> bool:
    return (Path(__file__).parents[2] / "orchestration" / "command_line.py").is_file()


def main() -> None:
    """Run the command of the checkout that this package lies in, or the package's own."""
    if _in_checkout():
        import_module("orchestration.command_line").main()
    else:
        run(app)


def mlflow_app() -> Any:
    """Return MLflow's server behind the pipeline's guard: MLflow finds this by its entry point `mlflow.app`."""
    if not _in_checkout():
        raise _of_pipeline("`mlflow server --app-name plumbline`", "`mlflow server` without it serves as MLflow does")
    return import_module("orchestration.guard").mlflow_app()
