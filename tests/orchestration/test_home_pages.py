"""What `plumbline ui` serves beside Dagster's pages: the report, figures and check pages, as pages of nobody's."""

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from assets.pictures import WHOLE_AUDIT, keep_charts
from orchestration.guard import Guard
from orchestration.home_pages import with_home_pages
from plumbline.report import Chart
from resources import served
from resources.checkout import PROJECT
from resources.tracking import Tracking
from resources.workspace import Workspace

CHART = Chart("skew", "Skew", "Of nothing.", {"data": {"values": [{"x": 1}]}, "mark": "point", "encoding": {}})
SERVER = "http://127.0.0.1:3000"


@pytest.fixture
def workspace(tmp_path):
    return Workspace(audit_path=PROJECT / "audit.yaml", home=tmp_path)


def get(workspace, path):
    return got(with_home_pages(PlainTextResponse("dagster"), workspace), path)


def got(pages, path):
    app = Guard(pages)

    async def asking():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=SERVER) as client:
            return await client.get(path)

    return asyncio.run(asking())


def test_the_report_is_served_and_can_ask_dagster_for_nothing(workspace):
    assert get(workspace, served.REPORT).status_code == 404
    workspace.report.write_text("<p>report", "utf-8")
    answer = get(workspace, served.REPORT)
    assert (answer.status_code, answer.text) == (200, "<p>report")
    policies = answer.headers.get_list("content-security-policy")
    assert any("sandbox" in each and "allow-same-origin" not in each for each in policies)
    assert any("frame-ancestors 'none'" in each for each in policies)


def test_the_report_is_led_on_to_mlflow_and_nowhere_else(workspace, monkeypatch):
    monkeypatch.setattr(Tracking, "experiment", lambda self: "7")
    run = "0" * 32
    answer = get(workspace, served.cell_pages({"model": "m", "dataset": "d", "mlflow_run": run}, ())["MLflow"])
    assert answer.status_code == 307 and answer.headers["location"].startswith(
        f"{workspace.tracking_page}/#/experiments/7/runs/{run}"
    )
    for other, refused in (("evil.example", 404), ("%2e%2e%2fx", 404), ("0" * 31 + "%0a", 403)):
        assert get(workspace, f"{served.MLFLOW}/{other}").status_code == refused


def test_dagsters_own_pages_are_as_they_were(workspace):
    answer = get(workspace, "/assets/records")
    assert answer.text == "dagster" and "sandbox" not in str(answer.headers)


def test_a_picture_is_served_where_its_metadata_says(workspace):
    partition = "fairface|small-bazaar-3k"
    for where in (partition, WHOLE_AUDIT):
        shown = keep_charts(workspace, {"skew": CHART}, asset="outcome_metrics", partition=where)["picture_skew"]
        assert len(shown.value) < 1000, "Dagster folds longer Markdown"
        answer = get(workspace, served.picture("outcome_metrics", where, "skew"))
        assert f"({answer.request.url.raw_path.decode()})" in shown.value
        assert (answer.content, answer.headers["content-type"]) == (CHART.png, "image/png")


@pytest.mark.parametrize(
    ("asset", "partition", "name"),
    [
        ("outcome_metrics", "fairface|small-bazaar-3k", "other"),
        ("outcome_metrics", "..|..", "skew"),
        ("..", "fairface|small-bazaar-3k", "skew"),
        ("outcome_metrics", "fairface|nobody", "skew"),
    ],
)
def test_nothing_else_of_the_lake_is_served(workspace, asset, partition, name):
    keep_charts(workspace, {"skew": CHART}, asset="outcome_metrics", partition="fairface|small-bazaar-3k")
    assert get(workspace, served.picture(asset, partition, name)).status_code == 404


@pytest.mark.parametrize("where", [served.QUALITY, served.EXPLANATIONS])
def test_pages_of_a_folder_that_is_not_there_yet_are_not_found(workspace, where):
    assert get(workspace, f"{where}/x").status_code == 404


def test_pages_of_a_folder_are_served_once_it_is_there(workspace):
    app, path = with_home_pages(PlainTextResponse("dagster"), workspace), f"{served.EXPLANATIONS}/x.html"
    assert got(app, path).status_code == 404
    (workspace.home / "explanations").mkdir()
    (workspace.home / "explanations" / "x.html").write_text("<p>why", "utf-8")
    assert got(app, path).text == "<p>why"


def test_files_of_the_home_beside_these_are_not_served(workspace):
    (workspace.home / "mlflow.db").write_text("secret", "utf-8")
    (workspace.quality / "pages").mkdir(parents=True)
    (workspace.quality / "pages" / "check.html").write_text("<p>check", "utf-8")
    assert get(workspace, f"{served.QUALITY}/pages/check.html").text == "<p>check"
    for path in (f"{served.FOLDER}/mlflow.db", f"{served.QUALITY}/../mlflow.db", f"{served.QUALITY}/%2e%2e/mlflow.db"):
        assert "secret" not in get(workspace, path).text
