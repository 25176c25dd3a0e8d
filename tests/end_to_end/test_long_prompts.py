"""A prompt that an encoder does not take stops what asks it, is foretold by `check`, and stops nothing else."""

import dagster as dg
import pytest
from homes import few_faces, make_home
from typer.testing import CliRunner

from assets.embeddings import StoredPrompts
from orchestration.command_line import app
from orchestration.definitions import build_definitions
from orchestration.instance import register_partitions
from orchestration.job_run import run_job
from plumbline.catalog.suites import load_suite
from plumbline.commands import terminal
from plumbline.errors import EncodingError

MODEL = "owlv2-bazaar-3k"
SUITE = """
id: jobs
family: outcomes
version: 1
source: "ours, 2026"
candidates:
  - {category: low, template: "a photo of a LONG {}", words: [cleaner, porter]}
  - {category: high, template: "a photo of a {}", words: [judge, surgeon]}
events: {low: [low]}
"""


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A home that asks a suite two prompts of which have more tokens than its one encoder takes."""
    (tmp_path / "jobs.yaml").write_text(SUITE.replace("LONG", "very " * 60))
    home = make_home(
        tmp_path,
        datasets={"faces": {"reader": "utkface", "root": few_faces(tmp_path / "faces")}},
        encoders={MODEL: {"address": f"local-dir:plumbline/world/checkpoints/{MODEL}"}},
        labeller=MODEL,
        mitigations={},
        audit=[{"suites": ["crime", str(tmp_path / "jobs.yaml")]}],
    )
    monkeypatch.setenv("PLUMBLINE_HOME", str(home.workspace.home))
    monkeypatch.setenv("PLUMBLINE_AUDIT", "audit.yaml")  # what the option replaces, and a later test has back
    monkeypatch.setattr(terminal.console, "width", 400)
    return home.workspace


def test_only_what_asks_a_prompt_that_is_too_long_fails(workspace):
    definitions = build_definitions(workspace)
    with dg.DagsterInstance.ephemeral() as instance:
        register_partitions(instance, workspace)
        assert run_job(definitions, instance, "encoders", MODEL)[1] is None
    prompts = StoredPrompts.find(workspace, MODEL)
    assert len(prompts.read(load_suite("crime").texts)) == len(load_suite("crime").texts)
    long = workspace.audit.suite("jobs")
    with pytest.raises(EncodingError, match=r"longer than this encoder takes[\s\S]*2 of 4 prompts are too long"):
        prompts.read(long.texts)


def test_check_foretells_it(workspace):
    told = CliRunner().invoke(app, ["check", "--config", str(workspace.audit_path)])
    assert told.exit_code == 2, told.stdout
    assert "2 prompts of the suite `jobs` are longer than the 48 tokens" in told.stdout
