"""The command `plumbline`: thin over Dagster, so that whatever it does can be seen and repeated in the UI."""

import atexit
import gc
import os
import sys
from pathlib import Path

import typer

from orchestration.annotation_commands import sample_annotations_command
from orchestration.audit_commands import audit_command, report_command
from orchestration.check_commands import check_command
from orchestration.diff_commands import diff_command
from orchestration.explain_commands import explain_command
from orchestration.export_commands import export_command, export_mitigation_command, verify_command
from orchestration.fetch_commands import fetch_command
from orchestration.plan_commands import plan_command
from orchestration.view_commands import scorecard_command, status_command, ui_command
from plumbline.commands.audits import init_command, suite_command
from plumbline.commands.main import VersionOption, run
from plumbline.errors import PlumblineError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Plumbline audits the social bias of vision-language models.

**Start here**: `plumbline audit` audits what `audit.yaml` names (by default the planted world, whose true biases are
known) and ends with a table of findings and the path of a report. `plumbline ui` shows the same audit as a graph of
assets in Dagster and as runs in MLflow.

**Audit your own**: `plumbline init FOLDER --model CHECKPOINT --to mine.yaml` writes an audit file for a folder of
images, `plumbline check --config mine.yaml` looks at data and model in seconds, then `plumbline audit --config
mine.yaml`; `plumbline fetch ID` first, if the checkpoint is on a hub.
""",
)


@app.callback()
def _options(version: VersionOption = False) -> None: ...


# In the order in which `plumbline --help` lists them.
for _name, _command in {
    "init": init_command,
    "fetch": fetch_command,
    "scorecard": scorecard_command,
    "explain": explain_command,
    "export": export_command,
    "verify": verify_command,
    "check": check_command,
    "suite": suite_command,
    "plan": plan_command,
    "audit": audit_command,
    "ui": ui_command,
    "report": report_command,
    "export-mitigation": export_mitigation_command,
    "diff": diff_command,
    "sample-annotations": sample_annotations_command,
    "status": status_command,
}.items():
    app.command(_name)(_command)

# Objects until a collection of each generation.
_COLLECT_AFTER = (20_000, 20, 50)


def main() -> None:
    """Run the command line; errors that have a remedy are shown without a traceback."""
    # Modules make a million objects, nearly all of which stay: Python's own thresholds walk them over and over.
    gc.set_threshold(*_COLLECT_AFTER)
    atexit.register(gc.freeze)  # and would be walked once more at the end
    _import_nothing_from_here()
    run(_commands)


def _import_nothing_from_here() -> None:
    """Let no process that this one starts import what lies in the folder where the command runs, a dataset's say.

    Python looks there first for what is started with -c and -m. A checkout that runs without being installed is found
    by its folder still.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    checkout = str(Path(__file__).resolve().parents[1])
    if sys.path[:1] == [checkout]:
        known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([checkout, *filter(None, known)]))


def _commands() -> None:
    """Run a command; what the system says of a file of the home is told with place and remedy, wherever it is met."""
    try:
        app()
    except PlumblineError:
        raise
    except Exception:
        from orchestration.disk_errors import disk_errors_named
        from resources.workspace import Workspace

        with disk_errors_named(Workspace.from_environment()):
            raise
