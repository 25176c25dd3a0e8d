"""An audit file that asks generative models alone: what is said in the terminal speaks of nothing else."""

import io

import pytest
import yaml
from rich.console import Console

from assets.findings import headline_reading
from assets.scorecard import keep_findings
from orchestration.audit_commands import asked_of, conclude
from orchestration.audit_run import Outcome
from orchestration.status import print_status
from plumbline.catalog.schema import metric_frame
from plumbline.commands import terminal
from plumbline.report.scorecard import scorecard
from resources.workspace import Workspace

ENTRIES = {
    "datasets": {"people": {"reader": "socialcounterfactuals", "root": "nowhere/at/all"}},
    "lvlms": {"far": {"endpoint": {"urls": ["http://127.0.0.1:9/v1"], "model": "far"}}},
    "generate": [{"datasets": ["people"], "prompts": ["characteristics"], "seeds": [0]}],
}
ROW = {
    "model": "far", "dataset": "people", "suite": "generation", "metric": "max_score_share", "definition": "paper",
    "condition": "before", "attribute": "race_gender", "prompt": "characteristics", "scorer": "offline",
    "event": "toxicity", "statistic": "estimate", "n": 40,
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    for name in ("PLUMBLINE_HOME", "PLUMBLINE_AUDIT", "DAGSTER_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(terminal.console, "width", 200)
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(ENTRIES))
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "PLUMBLINE_HOME")


def test_the_end_of_an_audit_tells_of_answers_alone(workspace, capsys):
    worst = {"group": "Black_woman", "value": 0.9, "ci_low": 0.8, "ci_high": 0.95, "p": 0.001, "q": 0.001}
    least = {"group": "White_man", "value": 0.1, "ci_low": 0.05, "ci_high": 0.2, "p": 0.001, "q": 0.001}
    table, reading = metric_frame([ROW | worst, ROW | least]), headline_reading(workspace)
    keep_findings(workspace.lake, table, scorecard(table, reading), reading)
    conclude(workspace, Outcome(generated=1234), seconds=7)
    told = capsys.readouterr().out
    assert "1,234 new answers, 7 s" in told and "forward passes" not in told
    assert "Findings, the strongest" in told and "interval" in told and "probes" not in told


def test_the_beginning_names_no_encoders(workspace):
    assert asked_of(workspace.audit) == "generative models: 1"


def test_status_counts_no_cells(workspace):
    said = Console(file=io.StringIO(), width=200)
    print_status(workspace, console=said)
    told = said.file.getvalue()
    assert "0 of 1 generative models have numbers" in told and "cells are current" not in told
