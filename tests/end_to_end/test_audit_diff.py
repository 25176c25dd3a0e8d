"""A checkpoint is replaced by a worse one: the audit after it says what changed, and what got worse first."""

import shutil

import polars as pl
import pytest
import yaml
from homes import Home

from plumbline.storage.lake import recorded_audits

MODEL = "small-control-3k"


@pytest.fixture(scope="module")
def replaced(resumed, tmp_path_factory):
    """Return a home after two audits, the second with biased weights in the place of unbiased ones, and its output."""
    before, _ = resumed
    home = Home(tmp_path_factory.mktemp("replaced") / "copy")
    shutil.copytree(before.folder, home.folder, ignore=shutil.ignore_patterns("quality"))
    content = yaml.safe_load(home.workspace.audit_path.read_text())
    content["encoders"][MODEL] = content["encoders"]["small-bazaar-3k"]
    home.workspace.audit_path.write_text(yaml.safe_dump(content, sort_keys=False))
    return home, home.run("audit")


def test_the_second_audit_names_what_got_worse_first(replaced):
    home, (code, output) = replaced
    assert code == 0, output
    lake = home.workspace.lake
    table = lake.read_table("audit_diff")
    assert set(table["model_new"]) == {MODEL}, "the other checkpoint is the same, and compared with nothing"
    crime = table.filter(
        pl.col("metric") == "parity_difference", pl.col("event") == "crime", pl.col("attribute") == "race"
    ).row(0, named=True)
    assert crime["compared"] == "paired" and crime["worse"] > 0.1 and crime["q"] < 0.05 and crime["ci_low"] > 0
    assert lake.require("audit_diff").details["causes"]["fairface|small-control-3k"] == ["the checkpoint"]
    flips = lake.read_table("audit_flips")
    assert flips.height > 50 and set(flips["model_new"]) == {MODEL}
    page = home.workspace.report.read_text("utf-8")
    assert page.index("worse than before by more than is allowed") < page.index("<h2>Models</h2>")
    assert page.count('src="data:image/jpeg;base64,') >= 5


def test_the_check_on_regressions_fails_and_says_which(replaced, monkeypatch):
    import dagster as dg

    home, _ = replaced
    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        found = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey("audit_diff"), "no_regression"), limit=2
        )
    newest, first = (record.event.dagster_event.event_specific_data for record in found)
    assert first.passed and not newest.passed
    assert f"parity_difference of {MODEL} on fairface (crime, crime" in newest.description


def test_the_command_compares_audits_and_checkpoints(replaced, tmp_path):
    home, _ = replaced
    page = tmp_path / "diff.html"
    code, output = home.run("diff", "newest~1", "newest", "--html", str(page))
    assert code == 1 and "Worse by more than is allowed" in output and page.stat().st_size > 5000
    assert "the checkpoint" in output
    code, output = home.run("diff", "newest", "newest~1")
    assert code == 0 and "Nothing is worse" in output, "going back is no regression"
    code, output = home.run("diff", "newest", "newest")
    assert code == 0 and "Every number is the same" in output
    code, output = home.run("diff", "small-bazaar-3k", MODEL)
    assert code in (0, 1) and f"small-bazaar-3k → {MODEL}" in output


def test_a_name_that_is_none_is_refused_with_those_there_are(replaced):
    home, _ = replaced
    code, output = home.run("diff", "nothing-such", "newest")
    newest = next(iter(recorded_audits(home.workspace.lake)))
    assert code == 2 and newest[:12] in output
    code, output = home.run("diff", MODEL, "newest")
    assert code == 2 and "a checkpoint is compared with a checkpoint" in output


def test_data_of_the_older_audit_that_was_deleted_is_noticed(replaced):
    home, _ = replaced
    lake = home.workspace.lake
    old = list(recorded_audits(lake))[1]
    rows = lake.read_table("audit_record", partition=old)
    row = rows.filter(pl.col("name") == "probe_logits", pl.col("partition") == f"fairface|{MODEL}").row(0, named=True)
    gone = lake.folder("probe_logits", f"fairface|{MODEL}") / f"{row['sha256']}.safetensors"
    kept = gone.read_bytes()
    gone.unlink()
    try:
        code, output = home.run("diff", "newest~1", "newest")
        assert code in (0, 1) and "a data file that its manifest names is gone" in output
    finally:
        gone.write_bytes(kept)
