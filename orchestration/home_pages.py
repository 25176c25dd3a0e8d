"""What `plumbline ui` serves beside Dagster's own pages: the report, explanations, check pages and pictures.

The report is served with links to Dagster's and MLflow's page of each cell: paths of this server, which leads on to
MLflow. Opened from a disk, it has none.

They are of the same server, so that an asset's page shows its figures and leads to the report. A page of ours is served
as one of nobody's (`sandbox`): whatever it held, it could ask Dagster for nothing.
"""

from __future__ import annotations

import re

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assets.pictures import draw_picture
from resources import served
from resources.tracking import Tracking, TrackingUnavailable
from resources.workspace import Workspace

_POLICY = "sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox"


def with_home_pages(dagster: ASGIApp, workspace: Workspace) -> ASGIApp:
    """Return Dagster's server with the pages of this home at `/plumbline`."""
    pages = _home_pages(workspace)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and scope["path"].startswith(f"{served.FOLDER}/")
        await (pages if ours else dagster)(scope, receive, send)

    return app


def _home_pages(workspace: Workspace) -> Starlette:
    def report(_: Request) -> Response:
        if not workspace.report.is_file():
            raise HTTPException(404, "there is no report yet: `plumbline audit` makes it")
        return FileResponse(workspace.report, media_type="text/html")

    def picture(request: Request) -> Response:
        drawn = draw_picture(workspace, **request.path_params)
        if drawn is None:
            raise HTTPException(404, "there is no such picture")
        return Response(drawn, media_type="image/png")

    def mlflow(request: Request) -> Response:
        run = request.path_params["run"]
        if not re.fullmatch("[0-9a-f]{32}", run):
            raise HTTPException(404, "there is no such run")
        try:
            return RedirectResponse(tracking.run_page(run))
        except TrackingUnavailable as error:
            raise HTTPException(503, f"MLflow cannot be read: {error}") from error

    tracking = Tracking(workspace)
    folders = {served.QUALITY: workspace.quality, served.EXPLANATIONS: workspace.home / "explanations"}
    return Starlette(
        routes=[
            Route(served.REPORT, report),
            Route(f"{served.MLFLOW}/{{run}}", mlflow),
            Route(f"{served.PICTURES}/{{asset}}/{{partition}}/{{name}}.png", picture),
            *(Mount(path, _Folder(directory=folder, check_dir=False)) for path, folder in folders.items()),
        ],
        middleware=[Middleware(_Sandboxed)],
    )


class _Folder(StaticFiles):
    """Files of a folder that an audit may still make."""

    async def check_config(self) -> None:
        """Do nothing: Starlette would raise at a request for a folder that is not there, where a 404 is due."""


class _Sandboxed:
    """ASGI middleware: every answer is a page of no site."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sandboxed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", _POLICY.encode())]
            await send(message)

        await self._app(scope, receive, sandboxed)
