"""An audit computes what is out of date, and nothing else; Dagster and MLflow agree with it."""

import signal
from pathlib import Path

import pytest
from homes import edited, forward_passes
from told_to_dagster import made_since, runs, stale_to_dagster


def test_nothing_is_done_where_nothing_changed(home, instance):
    before, table = runs(instance), home.table_sha256()
    code, output = home.run("audit")
    assert code == 0, output
    assert "Nothing changed since the last audit" in output.splitlines()[1]
    assert runs(instance) == before and home.table_sha256() == table and forward_passes(output) == 0


def test_a_title_writes_the_report_and_nothing_else(home, instance):
    before, table = runs(instance), home.table_sha256()
    edited(home, title="Another title")
    code, output = home.run("audit", "--dry-run")
    assert code == 0 and "audit_report: setting title" in output and "Another title" in output
    assert runs(instance) == before, "a dry run runs nothing"
    code, output = home.run("audit")
    assert code == 0, output
    made = {asset for asset, _ in made_since(instance, before)}
    assert made == {"audit_report"}
    assert home.table_sha256() == table
    assert "Another title" in home.workspace.report.read_text()


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("home", ["copied"], indirect=True)
def test_a_word_more_in_a_suite_computes_what_reads_that_suite(home, instance, killed):
    """The text alone goes through the model; families of other suites stay, and Dagster calls them fresh.

    Also where the audit was killed when a cell had been computed, before Dagster was told of what stayed.
    """
    before = runs(instance)
    script = Path(__file__).with_name("with_a_word_more.py").read_text()
    if killed:
        code, output = home.run("-c", script, "killed", "audit")
        assert code == -signal.SIGKILL, output
    code, output = home.run("-c", script, "audit")
    assert code == 0, output
    made = {asset for asset, _ in made_since(instance, before)}
    assert {"text_embeddings", "probe_logits", "outcome_metrics", "metric_table", "audit_report"} <= made
    assert not made & {"records", "extended_records", "image_embeddings", "ranking_metrics", "trident_metrics"}
    assert "valence_geometry" not in made  # of the words of another suite
    assert stale_to_dagster(home, instance) == {}


def test_what_is_asked_for_is_computed_and_what_is_none_is_named(home, instance):
    before, table = runs(instance), home.table_sha256()
    code, output = home.run("audit", "--force", "outcome_metric")
    assert code == 2 and "there is no such asset" in output and "did you mean `outcome_metrics`" in output
    code, output = home.run("audit", "--force", "outcome_metrics")
    assert code == 0, output
    made = made_since(instance, before)
    cells = {f"{dataset}|{model}" for dataset, model in home.workspace.audit.cells}
    assert {cell for asset, cell in made if asset == "outcome_metrics"} == cells
    assert "image_embeddings" not in {asset for asset, _ in made} and home.table_sha256() == table


def test_what_was_deleted_or_cut_short_is_computed_again(home):
    lake, table = home.workspace.lake, home.table_sha256()
    dataset, model = next(iter(home.workspace.audit.cells))
    manifest = lake.require("outcome_metrics", partition=f"{dataset}|{model}")
    path = Path(str(lake.folder("outcome_metrics", f"{dataset}|{model}"))) / f"{manifest.sha256}.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    code, output = home.run("audit", "--dry-run")
    assert code == 0 and "outcome_metrics: the file of outcome_metrics is not there as it was stored" in output
    code, output = home.run("audit")
    assert code == 0, output
    assert len(path.read_bytes()) == manifest.bytes and home.table_sha256() == table
