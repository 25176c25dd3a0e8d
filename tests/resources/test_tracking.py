"""Tracking: one run a cell, found again; a store that cannot be written costs no computation."""

import sqlite3

import pytest

from resources.places import PROJECT, Places
from resources.tracking import CELL_TAG, EXPERIMENT, TrackedCell, Tracking, TrackingUnavailable

CELL = TrackedCell(
    cell="c1",
    name="clip__fairface__abc",
    parameters={f"p{i}": "v" for i in range(120)},
    tags={"plumbline.dagster_run": "r1"},
    metrics={f"max_skew/{i}": float(i) for i in range(1200)},
    files={"metrics.csv": b"a,b\n", "figures/skew.png": b"png"},
)


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Tracking(Places(audit_path=PROJECT / "audit.yaml", home=tmp_path))


def test_a_cell_is_written_once_and_found_again(tracking):
    run, written = tracking.write(CELL)
    again, written_again = tracking.write(TrackedCell("c1", "x", tags={"plumbline.dagster_run": "r2"}))
    assert (written, written_again) == (True, False) and run == again
    found = tracking.client().get_run(run)
    assert (
        found.info.status == "FINISHED" and len(found.data.metrics) == 1200 and len(found.data.params) == 120
    )
    assert found.data.tags["plumbline.dagster_run"] == "r2"


def test_the_losses_of_a_training_are_a_curve(tracking):
    run, _ = tracking.write(TrackedCell("c3", "z", curves={"loss/debiasing": [0.5, 0.25, 0.125]}))
    found = tracking.client().get_metric_history(run, "loss/debiasing")
    assert [(point.step, point.value) for point in found] == [(0, 0.5), (1, 0.25), (2, 0.125)]


def test_another_cell_is_another_run(tracking):
    assert tracking.write(CELL)[0] != tracking.write(TrackedCell("c2", "y"))[0]


def test_a_run_that_died_halfway_is_never_taken_for_a_finished_one(tracking, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "_log", staticmethod(die))
        with pytest.raises(KeyboardInterrupt):
            tracking.write(CELL)
    run, written = tracking.write(CELL)
    assert written
    client = tracking.client()
    runs = client.search_runs(
        [client.get_experiment_by_name(EXPERIMENT).experiment_id], f"tags.`{CELL_TAG}` = 'c1'"
    )
    assert {r.info.status for r in runs} == {"FAILED", "FINISHED"} and run in {r.info.run_id for r in runs}


def test_a_store_that_cannot_be_written_is_said_and_loses_nothing(tracking, tmp_path, monkeypatch):
    tracking.write(CELL)
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        store.execute("ALTER TABLE experiments RENAME TO gone")
    with pytest.raises(TrackingUnavailable, match="experiments"):
        tracking.write(TrackedCell("c3", "z"))


def test_an_unreachable_server_is_said(tracking, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingUnavailable):
        tracking.write(CELL)
