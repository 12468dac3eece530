"""MCP: Paddock's own tools, and other people's servers. The application of the package `mcp` answers.

Rights are those of each tool; for one other server those of its object; of a namespace's, each that the caller may use.
"""

import contextlib

from fastapi import APIRouter, Request
from starlette.responses import Response

from controller.api.common.models import MCP_PATH, SERVER_PATH, SERVERS_PATH
from controller.api.common.parsing import DirectRoute
from controller.api.common.query_names import ANY, takes_query
from controller.api.common.replayed import Replayed

routes = APIRouter(tags=["mcp"], route_class=DirectRoute)


@routes.post(MCP_PATH, include_in_schema=False)  # MCP describes itself: tools/list
@routes.post(SERVERS_PATH, include_in_schema=False)
@routes.post(SERVER_PATH, include_in_schema=False)  # the last is matched first
@takes_query(ANY)
async def call(request: Request) -> Response:
    """Answer a JSON-RPC message, once it is known to be within the limits of JSON."""
    with contextlib.suppress(ValueError):  # the application says what is wrong with it
        await request.json()
    return Replayed(request.app.state.mcp, await request.body())


@routes.api_route(SERVERS_PATH, methods=["GET", "DELETE"], include_in_schema=False)
@routes.api_route(SERVER_PATH, methods=["GET", "DELETE"], include_in_schema=False)
@takes_query(ANY)
async def hold(request: Request) -> Response:
    """Hold a connection, or end it."""
    return Replayed(request.app.state.mcp)
