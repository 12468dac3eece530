"""POST /mcp: Paddock as an MCP server. The application of the package `mcp` answers; rights are those of each tool."""

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
routes = APIRouter(tags=["mcp"])


@routes.post(PATH, include_in_schema=False)  # MCP describes itself: tools/list
async def mcp(request: Request) -> Response:
    """Answer a JSON-RPC message."""
    return _Forwarded(request.app.state.mcp)


class _Forwarded(Response):
    """A response that another ASGI application gives."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
