"""MCP: Paddock's own tools, and other people's servers. The application of the package `mcp` answers.

Rights are those of each tool; for one other server those of its object; of a namespace's, each that the caller may use.
"""

import contextlib

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.api.common.direct_route import DirectRoute
from controller.api.common.models import PREFIX

PATH, SERVERS = "/mcp", "/mcp/servers"
_ONE = f"{PREFIX}/namespaces/{{namespace}}/mcpservers/{{name}}/mcp"
routes = APIRouter(tags=["mcp"], route_class=DirectRoute)


@routes.post(PATH, include_in_schema=False)  # MCP describes itself: tools/list
@routes.post(SERVERS, include_in_schema=False)
@routes.post(_ONE, include_in_schema=False)  # the last is matched first
async def call(request: Request) -> Response:
    """Answer a JSON-RPC message, once it is known to be within the limits of JSON."""
    with contextlib.suppress(ValueError):  # the application says what is wrong with it
        await request.json()
    return _Forwarded(request.app.state.mcp, await request.body())


@routes.api_route(SERVERS, methods=["GET", "DELETE"], include_in_schema=False)
@routes.api_route(_ONE, methods=["GET", "DELETE"], include_in_schema=False)
async def hold(request: Request) -> Response:
    """Hold a connection, or end it."""
    return _Forwarded(request.app.state.mcp)


class _Forwarded(Response):
    """A response that another ASGI application gives. `read` is the request's body, if it was read already."""

    def __init__(self, app: ASGIApp, read: bytes | None = None) -> None:
        super().__init__()
        self._app, self._read = app, read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def again() -> Message:
            body, self._read = self._read, None
            if body is None:
                return await receive()
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, again, send)
