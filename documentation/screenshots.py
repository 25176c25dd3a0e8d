"""What README.md and docs show: the graph, pictures of the report, Dagster and MLflow, and the report as a sample.

`make screenshots` makes all of it from the newest audit.

Needs Chromium (or Chrome) on this machine, and an audit: `make audit` first. The servers of `plumbline ui` are started
for it, and ended.
"""

import io
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import httpx
import mlflow
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from documentation.graph import draw_graph
from resources.checkout import PROJECT
from resources.workspace import Workspace

IMAGES = PROJECT / "docs" / "images"
SAMPLE = PROJECT / "docs" / "sample-report.html"
DAGSTER, MLFLOW = "http://127.0.0.1:3000", "http://127.0.0.1:5000"
COMPARED = ("small-bazaar-3k", "small-control-3k")
"""Whose runs on FairFace are compared: a biased checkpoint, and one whose captions were fair."""

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_COLOURS, _LONGEST_S, _SETTLED_MS = 128, 120, 10_000
"""Of a picture, for a server to start, and for a page of a server to have everything that it shows."""


def main() -> int:
    """Take every picture; return 1 where something that it takes is not there."""
    workspace = Workspace.from_environment()
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None or not workspace.report.is_file():
        print(f"needs one of {', '.join(_BROWSERS)}, and {workspace.report} (make audit)", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    draw_graph()
    SAMPLE.write_text(_without_local_links(workspace.report.read_text("utf-8")), "utf-8")
    print(SAMPLE)
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        _take_report(page, workspace.report)
        _take_servers(page)
    return 0


def _take_report(page: Page, report: Path) -> None:
    """Take the first screen of the report, and the first chart of its first chapter."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(report.as_uri())
    page.locator('html[data-drawn="all"]').wait_for()
    _keep("findings", page.screenshot())
    page.set_viewport_size({"width": 930, "height": 800})
    _keep("bias", page.locator("#bias figure").first.screenshot())


def _take_servers(page: Page) -> None:
    servers = subprocess.Popen([sys.executable, "-m", "orchestration", "ui"], cwd=PROJECT)
    try:
        for address in (DAGSTER, MLFLOW):
            _wait_for(address)
        for name, address, height in (("dagster", f"{DAGSTER}/asset-groups", 800), ("mlflow", _comparison(), 1000)):
            page.set_viewport_size({"width": 1400, "height": height})
            page.goto(address)
            page.wait_for_timeout(_SETTLED_MS)
            if (beside := page.get_by_text("MLflow Assistant")).count():  # it covers a quarter of a first visit
                beside.first.locator("xpath=ancestor::*[.//button][1]").get_by_role("button").last.click()
                page.wait_for_timeout(_SETTLED_MS // 5)
            _keep(name, page.screenshot())
    finally:
        servers.terminate()
        servers.wait(timeout=60)


def _without_local_links(report: str) -> str:
    """Return the report for readers elsewhere: the pages of single checks are only on the machine of the audit."""
    return re.sub(r'<a href="file://[^"]*"[^>]*>[^<]*</a>', "–", report)


def _keep(name: str, png: bytes) -> None:
    """Write a picture with few colours, which makes the file a third."""
    path = IMAGES / f"{name}.png"
    Image.open(io.BytesIO(png)).convert("RGB").quantize(_COLOURS).save(path, optimize=True)
    print(path)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while True:
        try:
            httpx.get(address, timeout=5)
            return
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _comparison() -> str:
    """Return the address of MLflow's page that compares the two runs."""
    client = mlflow.MlflowClient(MLFLOW)
    (experiment,) = client.search_experiments(filter_string="name = 'plumbline'")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"])
    chosen = [
        next(
            run.info.run_id
            for run in runs
            if [run.data.params.get(each) for each in ("encoder", "dataset", "condition")]
            == [name, "fairface", "before"]
        )
        for name in COMPARED
    ]
    asked = {"runs": chosen, "experiments": [experiment.experiment_id]}
    return f"{MLFLOW}/#/compare-runs?" + "&".join(f"{k}={quote(json.dumps(v))}" for k, v in asked.items())


if __name__ == "__main__":
    sys.exit(main())
