"""A page of another site can neither read Dagster or MLflow nor start anything there; a person and a program can."""

import asyncio
from importlib.metadata import entry_points

import httpx
import pytest
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from starlette.responses import PlainTextResponse

from orchestration.guard import Guard

SERVER = "http://127.0.0.1:3000"
JSON = {"content-type": "application/json"}
OWN = {"origin": SERVER, "sec-fetch-site": "same-origin"}
CROSS = {"sec-fetch-site": "cross-site"}
LINK = {**CROSS, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def ask(app, method, path, headers, **sent):
    async def asking():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=SERVER) as client:
            return await client.request(method, path, headers=headers, **sent)

    return asyncio.run(asking())


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/runs", {}),
        ("GET", "/runs", {"sec-fetch-site": "none"}),
        ("GET", "/runs", LINK),
        ("GET", "/runs", {"host": "localhost:3000"}),
        ("POST", "/graphql", JSON),
        ("POST", "/graphql", JSON | OWN),
        ("POST", "/graphql", {"content-type": "application/json; charset=utf-8"} | OWN),
        ("POST", "/graphql", JSON | {"origin": "http://localhost:3000", "host": "localhost:3000"}),
        ("GET", "/assets/graphql_schema", OWN),
    ],
)
def test_a_person_and_a_program_of_this_machine_are_answered(method, path, headers):
    answer = ask(Guard(PlainTextResponse("reached")), method, path, headers)
    assert (answer.status_code, answer.text) == (200, "reached")
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"


@pytest.mark.parametrize(
    ("method", "path", "headers", "why"),
    [
        ("GET", "/runs", {"host": "evil.example:3000"}, "Host is evil.example:3000"),
        ("GET", "/runs", {"host": "127.0.0.1"}, "Host is 127.0.0.1"),
        ("GET", "/runs", {"host": "10.evil.example"}, "Host"),
        ("GET", "/runs", {"host": "127.0.0.1:3000.evil.example"}, "Host"),
        ("GET", "/runs", CROSS, "another site"),
        ("GET", "/runs", {"sec-fetch-site": "same-site"}, "another site"),
        ("GET", "/runs", {**LINK, "sec-fetch-dest": "iframe"}, "another site"),
        ("POST", "/runs", LINK, "another site"),
        ("POST", "/report_asset_materialization/records", {"origin": "http://evil.example"}, "Origin"),
        ("POST", "/graphql", JSON | {"origin": "http://127.0.0.1:8888"}, "Origin is http://127.0.0.1:8888"),
        ("POST", "/graphql", JSON | {"origin": "https://127.0.0.1:3000"}, "Origin"),
        ("POST", "/graphql", JSON | {"origin": "null"}, "Origin is null"),
        ("GET", "/graphql?query=mutation{x}", {}, "POST of application/json"),
        ("GET", "/graphql/?query=mutation{x}", {}, "POST of application/json"),
        ("GET", "/graphql?query=mutation{x}", LINK, "another site"),
        ("POST", "/graphql?query=mutation{x}", {"content-type": "application/x-www-form-urlencoded"}, "POST of"),
        ("POST", "/graphql", {"content-type": "text/plain; charset=application/json"}, "POST of application/json"),
        ("POST", "/graphql", {"content-type": "application/graphql"}, "POST of application/json"),
        ("GET", "/graphql%0a?query=mutation{x}", {}, "control character"),
        ("POST", "/graphql%0a?query=mutation{x}", {"content-type": "text/plain"}, "control character"),
        ("GET", "/graphql%0d%0a?query=mutation{x}", LINK, "control character"),
        ("OPTIONS", "/runs", LINK, "another site"),
    ],
)
def test_another_site_is_refused_with_the_reason(method, path, headers, why):
    def unreachable(*_):
        raise AssertionError("the server was reached")

    answer = ask(Guard(unreachable), method, path, headers)
    assert answer.status_code == 403 and why in answer.text
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("headers", "opened"),
    [
        ([(b"host", b"127.0.0.1:3000"), (b"origin", b"http://127.0.0.1:3000")], True),
        ([(b"host", b"127.0.0.1:3000")], True),
        ([(b"host", b"127.0.0.1:3000"), (b"origin", b"http://evil.example")], False),
        ([(b"host", b"evil.example:3000"), (b"origin", b"http://evil.example:3000")], False),
        ([(b"host", b"127.0.0.1:3000"), (b"host", b"evil.example")], False),
        ([], False),
    ],
)
def test_a_websocket_of_another_site_is_closed(headers, opened):
    sent, reached = [], []

    async def app(scope, receive, send):
        reached.append(scope)

    async def send(message):
        sent.append(message)

    scope = {"type": "websocket", "path": "/graphql", "headers": headers, "server": ("127.0.0.1", 3000)}
    asyncio.run(Guard(app)(scope, None, send))
    assert bool(reached) is opened
    assert [message["type"] for message in sent] == ([] if opened else ["websocket.close"])


@pytest.mark.parametrize("guarded", [False, True])
def test_an_image_on_another_site_changes_a_pool_only_where_no_guard_stands(guarded, tmp_path):
    from dagster_webserver.app import create_app_from_workspace_process_context

    query = 'mutation{setConcurrencyLimit(concurrencyKey:"gpu",limit:0)}'
    with (
        DagsterInstance.local_temp(str(tmp_path)) as instance,
        WorkspaceProcessContext(instance, EmptyWorkspaceTarget(), version="", read_only=False) as context,
    ):
        instance.event_log_storage.set_concurrency_slots("gpu", 1)
        app = create_app_from_workspace_process_context(context)
        answer = ask(Guard(app) if guarded else app, "GET", "/graphql", CROSS, params={"query": query})
        assert answer.status_code == (403 if guarded else 200)
        assert instance.event_log_storage.get_concurrency_info("gpu").slot_count == (1 if guarded else 0)


@pytest.mark.filterwarnings("ignore:starlette.middleware.wsgi is deprecated")
def test_mlflow_is_served_behind_the_guard():
    [entry] = entry_points(group="mlflow.app", name="plumbline")
    app = entry.load()()
    assert isinstance(app, Guard)
    assert ask(app, "GET", "/version", {"host": "10.evil.example"}).status_code == 403
    assert ask(app, "GET", "/version", {}).status_code == 200


def test_browsers_leave_port_80_out_of_the_host():
    reached = []

    async def app(scope, receive, send):
        reached.append(scope)

    known = {"type": "http", "path": "/runs", "method": "GET", "server": ("127.0.0.1", 80)}
    asyncio.run(Guard(app)({**known, "headers": [(b"host", b"localhost")]}, None, None))
    assert reached
