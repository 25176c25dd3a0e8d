"""Tracking: one run a cell, found again; a store that cannot be written costs no computation."""

import base64
import contextlib
import json
import re
import shutil
import sqlite3
import threading
import zlib
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestration.delivery import set_damaged_store_aside
from plumbline.provenance.tracked_numbers import tracked_name
from resources.checkout import PROJECT
from resources.tracking import CELL_TAG, EXPERIMENT, TrackedCell, TrackedModel, Tracking, TrackingUnavailable
from resources.workspace import Workspace

MOST_IN_A_TAG = 5000
CELL = TrackedCell(
    cell="c1",
    name="clip__fairface__abc",
    parameters={f"p{i}": "v" for i in range(120)},
    tags={"plumbline.dagster_run": "r1"},
    metrics={f"max_skew/{i}": float(i) for i in range(1200)},
    files={"metrics.csv": b"a,b\n", "figures/skew.csv": b"c\n"},
)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """Return a store in which nothing is: the migrations of one take seconds."""
    home = tmp_path_factory.mktemp("fresh")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        Tracking(Workspace(audit_path=PROJECT / "audit.yaml", home=home)).client()
    with contextlib.closing(sqlite3.connect(home / "mlflow.db", isolation_level=None)) as store:
        # It notes where its files are.
        store.execute("DELETE FROM experiments")
    return home / "mlflow.db"


@pytest.fixture
def tracking(fresh, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(fresh, tmp_path)
    return Tracking(Workspace(audit_path=PROJECT / "audit.yaml", home=tmp_path))


@pytest.mark.parametrize("attribute", ["a//b", "/a", "a/", "../a", "a/./b", "…", "race", "age group"])
def test_mlflow_takes_the_number_of_an_attribute_of_any_name(tracking, attribute):
    names = [tracked_name(f"max_skew/crime/{each}") for each in (attribute, attribute.replace("/", "_"))]
    assert len(set(names)) == len({attribute, attribute.replace("/", "_")}), "two attributes are two numbers"
    run, written, _ = tracking.write(replace(CELL, metrics=dict.fromkeys(names, 1.0)))
    assert written and set(names) <= set(tracking.client().get_run(run).data.metrics)


def test_a_cell_is_written_once_and_found_again(tracking):
    run, written, _ = tracking.write(CELL)
    again, written_again, _ = tracking.write(replace(CELL, name="x", tags={"plumbline.dagster_run": "r2"}))
    assert (written, written_again) == (True, False) and run == again
    found = tracking.client().get_run(run)
    assert found.info.status == "FINISHED" and len(found.data.metrics) == 1200 and len(found.data.params) == 120
    assert found.data.tags["plumbline.dagster_run"] == "r2"


def test_of_two_processes_that_write_a_cell_at_once_one_run_is_left(tracking, monkeypatch):
    first, *_ = tracking.write(CELL)
    # The second looked before the first had begun.
    found, looked = Tracking._runs_of, iter([True])
    monkeypatch.setattr(Tracking, "_runs_of", staticmethod(lambda *asked: [] if next(looked, False) else found(*asked)))
    second, written, _ = Tracking(tracking._workspace).write(CELL)
    assert second == first and not written
    client = tracking.client()
    assert [run.info.run_id for run in client.search_runs([tracking.experiment()])] == [first]


def test_the_losses_of_a_training_are_a_curve(tracking):
    run, *_ = tracking.write(TrackedCell("c3", "z", curves={"loss/debiasing": [0.5, 0.25, 0.125]}))
    found = tracking.client().get_metric_history(run, "loss/debiasing")
    assert [(point.step, point.value) for point in found] == [(0, 0.5), (1, 0.25), (2, 0.125)]


def test_a_number_that_changed_in_mlflow_is_noticed_and_written_again(tracking):
    loss = {"loss/debiasing": [0.5, 0.25, -0.0]}
    cells = [replace(CELL, curves=loss), TrackedCell("c2", "y", headlines={"Crime labels by race": -0.0})]
    runs = {found.run: found.numbers for found in map(tracking.write, cells)}
    assert tracking.changed(runs) == {}
    first, second = runs
    with contextlib.closing(sqlite3.connect(tracking._workspace.home / "mlflow.db", isolation_level=None)) as store:
        for table in ("metrics", "latest_metrics"):
            store.execute(f"UPDATE {table} SET value = 8 WHERE run_uuid = ? AND key = 'max_skew/7'", [first])
    assert tracking.changed(runs) == {first: "has other numbers than the lake"}
    mended = tracking.write(cells[0])
    assert mended.written and mended.run != first and tracking.changed({mended.run: mended.numbers}) == {}
    assert tracking.changed({first: runs[first], "0" * 32: ""}) == {
        first: "was deleted", "0" * 32: "is not there any more",
    }  # fmt: skip
    (tracking._workspace.home / "mlflow.db").unlink()
    assert tracking.changed({second: runs[second]}) == {second: "is not there any more"}
    assert not (tracking._workspace.home / "mlflow.db").exists(), "to look makes no store"


def test_a_damaged_store_is_set_aside_with_all_that_is_in_it(tracking):
    run, _, numbers = tracking.write(TrackedCell("c2", "y", metrics={"a": 1.0}))
    workspace, store = tracking._workspace, tracking._workspace.home / "mlflow.db"
    assert set_damaged_store_aside(workspace) is None
    damaged = b"\xff" * 4096 + store.read_bytes()[4096:]
    store.write_bytes(damaged)
    with pytest.raises(TrackingUnavailable):
        Tracking(workspace).changed({run: numbers})
    aside = set_damaged_store_aside(workspace)
    assert aside is not None and aside.read_bytes() == damaged and not store.exists()


MODEL = TrackedModel("clip", "sha-of-weights", "fairface", "d" * 64, {"address": "here"})


def models(tracking):
    return tracking.client().search_logged_models([tracking.experiment()])


def test_a_checkpoint_is_one_model_with_its_headlines_on_each_dataset(tracking):
    cell = TrackedCell("c1", "clip · fairface", MODEL, headlines={"Crime labels by race": 0.5}, metrics={"a/b": 0.5})
    tracking.write(cell)
    tracking.write(replace(cell, cell="c2", model=replace(MODEL, dataset="utkface")))
    [model] = models(tracking)
    assert (model.name, model.status, model.params["address"]) == ("clip", "READY", "here")
    assert {(metric.key, metric.dataset_name, metric.value) for metric in model.metrics} == {
        ("Crime labels by race", dataset, 0.5) for dataset in ("fairface", "utkface")
    }
    run = tracking.client().get_run(runs_of(tracking, "c1")[0].info.run_id)
    assert [each.dataset.name for each in run.inputs.dataset_inputs] == ["fairface"]
    assert [each.model_id for each in run.inputs.model_inputs] == [model.model_id]


def test_other_weights_are_another_model_and_the_same_are_found_by_another_process(tracking, tmp_path):
    tracking.write(TrackedCell("c1", "a", model=MODEL))
    again = Tracking(Workspace(audit_path=PROJECT / "audit.yaml", home=tmp_path))
    again.write(TrackedCell("c2", "b", model=replace(MODEL, dataset="utkface")))
    assert len(models(tracking)) == 1
    again.write(TrackedCell("c3", "c", model=replace(MODEL, weights="other")))
    assert len(models(tracking)) == 2


def test_several_processes_may_write_of_a_dataset_and_a_checkpoint_at_once(tracking, tmp_path):
    others = [Tracking(Workspace(audit_path=PROJECT / "audit.yaml", home=tmp_path)) for _ in range(4)]
    tracking.experiment()
    threads = [
        threading.Thread(target=other.write, args=[TrackedCell(f"c{i}", "x", model=MODEL)])
        for i, other in enumerate(others)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(models(tracking)) == 1
    assert all(runs_of(tracking, f"c{i}")[0].info.status == "FINISHED" for i in range(4))


def test_nothing_is_written_of_a_cell_that_is_there(tracking, tmp_path):
    cell = replace(CELL, model=MODEL, tags={})
    tracking.write(cell)
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as store:
        before = list(store.iterdump())
        tracking.write(cell)
        tracking.experiment()
        assert list(store.iterdump()) == before


def test_a_run_of_an_earlier_form_is_replaced(tracking):
    client, experiment = tracking.client(), tracking.experiment()
    old = client.create_run(experiment, tags={CELL_TAG: "c1"}).info.run_id
    client.set_terminated(old)
    run, written, _ = tracking.write(CELL)
    assert written and [found.info.run_id for found in runs_of(tracking, "c1")] == [run]


def test_the_list_of_runs_shows_the_scorecard(tracking):
    tags = tracking.client().get_experiment(tracking.experiment()).tags
    views = {
        key.removeprefix("mlflow.sharedViewState."): json.loads(value) for key, value in tags.items() if "View" in key
    }
    shown = views[tracking.runs_page().partition("viewStateShareKey=")[2]]
    unpacked = json.loads(zlib.decompress(base64.b64decode(shown["state"].removeprefix("deflate;"))))
    assert shown["name"] == "Checkpoints" and len(json.dumps(shown)) < MOST_IN_A_TAG
    skew = "metrics.`Crime labels by race: percent more often`"
    smoothed = "metrics.`Crime labels by race: percent more often - smoothed`"
    assert unpacked["selectedColumns"][:2] == [skew, smoothed]
    assert unpacked["orderByKey"] == smoothed, "every run has it"
    assert unpacked["groupBy"]["groupByKeys"] == [{"mode": "param", "groupByData": "dataset"}]
    assert not any(re.search(r"-[0-9a-f]{6}`$", column) for column in unpacked["selectedColumns"]), (
        "a name lost letters"
    )


def test_another_cell_is_another_run(tracking):
    assert tracking.write(CELL)[0] != tracking.write(TrackedCell("c2", "y"))[0]


def runs_of(tracking, cell):
    client = tracking.client()
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    return client.search_runs([experiment], f"tags.`{CELL_TAG}` = '{cell}'")


@pytest.mark.parametrize("cut", ["log_batch", "log_artifacts", "set_terminated"])
def test_a_delivery_that_was_cut_leaves_one_whole_run_after_the_next(tracking, monkeypatch, cut):
    from mlflow import MlflowClient

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, cut, die)
        with pytest.raises(KeyboardInterrupt):
            tracking.write(CELL)
    assert [run.info.status for run in runs_of(tracking, "c1")] == ["RUNNING"]
    run, written, _ = tracking.write(CELL)
    assert written
    [found] = runs_of(tracking, "c1")
    assert (found.info.run_id, found.info.status, len(found.data.metrics)) == (run, "FINISHED", 1200)


def test_a_store_that_cannot_be_written_is_said_and_loses_nothing(tracking, tmp_path, monkeypatch):
    tracking.write(CELL)
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        store.execute("ALTER TABLE experiments RENAME TO gone")
    with pytest.raises(TrackingUnavailable, match="experiments"):
        tracking.write(TrackedCell("c3", "z"))


@pytest.mark.slow
def test_a_locked_store_is_said_and_takes_the_cell_when_it_is_free(tracking, tmp_path, monkeypatch):
    tracking.write(TrackedCell("c0", "first"))
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TrackingUnavailable, match="locked"):
            tracking.write(CELL)
        other.execute("ROLLBACK")
    monkeypatch.setattr("resources.tracking._REST_S", 0.0)
    assert tracking.write(CELL)[1] and len(runs_of(tracking, "c1")) == 1


@contextlib.contextmanager
def server(answer):
    """Serve every request with `answer(handler)`; gives the address and the list of requests."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer(self)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", asked
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def fails(handler):
    handler.send_response(500)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def hangs(handler):
    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    # Until the client gives up and hangs up.
    handler.connection.recv(1)


@pytest.mark.parametrize(("answer", "requests"), [(fails, 2), (hangs, 2), (None, 0)], ids=["500", "hangs", "down"])
def test_a_server_that_does_not_serve_is_said_and_then_left_alone(tracking, monkeypatch, answer, requests):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with server(answer or fails) as (address, asked):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address if answer else "http://127.0.0.1:9")
        for _ in range(3):
            with pytest.raises(TrackingUnavailable):
                tracking.write(CELL)
        assert len(asked) == requests


def test_a_server_may_not_hold_a_cell_for_minutes():
    from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT

    assert (1 + MLFLOW_HTTP_REQUEST_MAX_RETRIES.get()) * MLFLOW_HTTP_REQUEST_TIMEOUT.get() <= 60
