"""What an audit says of steps that fail: the cause, once, and what only follows from it as such."""

import io

import dagster as dg
import pytest
from rich.console import Console

from orchestration.audit_run import AuditRun
from orchestration.items import ItemRunner
from orchestration.job_run import run_job
from plumbline.errors import GenerationError

DEAD = GenerationError("no endpoint answers any more", where="http://127.0.0.1:9/v1")


@pytest.fixture
def run():
    return AuditRun(ItemRunner(None, None, None, None), console=Console(file=io.StringIO(), width=200))


def test_a_model_without_answers_is_not_measured_and_the_cause_is_named(run, monkeypatch):
    slices = {"dead": ["faces.a", "faces.b"], "alive": ["faces.a"], "unread": []}
    monkeypatch.setattr(run, "_slices", slices.get)
    run._failed("answers dead|faces.b", str(DEAD))
    assert run._answered(list(slices)) == ["alive"]
    assert run.outcome.failures["language dead"] == (
        "dead is not measured: 1 of its 2 slices failed, the first with answers dead|faces.b: "
        "no endpoint answers any more"
    )
    assert "materialise" not in run._console.file.getvalue()


def test_what_joins_nothing_names_the_first_failure(run):
    run._failed("answers dead|faces.a", str(DEAD))
    run._failed("findings", "no cell of this audit has numbers")
    run._say_first_failure()
    last = run._console.file.getvalue().splitlines()[-1].strip()
    assert last == "first failure: answers dead|faces.a: no endpoint answers any more"


def test_findings_that_fail_alone_have_no_other_cause(run):
    run._failed("findings", "the disk is full")
    said = run._console.file.getvalue()
    run._say_first_failure()
    assert run._console.file.getvalue() == said


@dg.asset
def refuses() -> None:
    raise dg.Failure("no cell of this audit has numbers", allow_retries=False)


@dg.asset
def ends() -> None:
    raise DEAD


@dg.asset
def breaks() -> None:
    raise ValueError("not foreseen")


@pytest.mark.parametrize(
    ("asset", "said"),
    [(refuses, "no cell of this audit has numbers"), (ends, str(DEAD)), (breaks, "ValueError: not foreseen")],
)
def test_a_failure_is_said_once_in_the_words_of_the_step(asset, said):
    definitions = dg.Definitions([asset], jobs=[dg.define_asset_job("one", [asset.key.to_user_string()])])
    with dg.DagsterInstance.ephemeral() as instance:
        _, reason = run_job(definitions, instance, "one", None)
    assert reason == said
