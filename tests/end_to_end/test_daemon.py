"""The real daemon: a checkpoint's weights are replaced, and nobody runs anything by hand."""

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import dagster as dg
import pytest
from homes import make_home

from plumbline.storage.lake import recorded_audits
from resources.checkout import PROJECT

CHECKPOINTS = PROJECT / "plumbline" / "world" / "checkpoints"
LONGEST_S = 1200


class Daemon:
    """`dagster-daemon run` on a home, with all sensors switched on.

    Parameters
    ----------
    home : Home
        After an audit, which sets the instance up.
    """

    def __init__(self, home) -> None:
        self.home = home
        self._environment = home.environment | {"DAGSTER_HOME": str(home.workspace.dagster_home)}
        self._log = home.folder / "daemon.log"
        on = self._command("dagster", "sensor", "start", "--start-all", "-w", "workspace.yaml")
        subprocess.run(on, cwd=PROJECT, env=self._environment, check=True, capture_output=True)

    def __enter__(self):
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command("dagster._daemon", "run", "-w", "workspace.yaml"), cwd=PROJECT,
                env=self._environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(self, *_) -> None:
        os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)

    @staticmethod
    def _command(module: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", module, *arguments]

    def wait_for(self, what: str, done) -> None:
        deadline = time.monotonic() + LONGEST_S
        while not done():
            assert self._process.poll() is None, self._log.read_text()[-4000:]
            assert time.monotonic() < deadline, f"{what} never came\n{self._log.read_text()[-4000:]}"
            time.sleep(2)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a home with two checkpoints of its own, after an audit by hand."""
    for name in ("mine", "other"):
        shutil.copytree(CHECKPOINTS / "small-control-3k", tmp_path / name)
    home = make_home(
        tmp_path,
        labeller="labels",
        encoders={
            "labels": {"address": "local-dir:plumbline/world/checkpoints/small-atlas-3k"},
            **{name: {"address": f"local-dir:{tmp_path / name}"} for name in ("mine", "other")},
        },
        statistics={"resamples": 500, "permutations": 500},
        mitigations={},
        audit=[{"encoders": ["mine", "other"], "suites": ["crime"], "mitigations": []}],
        watch={"folder": str(tmp_path / "dropped"), "like": "mine"},
    )
    (tmp_path / "dropped").mkdir()
    code, output = home.run("audit")
    assert code == 0, output
    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    return home


def finished(instance, job=None, *, after=None):
    """Runs that are over."""
    filters = dg.RunsFilter(job_name=job, created_after=after)
    return [r.dagster_run for r in instance.get_run_records(filters) if r.dagster_run.is_finished]


def at_rest(instance):
    return all(record.dagster_run.is_finished for record in instance.get_run_records())


def concluded(lake, audits):
    """Return whether there are so many audits, and the newest has been compared with the one before it."""
    newest, *before = recorded_audits(lake)
    return len(before) + 1 == audits and lake.require("audit_diff").details["audit_id"] == newest


def mlflow_runs(home, cell):
    """MLflow runs of a cell, over all audits."""
    dataset, model = cell.split("|")
    from mlflow import MlflowClient

    client = MlflowClient(home.workspace.tracking_uri)
    experiments = [found.experiment_id for found in client.search_experiments()]
    return client.search_runs(
        experiments, f"params.encoder = '{model}' and params.dataset = '{dataset}'", max_results=50
    )


@pytest.mark.slow
def test_a_replaced_checkpoint_is_audited_again_alone_and_a_dropped_one_is_added(home):
    lake = home.workspace.lake
    with dg.DagsterInstance.get() as instance, Daemon(home) as daemon:
        daemon.wait_for("the first look", lambda: finished(instance, "observe_sources"))
        (first,) = recorded_audits(lake)
        assert len(instance.get_run_records(dg.RunsFilter(job_name="observe_sources"))) == 1

        began = datetime.now(UTC)
        new = home.folder / "mine" / ".new"
        shutil.copy(CHECKPOINTS / "small-bazaar-3k" / "open_clip_model.safetensors", new)
        new.replace(home.folder / "mine" / "open_clip_model.safetensors")
        daemon.wait_for("the audit", lambda: concluded(lake, 2) and at_rest(instance))

        runs = finished(instance, after=began)
        assert {run.status for run in runs} == {dg.DagsterRunStatus.SUCCESS}
        computed = [
            (run.tags.get("dagster/partition"), asset.to_user_string())
            for run in runs
            for asset in run.asset_selection or ()
            if run.job_name != "observe_sources"
        ]
        # Nothing of another checkpoint, and nothing twice: what joins all cells once, after them.
        assert {partition for partition, _ in computed} == {None, "mine", "fairface|mine"}
        assert len(computed) == len(set(computed)), computed
        assert {("mine", "text_embeddings"), ("fairface|mine", "probe_logits"), (None, "metric_table")} <= set(computed)
        assert len(mlflow_runs(home, "fairface|mine")) == 2
        assert len(mlflow_runs(home, "fairface|other")) == 1
        second = next(iter(recorded_audits(lake)))
        made = lake.require("audit_diff")
        assert (made.details["audit_id"], made.details["old"]) == (second, first)
        assert set(lake.read_table("audit_diff")["model_new"]) == {"mine"}
        assert made.details["causes"]["fairface|mine"] == ["the checkpoint"]

        shutil.copytree(CHECKPOINTS / "small-bazaar-3k", home.folder / "dropped" / "fresh")
        daemon.wait_for("the new one", lambda: concluded(lake, 3) and at_rest(instance))
        assert ["fairface", "fresh"] in [cell[:2] for cell in lake.require("metric_table").details["current"]]
        assert len(mlflow_runs(home, "fairface|fresh")) == 1
        assert len(mlflow_runs(home, "fairface|mine")) == 2
