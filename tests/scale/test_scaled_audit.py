"""An audit on an S3 root and a Dask cluster, as docs/scale.md says it, has the metric table of one machine."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from distributed import Client
from homes import make_home
from upath import UPath

from plumbline.storage import Lake
from resources.checkout import PROJECT

DOCUMENT = (PROJECT / "docs" / "scale.md").read_text("utf-8")
PORT = "8786"
STATISTICS = {"resamples": 500, "permutations": 500}
DEFAULT = yaml.safe_load((PROJECT / "audit.yaml").read_text("utf-8"))
LONGEST_S = 5400
"""A step on a worker starts a process of its own: the default audit has some five hundred."""
LONGEST_START_S = 300


def snippet(language: str, holding: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    (found,) = (block for block in blocks if holding in block)
    return found


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """Start the scheduler and the two workers of the document, and set the variables that it names."""
    port, started = free_port(), []

    def start(environment, *, more_workers=0):
        lines = snippet("bash", "dask scheduler").replace(PORT, port).splitlines()
        # A test before may have set it: a worker is told of the home alone.
        environment = {name: value for name, value in environment.items() if name != "DAGSTER_HOME"}
        for line in [*lines, *lines[-1:] * more_workers]:
            command = [str(Path(sys.executable).parent / "dask"), *shlex.split(line)[1:]]
            with (tmp_path / f"dask-{len(started)}.log").open("w") as log:
                process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=log, stderr=log)
            started.append(process)
        # An audit refuses a cluster whose workers are not there yet.
        with Client(f"tcp://127.0.0.1:{port}", timeout=LONGEST_START_S) as client:
            client.wait_for_workers(len(started) - 1, timeout=LONGEST_START_S)

    for line in snippet("bash", "PLUMBLINE_EXECUTOR=").replace(PORT, port).splitlines():
        if line.startswith("export "):
            for setting in shlex.split(line)[1:]:
                monkeypatch.setenv(*setting.split("=", 1))
    yield start
    for process in reversed(started):
        process.terminate()
        process.wait(timeout=60)


def audited(home):
    output, _ = (process := home.start("audit")).communicate(timeout=LONGEST_S)
    assert process.returncode == 0, output
    return home.table_sha256()


@pytest.mark.slow
@pytest.mark.parametrize("audit", [{"statistics": STATISTICS}, DEFAULT], ids=["small", "default"])
def test_a_scaled_audit_has_the_metric_table_of_one_machine(audit, s3, cluster, monkeypatch, tmp_path):
    alone = make_home(tmp_path / "alone", **audit)
    with monkeypatch.context() as context:
        for name in [name for name in os.environ if name.startswith("PLUMBLINE_")]:
            context.delenv(name)
        expected = audited(alone)
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    storage = yaml.safe_load(snippet("yaml", "storage:"))["storage"]
    storage["root"] += f"/{tmp_path.name}"
    shards = yaml.safe_load(alone.workspace.audit_path.read_text("utf-8"))["storage"]
    scaled = make_home(tmp_path / "scaled", **{**audit, "storage": {**shards, **storage}})
    cluster(scaled.environment)
    assert audited(scaled) == expected
    assert not (scaled.workspace.home / "lake").exists()
    made = {each.name: each for each in Lake(UPath(storage["root"])).all_committed()}
    assert {"records", "image_embeddings", "probe_logits", "metric_table"} <= set(made)
    assert {path.suffix for path in scaled.workspace.shards.root.rglob("*.*")} == {".json", ".safetensors"}


@pytest.mark.slow
def test_on_three_workers_cells_are_in_flight_at_once(cluster, monkeypatch, tmp_path):
    names = ("small-bazaar-3k", "small-control-3k", "small-atlas-3k")
    encoders = {name: {"address": f"local-dir:plumbline/world/checkpoints/{name}"} for name in names}
    audit = {"encoders": encoders, "mitigations": {}, "audit": [{"suites": ["crime"]}], "statistics": STATISTICS}
    with monkeypatch.context() as context:
        for name in [name for name in os.environ if name.startswith("PLUMBLINE_")]:
            context.delenv(name)
        expected = audited(make_home(tmp_path / "alone", **audit))
    scaled = make_home(tmp_path / "scaled", **audit | {"devices": "auto"})
    cluster(scaled.environment, more_workers=1)
    assert audited(scaled) == expected
    monkeypatch.setenv("DAGSTER_HOME", str(scaled.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        runs = instance.get_run_records(filters=dg.RunsFilter(job_name="cells"))
    assert {run.dagster_run.status for run in runs} == {dg.DagsterRunStatus.SUCCESS}
    at_once = max(sum(other.start_time <= run.start_time < other.end_time for other in runs) for run in runs)
    assert len(runs) == at_once == 3


def test_a_model_behind_the_endpoints_of_the_document_is_the_same_behind_one(tmp_path):
    lvlms = yaml.safe_load(snippet("yaml", "lvlms:"))["lvlms"]
    several = make_home(tmp_path / "several", lvlms=lvlms).workspace
    assert len(several.lvlm_entry("llava").endpoint.urls) == 2
    lvlms["llava"]["endpoint"]["urls"] = ["https://gpu-1:8000/v1"]
    one = make_home(tmp_path / "one", lvlms=lvlms).workspace
    assert several.lvlm_version("llava") == one.lvlm_version("llava")
    lvlms["llava"]["endpoint"]["model"] = "another"
    assert make_home(tmp_path / "another", lvlms=lvlms).workspace.lvlm_version("llava") != one.lvlm_version("llava")
