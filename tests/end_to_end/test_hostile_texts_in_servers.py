"""Texts of an attacker in an audit stay text on the pages of Dagster and MLflow, in a real browser."""

import json
import shutil
import signal
import socket
import time
from urllib.parse import urlsplit

import dagster as dg
import numpy as np
import polars as pl
import pytest
from fault_server import completion, serving
from homes import make_home
from PIL import Image

from plumbline.catalog.own_suites import starter
from resources.checkout import PROJECT
from resources.served import asset_page
from resources.tracking import Tracking

MARK = "onerror"
EVIL = '"\'><img src=x onerror="window.ran=1;alert(1)"><svg onload=alert(2)>'
LINKED = "[y](javascript:alert(3)) ![](http://evil.example/a.png)"
SCRIPT = "</script><script>window.ran = 1</script>"
"""As a file: in a folder, since its name has a slash."""
N, START_S, PAGE_MS = 90, 120, 30_000


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return a home whose audit is full of an attacker's texts, and the ports at which its `plumbline ui` serves."""
    folder = tmp_path_factory.mktemp("hostile")
    with serving(lambda sent: completion(f"{EVIL} {LINKED} lazy, rude", system_fingerprint=EVIL)) as endpoint:
        home = _home(folder, endpoint.url)
        code, output = home.run("audit")
        assert code == 0, output
    ports = {name: _free_port() for name in ("dagster", "mlflow")}
    servers = home.start("ui", *(each for name, port in ports.items() for each in (f"--{name}-port", str(port))))
    try:
        for port in ports.values():
            _wait_for(port, servers)
        yield home, ports
    finally:
        servers.send_signal(signal.SIGINT)
        servers.communicate()


def _home(folder, endpoint):
    people = folder / "people"
    rng = np.random.default_rng(0)
    names = [f"{EVIL}.png".replace("/", "-"), f"{SCRIPT}.png", *(f"{i}.png" for i in range(2, N))]
    for name in names:
        (people / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).save(people / name)
    broken = f"broken {EVIL}.png"
    (people / broken).write_bytes(b"no picture")
    rows = {
        "photo": [*names, broken],
        "gender": [("woman", "man", EVIL)[i % 3] for i in range(N + 1)],
        "race": [(SCRIPT, LINKED)[i // 3 % 2] for i in range(N + 1)],
    }
    pl.DataFrame(rows).write_csv(people / "people.csv")
    mapped = {"index": "people.csv", "path": "photo", "columns": {"gender": "gender", "race": "race"}}
    words = starter("outcomes", "words").replace("idler", json.dumps(EVIL)).replace("amateur", json.dumps(LINKED))
    (folder / "words.yaml").write_text(words)
    checkpoint = folder / "<img src=x onerror=alert(4)>"
    shutil.copytree(PROJECT / "plumbline/world/checkpoints/small-bazaar-3k", checkpoint)
    design = {"lvlms": ["model"], "datasets": ["faces"], "subsets": ["race_gender"], "occupations": ["chef"]}
    return make_home(
        folder,
        title=f"{EVIL} {SCRIPT} {LINKED}",
        labeller=None,
        datasets={
            "staff": {"reader": "folder", "root": str(people), "map": mapped},
            "faces": {"reader": "socialcounterfactuals", "root": "planted:socialcounterfactuals"},
        },
        encoders={"one": {"address": f"local-dir:{checkpoint}"}},
        audit=[{"datasets": ["staff"], "suites": ["crime", "./words.yaml"]}],
        statistics={"resamples": 200, "permutations": 200},
        mitigations={},
        lvlms={"model": {"endpoint": {"urls": [endpoint], "model": EVIL}}},
        scorers={"offline": {"kind": "offline"}},
        generate=[{**design, "prompts": ["characteristics"], "instructions": ["none"], "seeds": [0]}],
    )


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(port, servers):
    deadline = time.monotonic() + START_S
    while not _answers(port):
        assert servers.poll() is None and time.monotonic() < deadline, "the servers did not start"
        time.sleep(0.2)


def _answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Visited:
    """A page of a browser, and all that it did that a page of text does not do."""

    def __init__(self, browser):
        self.page = browser.new_page(viewport={"width": 1400, "height": 900})
        self.page.set_default_timeout(PAGE_MS)
        self.hosts, self.dialogs = set(), []
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname))
        self.page.on("dialog", self._dismiss)

    def _dismiss(self, dialog):
        self.dialogs.append(f"{self.page.url}: {dialog.message}")
        dialog.dismiss()

    def open(self, address, *, awaited=MARK, unfolded=False):
        """Open a page, wait until it, or a frame in it, shows a text, and look for what is more than text."""
        self.page.goto("about:blank")
        self.page.goto(address)
        if unfolded:
            folded = self.page.get_by_text("[Show Markdown]")
            folded.or_(self.page.get_by_text(awaited)).first.wait_for()
            for one in folded.all():
                one.click()
                self._look(address, awaited)
                self.page.get_by_role("button", name="Close").click()
        if not unfolded or self.page.get_by_text(awaited).count():
            self._look(address, awaited)

    def _look(self, address, awaited):
        deadline = time.monotonic() + PAGE_MS / 1000
        while not any(awaited in frame.evaluate("document.body?.innerText ?? ''") for frame in self.page.frames):
            assert time.monotonic() < deadline, f"{address} does not show {awaited}"
            self.page.wait_for_timeout(100)
        found = [each for frame in self.page.frames for each in frame.evaluate(INJECTED)]
        assert found == [], address

    def nothing_happened(self):
        assert self.dialogs == []
        assert self.hosts - {None} == {"127.0.0.1"}
        assert self.page.context.pages == [self.page], "a page opened another"


# What would be there if the texts above were not text.
INJECTED = """() => [
    ...(window.ran ? ["a script ran"] : []),
    ...[...document.querySelectorAll(
        "img[src=x], [onerror], [onload], [href^='javascript:'], [src*='evil.example']"
    )].map((one) => one.outerHTML.slice(0, 200)),
]"""


@pytest.fixture
def visited(browser):
    """Return a page that notes what it does."""
    seen = Visited(browser)
    yield seen
    seen.page.close()


@pytest.mark.slow
def test_dagster_shows_an_attackers_texts_as_text(served, visited, monkeypatch):
    home, ports = served
    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        told = _told_of_an_attacker(instance)
    assert {asset for asset, _ in told} >= {"records", "quarantine", "outcome_metrics", "generations"}
    server = f"http://127.0.0.1:{ports['dagster']}"
    for asset, partition in sorted(told):
        visited.open(asset_page(asset, partition, server=server), unfolded=True)
    visited.nothing_happened()


def _told_of_an_attacker(instance):
    """Return the (asset, partition) whose metadata holds a text of the attacker."""
    logs = [
        entry.dagster_event.event_specific_data.materialization
        for run in instance.get_runs()
        for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    ]
    return {
        (told.asset_key.to_user_string(), told.partition)
        for told in logs
        if any(MARK in str(value.value) for value in told.metadata.values())
    }


@pytest.mark.slow
def test_mlflow_shows_an_attackers_texts_as_text(served, visited):
    home, ports = served
    tracking = Tracking(home.workspace)
    client, experiment = tracking.client(), tracking.experiment()
    server = f"http://127.0.0.1:{ports['mlflow']}/#/experiments/{experiment}"
    training = "?workflowType=machine_learning"
    visited.open(f"{server}/runs{training}", awaited="one · staff")
    visited.open(f"{server}/models{training}", awaited="Ready")
    for model in client.search_logged_models([experiment]):
        visited.open(f"{server}/models/{model.model_id}")
    for run in client.search_runs([experiment]):
        page, files = f"{server}/runs/{run.info.run_id}", client.list_artifacts(run.info.run_id)
        checkpoint = run.data.tags["plumbline.shows"] == "checkpoint"
        visited.open(f"{page}{training}", awaited=MARK if checkpoint else run.info.run_name)
        for file in files:
            if file.path.endswith(".csv"):
                visited.open(f"{page}/artifacts/{file.path}{training}", awaited="dataset")
            elif file.path.endswith(".html"):
                drawn = MARK if checkpoint else "Scorecard of audit"
                visited.open(f"{page}/artifacts/{file.path}{training}", awaited=drawn)
    visited.nothing_happened()
