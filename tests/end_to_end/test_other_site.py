"""A page of another site, in a real Chromium, against the running servers of `plumbline ui`."""

import http.server
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from resources.checkout import PROJECT

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chromium")]

MUTATION = 'mutation{setConcurrencyLimit(concurrencyKey:"gpu",limit:0)}'
PAGE = """<!doctype html><title>waiting</title><body><script>
const dagster = "http://127.0.0.1:DAGSTER", mlflow = "http://127.0.0.1:MLFLOW", query = encodeURIComponent(`MUTATION`);
const said = {};
async function attempt(name, act) { try { said[name] = await act(); } catch (error) { said[name] = "failed"; } }
const element = (tag, source) => new Promise(done => {
  const made = document.createElement(tag);
  made.onload = () => done("loaded"); made.onerror = () => done("failed");
  made.src = source; document.body.append(made); setTimeout(() => done("no answer"), 4000);
});
(async () => {
  await attempt("image", () => element("img", `${dagster}/graphql?query=${query}`));
  await attempt("script", () => element("script", `${dagster}/graphql?query=${query}`));
  await attempt("fetch", async () => (await fetch(`${dagster}/graphql`, {method: "POST", mode: "no-cors",
    headers: {"content-type": "text/plain"}, body: JSON.stringify({query: `MUTATION`})})).type);
  await attempt("json", async () => (await (await fetch(`${dagster}/graphql`, {method: "POST",
    headers: {"content-type": "application/json"}, body: JSON.stringify({query: `MUTATION`})})).text()));
  const search = `${mlflow}/ajax-api/2.0/mlflow/experiments/search?max_results=5`;
  await attempt("read", async () => (await (await fetch(search)).text()));
  await attempt("mlflow", async () => (await fetch(`${mlflow}/ajax-api/2.0/mlflow/experiments/create`, {method: "POST",
    mode: "no-cors", body: JSON.stringify({name: "from another site"})})).type);
  await attempt("websocket", () => new Promise(done => {
    const opened = new WebSocket(`ws://127.0.0.1:DAGSTER/graphql`, "graphql-ws");
    opened.onopen = () => done("opened"); opened.onclose = () => done("closed"); }));
  const form = document.createElement("form"), frame = document.createElement("iframe");
  frame.name = form.target = "target"; form.method = "post"; form.action = `${dagster}/graphql?query=${query}`;
  document.body.append(frame, form); form.submit();
  await new Promise(done => setTimeout(done, 2000));
  await fetch("/said", {method: "POST", body: JSON.stringify(said)});
})();
</script>"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class OtherSite(http.server.BaseHTTPRequestHandler):
    page = b""
    said: dict | None = None

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(type(self).page)

    def do_POST(self):
        type(self).said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def graphql(port, query):
    return httpx.post(f"http://127.0.0.1:{port}/graphql", json={"query": query}, timeout=30).json()["data"]


def pools(port):
    listed = graphql(port, "{instance{concurrencyLimits{concurrencyKey limit}}}")["instance"]["concurrencyLimits"]
    return {pool["concurrencyKey"]: pool["limit"] for pool in listed}


@pytest.fixture
def servers(tmp_path, monkeypatch):
    monkeypatch.setenv("PLUMBLINE_HOME", str(tmp_path))
    ports = {"DAGSTER": free_port(), "MLFLOW": free_port()}
    command = [
        sys.executable, "-c", "from orchestration.command_line import main; main()", "ui",
        "--dagster-port", str(ports["DAGSTER"]), "--mlflow-port", str(ports["MLFLOW"]),
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if "Ctrl-C" in line:
                    break
            yield ports
        finally:
            process.send_signal(signal.SIGINT)


def test_a_page_of_another_site_reads_nothing_and_starts_nothing(servers, tmp_path):
    graphql(servers["DAGSTER"], 'mutation{setConcurrencyLimit(concurrencyKey:"gpu",limit:1)}')
    page = PAGE.replace("MUTATION", MUTATION)
    for name, port in servers.items():
        page = page.replace(name, str(port))
    OtherSite.page = page.encode()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OtherSite) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        # Another name that leads here: a rebound one, and another site at the same time.
        address = f"http://other.example:{site.server_port}/"
        browser = subprocess.Popen(
            [
                BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                f"--user-data-dir={tmp_path / 'browser'}", "--host-resolver-rules=MAP *.example 127.0.0.1", address,
            ],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 90
        while OtherSite.said is None and time.monotonic() < deadline:
            time.sleep(0.2)
        browser.terminate()
        browser.wait(10)
        site.shutdown()
    said = OtherSite.said
    assert said is not None, "the page did not run to its end"
    assert said["image"] == said["script"] == said["json"] == said["read"] == "failed"
    assert said["websocket"] == "closed"
    assert pools(servers["DAGSTER"])["gpu"] == 1
    experiments = httpx.post(
        f"http://127.0.0.1:{servers['MLFLOW']}/ajax-api/2.0/mlflow/experiments/search", json={"max_results": 50}
    ).json()["experiments"]
    assert "from another site" not in {one["name"] for one in experiments}
