"""A word more in a suite: the diff says so, and does not call all clear what it has not compared."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from homes import make_home

from resources.checkout import PROJECT

# Two audits in processes of their own; what they tell is tested piece by piece in tests/provenance and tests/assets.
pytestmark = pytest.mark.slow

UNKNOWN = "crime on fairface|small-control-3k, since its prompts changed"
ADDED = "the prompts of `crime` changed: +1 (a photo of a burglar)"


def with_a_word_more(home, *arguments):
    script = str(Path(__file__).with_name("with_a_word_more.py"))
    done = subprocess.run(
        [sys.executable, script, *arguments], cwd=PROJECT, env=home.environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a home after an audit with the suites as they are, and one with a word more in `crime`."""
    home = make_home(
        tmp_path_factory.mktemp("words"),
        encoders={"small-control-3k": {"address": "local-dir:plumbline/world/checkpoints/small-control-3k"}},
        mitigations={},
        statistics={"resamples": 200, "permutations": 200},
        audit=[{"suites": ["crime", "communion"]}],
    )
    for code, output in (home.run("audit"), with_a_word_more(home, "audit")):
        assert code == 0, output
    return home


def test_the_word_is_the_cause_and_the_suite_is_not_compared(home):
    lake = home.workspace.lake
    details, table = lake.require("audit_diff").details, lake.read_table("audit_diff")
    assert details["causes"] == {"fairface|small-control-3k": [ADDED]}, "the text space is as it was"
    assert details["not_compared"] == [UNKNOWN] and details["absent"] == []
    compared = dict(table.group_by("suite").agg(pl.col("compared").unique()).iter_rows())
    assert compared["crime"] == ["other prompts"]
    assert "paired" in compared["communion"] and "other prompts" not in compared["communion"]


@pytest.mark.parametrize("command", ["as it is", "with a word more"])
def test_the_command_does_not_say_that_all_is_well(home, command):
    """With either version of the suites at hand: the newest audit may not be of the one that is installed."""
    run = home.run if command == "as it is" else lambda *named: with_a_word_more(home, *named)
    code, output = run("diff", "newest~1")
    assert code == 3 and f"not compared: {UNKNOWN}" in output and ADDED in output
    assert "Nothing is worse" not in output and "Nothing that was compared is worse" in output
    assert "\\n" not in output and "materialise" not in output


def test_report_and_check_say_it_too(home, monkeypatch):
    assert UNKNOWN in home.workspace.report.read_text("utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        newest, first = (
            record.event.dagster_event.event_specific_data
            for record in instance.event_log_storage.get_asset_check_execution_history(
                dg.AssetCheckKey(dg.AssetKey("audit_diff"), "no_regression"), limit=2
            )
        )
    assert first.passed and not newest.passed and newest.severity == dg.AssetCheckSeverity.WARN
    assert newest.description == f"not compared: {UNKNOWN}"
