"""A dataset whose checks have not passed is refused by hand and by the daemon alike; one that passed is not."""

import dagster as dg
import pytest
from homes import few_faces, make_home

from assets.gates import checks_not_passed
from assets.partitions import cell_key
from assets.sources import report_sources
from orchestration.definitions import build_definitions
from orchestration.instance import register_partitions
from orchestration.job_run import run_job

MODEL = "small-control-3k"


def failed_checks(workspace, dataset, *, of):
    return [check.description for check in checks_not_passed(workspace, dataset, of=of)]


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """Two datasets of the same images, one declared with a balance that it does not have, both read once.

    Gives definitions, instance, the daemon's cursor from before, and the outcome of the two runs.
    """
    folder = tmp_path_factory.mktemp("tried")
    faces = {"reader": "utkface", "root": few_faces(folder / "faces")}
    home = make_home(
        folder,
        datasets={
            "lopsided": {**faces, "balance": {"age_group": [0.3, 0.4]}},
            "even": {**faces, "balance": {"age_group": [0.1, 0.3]}},
        },
        encoders={MODEL: {"address": f"local-dir:plumbline/world/checkpoints/{MODEL}"}},
    )
    workspace = home.workspace
    definitions = build_definitions(workspace)
    with dg.DagsterInstance.ephemeral() as instance:
        register_partitions(instance, workspace)
        report_sources(instance, workspace)
        before = dg.evaluate_automation_conditions(definitions, instance)
        run_job(definitions, instance, "encoders", MODEL)
        reasons = {name: run_job(definitions, instance, "datasets", name)[1] for name in ("lopsided", "even")}
        yield definitions, instance, before.cursor, reasons, workspace


def test_the_blocking_check_stops_what_is_downstream_in_its_own_run(tried):
    *_, reasons, workspace = tried
    assert reasons["even"] is None
    assert "label_balance failed" in reasons["lopsided"]
    assert failed_checks(workspace, "even", of=("records", "extended_records")) == []
    assert failed_checks(workspace, "lopsided", of=("records",)) == ["records.label_balance (failed)"]
    assert "extended_records.label_error (not run)" in failed_checks(workspace, "lopsided", of=("extended_records",))


def test_the_daemon_never_requests_a_refused_cell(tried):
    definitions, instance, cursor, _, _ = tried
    result = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
    requested = {str(key) for key in result.get_requested_partitions(dg.AssetKey("image_embeddings"))}
    assert requested == {f"even|{MODEL}"}


def test_a_cell_run_started_by_hand_is_refused_with_the_reason(tried):
    definitions, instance, _, _, _ = tried
    _, reason = run_job(definitions, instance, "cells", cell_key("lopsided", MODEL))
    assert "refused, since these checks have not passed: records.label_balance (failed)" in reason
    _, reason = run_job(definitions, instance, "cells", cell_key("even", MODEL))
    assert reason is None


def test_a_verdict_on_older_records_opens_nothing(tried):
    *_, workspace = tried
    assert failed_checks(workspace, "even", of=("records",)) == []
    lake, stored = workspace.lake, workspace.lake.require("records", partition="even")
    records = lake.read_table("records", manifest=stored)
    lake.write_table("records", records.head(10), partition="even", details=stored.details)
    refused = failed_checks(workspace, "even", of=("records",))
    lake.write_table("records", records, partition="even", details=stored.details)
    assert len(refused) == 4 and all("not run on the newest materialisation" in reason for reason in refused)


def test_a_verdict_on_other_ranges_opens_nothing(tried):
    *_, workspace = tried
    before = failed_checks(workspace, "even", of=("extended_records",))
    assert before == []
    text = workspace.audit_path.read_text()
    workspace.audit_path.write_text(text.replace("- 0.1\n", "- 0.11\n", 1))
    after = failed_checks(workspace, "even", of=("extended_records",))
    workspace.audit_path.write_text(text)
    assert after and all("ranges that the audit file declares now" in reason for reason in after)
