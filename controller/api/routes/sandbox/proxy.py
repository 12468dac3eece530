"""HTTP and WebSockets to a port of a sandbox, for programs.

One request takes one connection to the port, with the limits of port forwarding. Requests of web pages are refused: an
answer would belong to the origin of the daemon, and of its panel. For people there are previews.
"""

import re
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Request, WebSocket
from fastapi import Path as PathParameter
from fastapi.responses import Response
from starlette.requests import HTTPConnection

from controller.api.common import errors, models
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.query_names import ANY, takes_query
from controller.api.middleware.authenticate import header_of_page
from controller.api.routes.sandbox.port_forward import PortForwarding, forwarding
from controller.api.streams.proxy import ProgramRequest, ProxiedResponse, relay_websocket
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import (
    BadGateway,
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    ServiceError,
    ServiceUnavailable,
    TooManyRequests,
)
from controller.service.sandbox.port_forward import Forwarded
from controller.service.services import Services

Port = Annotated[str, PathParameter(description="a TCP port on the sandbox's own 127.0.0.1", pattern="^[0-9]{1,5}$")]
Path = Annotated[str, PathParameter(description="path of the request, slashes included; the query is passed on, too")]
Bounds = Annotated[PortForwarding, Depends(forwarding)]

_PATH = "/namespaces/{namespace}/sandboxes/{name}/proxy/{port}"
# By the encoded path: a slash within a segment would move the border between ours and the program's.
_RAW = re.compile(rb"((?:/[^/]+){9})(/.*)?", re.DOTALL)
_DESCRIBED = ("GET", "POST", "PUT", "PATCH", "DELETE")
_UNDESCRIBED = ("HEAD", "OPTIONS")
_ANY = {"type": "string", "format": "binary"}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the program's answer, with its own status, headers and body",
        "content": {"application/octet-stream": {"schema": _ANY}},
    },
    **models.failures(BadRequest, Forbidden, NotFound, Conflict, TooManyRequests, ServiceUnavailable, BadGateway),
}

routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])


@takes_query(ANY)
async def proxy(
    services: UseCases, bounds: Bounds, request: Request, namespace: str, name: str, port: Port
) -> Response:
    """Pass a request on to a program in the sandbox, and its answer back. Web pages are refused: they have previews.

    The program gets no token: `Authorization` is dropped. Redirects and cookies keep to this path. Disconnecting ends
    the connection to the program.
    """
    program_request = _program_request(request, request.method, port)
    return ProxiedResponse(program_request, await _open(services, bounds, namespace, name, program_request.port))


@takes_query(ANY)
async def proxy_path(
    services: UseCases, bounds: Bounds, request: Request, namespace: str, name: str, port: Port, path: Path
) -> Response:
    """Pass a request on to a program in the sandbox, and its answer back. Web pages are refused: they have previews.

    The program gets no token: `Authorization` is dropped. Redirects and cookies keep to this path. Disconnecting ends
    the connection to the program.
    """
    del path  # as it was sent, it is in the scope
    return await proxy(services, bounds, request, namespace=namespace, name=name, port=port)


for _method in _DESCRIBED:
    routes.add_api_route(
        _PATH + "/{path:path}",
        proxy_path,
        methods=[_method],
        operation_id=f"proxySandbox{_method.title()}",
        summary=f"Send a {_method} request to a port",
        responses=_ANSWERS,
        response_class=Response,
    )
routes.add_api_route(_PATH + "/{path:path}", proxy_path, methods=[*_UNDESCRIBED], include_in_schema=False)
routes.add_api_route(_PATH, proxy, methods=[*_DESCRIBED, *_UNDESCRIBED], include_in_schema=False)


@routes.websocket(_PATH)
@routes.websocket(_PATH + "/{path:path}")
@takes_query(ANY)
async def proxy_websocket(
    services: UseCases, bounds: Bounds, websocket: WebSocket, namespace: str, name: str, port: str
) -> None:
    """Connect to a WebSocket of a program in the sandbox."""
    try:
        program_request = _program_request(websocket, "GET", port)
        opened = await _open(services, bounds, namespace, name, program_request.port)
    except ServiceError as error:
        await websocket.send_denial_response(errors.answer(error))
        return
    await relay_websocket(websocket, program_request, opened)


def _program_request(connection: HTTPConnection, method: str, port: str) -> ProgramRequest:
    """Return what is asked of the program. Raises Forbidden for a web page's request, and BadRequest."""
    if page := header_of_page(connection.headers):
        raise Forbidden(
            f"a web page's request (it has the header {page}) is not passed on to a sandbox: its answer would have the"
            " origin of the daemon; open a preview by `paddock port-forward NAME PORT --open`"
        )
    if not port.isascii() or not port.isdigit() or len(port) > 5:
        raise BadRequest(f"a port is a number from 1 to 65535, not {port[:20]}")
    match = _RAW.fullmatch(connection.scope["raw_path"])
    if match is None or b"%2f" in match[1].lower():
        raise BadRequest("the path has an encoded slash before the port; write `/` there")
    query = connection.scope.get("query_string", b"")
    target = (match[2] or b"/") + (b"?" + query if query else b"")
    secure = connection.scope["scheme"] in ("https", "wss")
    headers = connection.scope["headers"]
    return ProgramRequest(
        method,
        int(port),
        prefix=match[1].decode("ascii"),
        target=target,
        headers=headers,
        scheme="https" if secure else "http",
    )


async def _open(services: Services, bounds: PortForwarding, namespace: str, name: str, port: int) -> Forwarded:
    return await anyio.to_thread.run_sync(services.forward.open, SANDBOX, namespace, name, port, limiter=bounds.opening)
