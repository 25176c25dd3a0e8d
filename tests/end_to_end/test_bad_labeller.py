"""A labeller that is often wrong: told where nothing uses its labels, refused where something does."""

import dagster as dg
import pytest
import yaml
from homes import few_faces, make_home

MODEL = "small-control-3k"
ERROR = "the automatic gender is wrong on"
REMEDY = "Name another `labeller` in the audit file, or raise `thresholds.label_error`"


@pytest.mark.slow
def test_its_labels_block_only_what_uses_them(tmp_path, monkeypatch):
    home = make_home(
        tmp_path / "labelled",
        encoders={MODEL: {"address": f"local-dir:plumbline/world/checkpoints/{MODEL}"}},
        datasets={"faces": {"reader": "utkface", "root": few_faces(tmp_path / "faces")}},
        labeller=MODEL,
        # Less than any labeller errs.
        thresholds={"label_error": 0.0},
        statistics={"resamples": 200, "permutations": 200},
        mitigations={},
        audit=[{"suites": ["crime"]}],
    )
    code, output = home.run("status")
    assert code == 0 and "not audited yet; run `plumbline audit`" in output, output
    assert "refused" not in output and "not run" not in output

    code, output = home.run("audit")
    assert code == 0, output
    assert f"warning: check label_error: {ERROR}" in output and REMEDY in " ".join(output.split())
    assert home.workspace.lake.committed("outcome_metrics", partition=f"faces|{MODEL}")
    page = home.workspace.report.read_text("utf-8")
    # Nothing is declared of the balance of this dataset.
    assert "nothing is declared of it, so that nothing was checked" in page
    assert "expectations met over 0 rows" not in page and ">not asked for<" in page

    content = yaml.safe_load(home.workspace.audit_path.read_text())
    content["audit"] = [{"suites": ["crime", "trident"]}]
    home.workspace.audit_path.write_text(yaml.safe_dump(content))
    code, output = home.run("audit")
    assert code == 1, output
    assert f"check label_error failed: {ERROR}" in output and REMEDY in " ".join(output.split())
    assert "refused, since these checks have not passed: extended_records.label_error (failed)" in output
    last = output.splitlines()[-1]
    assert "The report on disk is of an earlier audit, not of this one" in last and str(home.workspace.report) in last

    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        balance = dg.AssetCheckKey(dg.AssetKey("records"), "label_balance")
        [found] = instance.event_log_storage.get_asset_check_execution_history(balance, limit=1)
    told = found.event.dagster_event.event_specific_data
    assert told.description == told.metadata["met"].value
    assert told.description == "nothing is declared of it, so that nothing was checked"
