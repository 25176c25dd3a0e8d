"""The weekly audit: declared and off, each Sunday at three, the command that a person would run."""

import subprocess
import sys
import warnings
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._utils.schedules import is_valid_cron_string, schedule_execution_time_iterator

from orchestration import schedules
from orchestration.definitions import build_definitions
from resources.checkout import PROJECT
from resources.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    return Workspace(audit_path=tmp_path / "mine.yaml", home=tmp_path / "home")


@pytest.fixture(scope="module")
def schedule():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build_definitions(Workspace.from_environment()).resolve_schedule_def("weekly_audit")


def test_it_is_off_until_someone_switches_it_on(schedule):
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED


def test_it_is_due_each_sunday_at_three(schedule):
    cron, zone = schedule.cron_schedule, schedule.execution_timezone or "UTC"
    assert is_valid_cron_string(cron) and zone == "UTC"
    ticks = schedule_execution_time_iterator(datetime(2026, 11, 18, tzinfo=UTC).timestamp(), cron, zone)
    due = [next(ticks).strftime("%A %Y-%m-%d %H:%M") for _ in range(2)]
    assert due == ["Sunday 2026-11-22 03:00", "Sunday 2026-11-29 03:00"]


def test_it_asks_for_one_run_of_everything(schedule, workspace, monkeypatch):
    context = dg.build_schedule_context(scheduled_execution_time=datetime(2026, 11, 22, 3, tzinfo=UTC))
    [request] = schedule.evaluate_tick(context).run_requests
    assert schedule.job_name == "full_audit" and not request.asset_selection and not request.partition_key

    asked = []

    def run(command, **options):
        asked.append((command, options["cwd"]))
        return subprocess.CompletedProcess(command, 0, stdout="Report: here")

    monkeypatch.setattr(schedules.subprocess, "run", run)
    assert schedules.full_audit.execute_in_process(resources={"workspace": workspace}).success
    command = [sys.executable, "-m", "orchestration", "audit", "--config", str(workspace.audit_path)]
    assert asked == [(command, PROJECT)]


def test_an_audit_that_fails_fails_the_run_with_what_it_said(workspace):
    workspace.audit_path.write_text("labellr: x\n")
    result = schedules.full_audit.execute_in_process(resources={"workspace": workspace}, raise_on_error=False)
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    said = failure.user_failure_data.description
    assert "the audit ended with code 2" in said and "labellr" in said and "mine.yaml" in said
