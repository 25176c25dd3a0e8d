"""An audit computes what is out of date, and nothing else; Dagster and MLflow agree with it."""

import shutil
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from homes import Home, forward_passes

from assets.partitions import cell_key
from orchestration.definitions import build_definitions


@pytest.fixture
def small(resumed, tmp_path):
    """Return a copy of a home with one suite that may be changed."""
    home = Home(tmp_path / "small")
    shutil.copytree(resumed[0].folder, home.folder, ignore=shutil.ignore_patterns("quality"))
    return home


@pytest.fixture
def home(request):
    """Return the small home, or that of the fixture that a test names."""
    return request.getfixturevalue(getattr(request, "param", "small"))


@pytest.fixture
def instance(home, monkeypatch):
    """Return the Dagster instance of the home."""
    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    with dg.DagsterInstance.get() as opened:
        yield opened


def edited(home, **changes):
    """Change settings of a home's audit file."""
    content = yaml.safe_load(home.workspace.audit_path.read_text())
    home.workspace.audit_path.write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))


def made_since(instance, runs_before):
    """Return the (asset, partition) that were computed in runs after those."""
    new = [run for run in instance.get_runs() if run.run_id not in runs_before]
    events = [instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION) for run in new]
    made = [entry.dagster_event.event_specific_data.materialization for log in events for entry in log]
    return {(each.asset_key.to_user_string(), str(each.partition or "")) for each in made}


def runs(instance):
    return {run.run_id for run in instance.get_runs()}


def stale_to_dagster(home, instance):
    """Return what of the audit Dagster itself calls stale or missing."""
    definitions = build_definitions(home.workspace)
    graph = definitions.resolve_asset_graph()
    with instance:
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        cells = [cell_key(*cell) for cell in home.workspace.audit.cells]
        found = {}
        for key in definitions.resolve_job_def("cells").asset_layer.selected_asset_keys:
            for cell in cells:
                if (status := resolver.get_status(key, cell)) is not StaleStatus.FRESH:
                    found[key.to_user_string(), str(cell)] = status
    return found


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


@pytest.mark.parametrize("home", ["copied"], indirect=True)
def test_a_word_more_in_a_suite_computes_what_reads_that_suite(home, instance):
    """The text alone goes through the model; families of other suites stay, and Dagster calls them fresh."""
    before = runs(instance)
    script = Path(__file__).with_name("with_a_word_more.py").read_text()
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
