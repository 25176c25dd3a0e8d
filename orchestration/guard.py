"""Dagster's and MLflow's servers on loopback, behind a guard that refuses what a page of another site asks of them.

Dagster's GraphQL launches runs, over GET too, and looks at neither `Host` nor `Origin`: without the guard any page that
is open in a browser of this machine could start an audit, whose endpoints are paid with the user's key. MLflow looks at
both, and admits every private address as `Host` and every page of this machine as `Origin`.
"""

from __future__ import annotations

import argparse

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from resources.checkout import PROJECT
from resources.workspace import Workspace

LOOPBACK = "127.0.0.1"
_READING = ("GET", "HEAD")


class Guard:
    """ASGI middleware: only pages of this very server may ask it for anything.

    Refused with 403, each with the reason in its text:

    - a `Host` other than this server's (a name that was rebound to 127.0.0.1);
    - an `Origin` other than this server's, of requests and of WebSockets;
    - what a browser says is asked by another site (`Sec-Fetch-Site`), but for a link that a person follows;
    - GraphQL in any form but a POST of `application/json`, which no form and no image can send;
    - a path with a control character, which a router may take for another path than this guard does.

    Every answer forbids frames. Programs of this machine, which send no `Origin`, are let through: they could read the
    store itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        why = _refusal(scope, Headers(scope=scope))
        if why is None:
            await self._app(scope, receive, _forbidding_frames(send))
        elif scope["type"] == "http":
            await PlainTextResponse(f"refused: {why}\n", 403)(scope, receive, _forbidding_frames(send))
        else:
            await WebSocketClose(1008, why)(scope, receive, send)


def _refusal(scope: Scope, headers: Headers) -> str | None:
    """Return why a request is refused; None where it is not."""
    _, port = scope["server"]
    local: tuple[str, ...] = (f"{LOOPBACK}:{port}", f"localhost:{port}")
    if port == 80:
        # Browsers leave it out.
        local += (LOOPBACK, "localhost")
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or hosts[0] not in local:
        return f"Host is {', '.join(hosts) or 'missing'}, not {' or '.join(local)}"
    if not {*origins} <= {f"http://{host}" for host in local}:
        return f"Origin is {', '.join(origins)}, not http://{' or http://'.join(local)}"
    if not scope["path"].isprintable():
        return "the path has a control character"
    graphql = scope["path"].rstrip("/").endswith("/graphql")
    site = headers.get("sec-fetch-site", "none")
    if site not in ("same-origin", "none") and (graphql or not _followed_link(scope, headers)):
        return f"another site asks (Sec-Fetch-Site: {site})"
    if graphql and scope["type"] == "http":
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] != "POST" or media_type != "application/json":
            return f"GraphQL is answered to a POST of application/json alone, not to {scope['method']} {media_type}"
    return None


def _followed_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a person follows a link to a page of this server, as from the report."""
    return (
        scope["type"] == "http"
        and scope["method"] in _READING
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _forbidding_frames(send: Send) -> Send:
    async def forbidding(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Frame-Options"] = "DENY"
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
            # Beside a policy of Dagster's own: a browser obeys both.
            headers.append("Content-Security-Policy", "frame-ancestors 'none'")
        await send(message)

    return forbidding


def mlflow_app() -> ASGIApp:
    """Return MLflow's server behind the guard: what `mlflow server --app-name plumbline` serves."""
    from mlflow.server.fastapi_app import app

    return Guard(app)


def main() -> None:
    """Serve Dagster over the project of this checkout: `python -m orchestration.guard --port 3000`."""
    import uvicorn
    from dagster import DagsterInstance

    # The two of `_core` are not public: `dagster-webserver` takes no middleware. A test holds that they are there.
    from dagster._core.workspace.context import WorkspaceProcessContext
    from dagster._core.workspace.load_target import WorkspaceFileTarget
    from dagster_webserver.app import create_app_from_workspace_process_context
    from dagster_webserver.version import __version__

    from orchestration.home_pages import with_home_pages

    parser = argparse.ArgumentParser(description="Dagster's webserver on loopback, behind a guard")
    parser.add_argument("--port", type=int, default=3000)
    port = parser.parse_args().port
    project = WorkspaceFileTarget([str(PROJECT / "workspace.yaml")])
    with (
        DagsterInstance.get() as instance,
        WorkspaceProcessContext(instance, project, version=__version__, read_only=False) as context,
    ):
        app = with_home_pages(create_app_from_workspace_process_context(context), Workspace.from_environment())
        uvicorn.run(Guard(app), host=LOOPBACK, port=port, log_level="warning")


if __name__ == "__main__":
    main()
