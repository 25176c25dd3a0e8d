"""The command `plumbline audit` from an empty home to the report, again, and after being killed."""

import dagster as dg
import polars as pl
import pytest
from homes import few_faces, forward_passes, make_home

from assets.results import column_description
from orchestration.instance import OWNER
from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.catalog.suites import load_suite
from plumbline.metrics.registry import METRICS
from plumbline.report.findings import picked_findings


def test_an_audit_ends_with_findings_and_the_path_of_a_report(audited):
    home, code, output = audited
    assert code == 0, output
    assert "Findings" in output and str(home.workspace.report) in output
    page = home.workspace.report.read_text("utf-8")
    assert page.lower().startswith("<!doctype html>") and "default-src 'none'" in page


def test_every_row_carries_its_lineage(audited):
    home, _, _ = audited
    table = home.workspace.lake.read_table("metric_table")
    assert table.columns == list(METRIC_SCHEMA)
    for column in ("cell_id", "audit_id", "checkpoint_sha256", "suite_hash"):
        assert table[column].null_count() == 0, column
    # A text space is of no dataset.
    assert set(table.filter(pl.col("dataset_digest").is_null())["dataset"]) == {"text"}
    of_cells = table.filter(pl.col("dataset") != "text", pl.col("model") != "all")
    assert of_cells["cell_id"].n_unique() == 2 and table["audit_id"].n_unique() == 1
    assert set(table["metric"]) <= {*METRICS, "macro_accuracy_gain"}, "a metric that declares nothing"
    mixed = table.filter(pl.col("suite") == "trident_mixed")
    assert mixed.height and mixed["labeller_sha256"].null_count() == 0
    weights = {m: home.workspace.checkpoint(m).weights_sha256 for m in of_cells["model"].unique()}
    assert dict(of_cells.select("model", "checkpoint_sha256").unique().iter_rows()) == weights


def test_nothing_is_estimated_without_n_and_undefined_has_a_reason(audited):
    home, _, _ = audited
    table = home.workspace.lake.read_table("metric_table")
    assert table["n"].null_count() == 0
    undefined = table.filter(pl.col("value").is_nan() | pl.col("value").is_null())
    assert undefined["reason"].null_count() == 0
    estimates = table.filter(
        pl.col("metric").is_in(["max_skew", "harm_rate", "outcome_proportion"]) & pl.col("value").is_finite()
    )
    assert (estimates["ci_low"] <= estimates["value"]).all() and (estimates["value"] <= estimates["ci_high"]).all()


def test_the_planted_crime_association_shows_and_the_control_does_not(audited):
    home, _, _ = audited
    skew = home.workspace.lake.read_table("metric_table").filter(
        (pl.col("metric") == "max_skew")
        & (pl.col("definition") == "mean_over_pairs")
        & (pl.col("suite") == "crime")
        & (pl.col("attribute") == "race")
    )
    row = {r["model"]: r for r in skew.iter_rows(named=True)}
    assert row["small-bazaar-3k"]["value"] > row["small-control-3k"]["value"]
    assert row["small-bazaar-3k"]["ci_low"] > row["small-control-3k"]["value"]
    assert row["small-bazaar-3k"]["p"] < 0.001


def test_the_control_wears_no_evidence_of_what_was_not_planted_in_it(audited):
    home, _, _ = audited
    found = picked_findings(home.workspace.lake.read_table("metric_table"))
    planted = {("skew", "crime"), ("trident", "negative")}
    told = {model: set() for model in ("small-bazaar-3k", "small-control-3k")}
    for finding in found:
        for kind, what in planted:
            if finding.tone == "bias" and finding.topic[0] == kind and what in finding.topic:
                told[finding.model].add((kind, what))
    assert told == {"small-bazaar-3k": planted, "small-control-3k": set()}


def test_the_adjustment_raises_macro_accuracy_on_test_rows(audited):
    home, _, _ = audited
    gain = home.workspace.lake.read_table("metric_table").filter(
        (pl.col("metric") == "macro_accuracy_gain")
        & (pl.col("suite") == "trident")
        & (pl.col("condition") == "logit_adjustment")
        & (pl.col("statistic") == "mean")
        & (pl.col("model") == "small-bazaar-3k")
    )
    assert gain.height == 15
    assert gain["value"].mean() > 0
    assert gain.filter(pl.col("probe") == "thief")["value"].item() > 0.02


def test_quarantined_files_are_listed_with_reasons(audited):
    home, _, _ = audited
    quarantine = home.workspace.lake.read_table("quarantine", partition="fairface")
    records = home.workspace.lake.require("records", partition="fairface")
    assert records.rows + quarantine.height == records.details["listed"]
    assert quarantine["code"].n_unique() >= 6
    page = home.workspace.report.read_text("utf-8")
    assert all(path in page for path in quarantine["path"] if ".." not in path)


def test_one_mlflow_run_a_cell_and_condition_linked_both_ways(audited):
    from mlflow import MlflowClient

    home, _, _ = audited
    client = MlflowClient(home.workspace.tracking_uri)
    experiment = client.get_experiment_by_name("plumbline")
    runs = client.search_runs([experiment.experiment_id], "tags.`plumbline.shows` != 'audit'")
    assert sorted(run.data.tags["plumbline.condition"] for run in runs) == ["before"] * 2 + ["logit_adjustment"] * 2
    for run in runs:
        named, asked = run.info.run_name, run.data.params
        condition = run.data.tags["plumbline.condition"]
        assert named == f"{asked['encoder']} · fairface" + (f" · {condition}" if condition != "before" else "")
        assert asked["suite.crime"] == load_suite("crime").hash[:12]
    runs = [run for run in runs if run.data.tags["plumbline.condition"] == "before"]
    provenance = home.workspace.lake.read_table("provenance")
    assert {run.info.run_id for run in runs} == set(provenance["mlflow_run"])
    for run in runs:
        assert run.data.metrics and run.data.params["dataset"] == "fairface"
        assert run.data.tags["plumbline.dagster_run"] in set(provenance["dagster_run"])
        files = {item.path for item in client.list_artifacts(run.info.run_id)}
        assert {"metrics.parquet", "metrics.csv", "figures.html"} <= files
        assert "/plumbline/report.html#model=" in run.data.tags["mlflow.note.content"]
    shared = set(runs[0].data.metrics) & set(runs[1].data.metrics)
    assert any(key.startswith("max_skew") for key in shared)


def test_mlflow_compares_checkpoints_by_the_numbers_of_the_scorecard(audited):
    from resources.tracking import Tracking

    home, _, _ = audited
    tracking = Tracking(home.workspace)
    models = {each.name: each for each in tracking.client().search_logged_models([tracking.experiment()])}
    table = home.workspace.lake.read_table("metric_table").filter(
        metric="max_skew",
        definition="mean_over_pairs",
        event="crime",
        attribute="race",
        suite="crime",
        condition="before",
    )
    assert set(models) == set(table["model"])
    for row in table.to_dicts():
        model = models[row["model"]]
        assert model.tags["plumbline.checkpoint_sha256"] == row["checkpoint_sha256"]
        [found] = [metric for metric in model.metrics if metric.key == "Crime labels by race: percent more often"]
        assert found.dataset_name == "fairface" and found.value == pytest.approx(100 * row["value"], rel=1e-3)


def test_dagster_says_what_every_column_of_every_table_holds(audited):
    lake = audited[0].workspace.lake
    for manifest in lake.all_committed(without=("embeddings", "training", "builds")):
        if manifest.kind == "table":
            columns = lake.read_table(manifest.name, manifest=manifest).columns
            lacking = [column for column in columns if not column_description(manifest.name, column)]
            assert not lacking, manifest.name


def test_after_kill_9_the_next_audit_finishes_what_was_missing(audited, resumed, monkeypatch):
    home, (done, output, _) = resumed
    total = home.shards()
    assert 18 <= len(done) < len(total)
    assert "closed 1 run(s) whose process was gone" in output
    # Exactly what was not committed is computed: at most the one shard in flight is done twice.
    assert forward_passes(output) == sum(total) - sum(done)
    undisturbed, numbers = measured(audited[0]), measured(home)
    assert numbers.height > 100 and numbers.equals(undisturbed)

    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        live = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING], tags=OWNER)
        assert instance.get_runs(filters=live) == []
        failed = instance.get_runs(filters=dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        assert len(failed) == 1
        claimed = instance.event_log_storage.get_concurrency_info("gpu")
        assert claimed.active_slot_count == 0


def measured(home):
    """Return the numbers of the suite that both audits have, without what tells one audit from another."""
    table = home.workspace.lake.read_table("metric_table")
    # Wordings agree with those of other suites, which one of the audits lacks.
    compared = pl.col("metric") == "wording_agreement"
    own = table.filter(~compared, pl.col("model") != "all", suite="crime", condition="before")
    return own.drop("audit_id", "cell_id", "q", "smallest_detectable").sort(
        pl.struct(pl.exclude("value", "ci_low", "ci_high", "p"))
    )


def test_a_second_audit_computes_nothing_and_changes_no_byte(resumed):
    home, (_, first, (code, output, before)) = resumed
    assert code == 0, output
    assert forward_passes(first) > 0 and forward_passes(output) == 0
    assert "Nothing changed since the last audit" in output.splitlines()[1]
    assert home.table_sha256() == before
    provenance = home.workspace.lake.read_table("provenance")
    assert provenance["mlflow_run"].null_count() == 0


def test_an_audit_whose_only_dataset_is_out_of_balance_stops_before_it_embeds(tmp_path):
    root = few_faces(tmp_path / "faces")
    datasets = {"lopsided": {"reader": "utkface", "root": root, "balance": {"age_group": [0.3, 0.4]}}}
    home = make_home(tmp_path / "refused", datasets=datasets)
    code, output = home.run("audit")
    assert code == 2
    assert "this audit is bound to fail: nothing was embedded" in output
    assert "`datasets.lopsided.balance.age_group` asks for 30% to 40%" in output
    assert not home.workspace.lake.committed("text_embeddings", partition="small-bazaar-3k")
    assert "`datasets.lopsided.balance.age_group` asks for 30% to 40%" in home.run("check")[1]


@pytest.mark.parametrize("command", [["--help"], ["audit", "--help"], ["status"]])
def test_the_command_line_teaches(audited, command):
    home, _, _ = audited
    code, output = home.run(*command)
    assert code == 0, output
    assert {"--help": "fetch", "audit": "Interrupt", "status": "2 of 2 cells are current"}[command[0]] in output


def test_a_checkpoint_that_is_not_on_disk_is_an_error_before_anything_runs(tmp_path):
    home = make_home(tmp_path, encoders={"clip-b32": {"address": "ViT-B-32-quickgelu/openai"}}, labeller="clip-b32")
    code, output = home.run("audit")
    assert code == 2
    assert "plumbline fetch clip-b32" in output and "Traceback" not in output
    assert not (home.workspace.home / "lake").exists()
