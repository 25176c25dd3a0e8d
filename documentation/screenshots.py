"""What README.md shows: the graph, pictures of the report, Dagster and MLflow, and the report as a sample.

`make screenshots` makes all of it from the newest audit.

Needs Chromium (or Chrome) on this machine, and an audit: `make audit` first. The servers of `plumbline ui` are started
for it, and ended.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import httpx
import mlflow
from PIL import Image, ImageChops

from documentation.graph import draw_graph
from resources.checkout import PROJECT
from resources.workspace import Workspace

IMAGES = PROJECT / "docs" / "images"
SAMPLE = PROJECT / "docs" / "sample-report.html"
DAGSTER, MLFLOW = "http://127.0.0.1:3000", "http://127.0.0.1:5000"
COMPARED = ("small-bazaar-3k", "small-control-3k")
"""Whose runs on FairFace are compared: a biased checkpoint, and one whose captions were fair."""

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_COLOURS, _LONGEST_S = 128, 120
_TALL, _MARGIN = 2400, 24
"""Pixels that no chosen part of a chapter reaches, and that are left below it."""
_PARTS = {
    "findings": "ol.findings ~ *, ol.findings > li:nth-child(n + 7) { display: none }",
    "bias": "section > figure ~ * { display: none }",
}
"""Chapter -> what leaves only its top, so that a picture ends where a finding or a figure does."""


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
    for chapter, top in _PARTS.items():
        _take_chapter(browser, chapter, workspace.report, top)
    servers = subprocess.Popen([sys.executable, "-m", "orchestration", "ui"], cwd=PROJECT)
    try:
        for address in (DAGSTER, MLFLOW):
            _wait_for(address)
        _take(browser, "dagster", f"{DAGSTER}/asset-groups", height=800)
        _take(browser, "mlflow", _comparison(), height=1000)
    finally:
        servers.terminate()
        servers.wait(timeout=60)
    return 0


def _without_local_links(report: str) -> str:
    """Return the report for readers elsewhere: the pages of single checks are only on the machine of the audit."""
    return re.sub(r'<a href="file://[^"]*"[^>]*>[^<]*</a>', "–", report)


def _take_chapter(browser: str, name: str, report: Path, top: str) -> None:
    """Take one chapter, of which the style `top` leaves the first parts; a browser without a window does not scroll."""
    alone = f"main > :not(:has(> #{name})), nav {{ display: none }} .page {{ display: block }} h2 {{ margin: 0 }} {top}"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report.read_text("utf-8").replace("</head>", f"<style>{alone}</style></head>", 1), "utf-8")
        _take(browser, name, page.as_uri(), width=1060, height=_TALL, below=_MARGIN)


def _take(browser: str, name: str, address: str, *, height: int, width: int = 1400, below: int | None = None) -> None:
    """Take a page; with `below`, only as far down as there is something to see, and so many pixels more."""
    path = IMAGES / f"{name}.png"
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(  # noqa: S603
            [
                browser, *_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}",
                "--virtual-time-budget=20000", f"--screenshot={path}", address,
            ],
            check=True, capture_output=True, timeout=_LONGEST_S,
        )  # fmt: skip
    # Few colours are in a page: a palette makes the file a third.
    picture = Image.open(path).convert("RGB")
    seen = ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox()
    if below is not None and seen is not None:
        picture = picture.crop((0, 0, width, min(height, seen[3] + below)))
    picture.quantize(_COLOURS).save(path, optimize=True)
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
