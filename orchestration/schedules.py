"""The weekly audit of everything, declared and off."""

import subprocess
import sys

import dagster as dg

from resources.checkout import PROJECT
from resources.workspace import Workspace

_SAID = 4000


@dg.op(description="Runs `plumbline audit` in a subprocess: every stage in order, one run per cell.")
def audit_everything(context: dg.OpExecutionContext, workspace: dg.ResourceParam[Workspace]) -> None:
    """Run the command that a person would run."""
    # Stages follow one another, and slices are known once datasets have been read: the command knows the order.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "orchestration", "audit", "--config", str(workspace.audit_path)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    output = done.stdout[-_SAID:]
    if done.returncode:
        raise dg.Failure(f"the audit ended with code {done.returncode}\n{output}", allow_retries=False)
    context.log.info(output)


@dg.job(description="Audit everything that the audit file names, as `plumbline audit` does.")
def full_audit() -> None:
    """Audit everything."""
    audit_everything()


weekly_audit = dg.ScheduleDefinition(
    name="weekly_audit",
    job=full_audit,
    cron_schedule="0 3 * * 0",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Runs the full audit each Sunday at 03:00 UTC, whether or not anything has changed.",
)
