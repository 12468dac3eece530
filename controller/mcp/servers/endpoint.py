"""The ASGI application of other people's servers. It loads the SDK at the first request."""

import asyncio
import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio
from starlette.datastructures import Headers, QueryParams
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from controller.mcp import sdk
from controller.mcp.calls import OPTIONS_KEY
from controller.mcp.servers.sessions import Sessions
from controller.mcp.servers.target import CONNECTION_HEADER, Target
from controller.ports import Meter
from controller.service.access import access
from controller.service.errors import BadRequest, MethodNotAllowed, ServiceError
from controller.service.objects import serialize
from controller.service.services import Services

if TYPE_CHECKING:
    from controller.mcp.servers.gateway import Gateway

_CONNECTION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEEP_ALIVE_SECONDS = 15.0


class ServersEndpoint:
    """Serves other people's servers. Each event loop has a gateway of its own; the sessions are shared."""

    def __init__(self, services: Services, sessions: Sessions, meter: Meter) -> None:
        self._services, self._sessions, self._meter = services, sessions, meter
        self._loading = threading.Lock()
        self._gateways: WeakKeyDictionary[asyncio.AbstractEventLoop, Gateway] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send, hosts: Sequence[str]) -> None:
        try:
            target = target_of(scope)
            if scope["method"] == "GET":
                if not target.connection:
                    raise MethodNotAllowed(
                        f"GET holds a connection, and needs the header {CONNECTION_HEADER}; use POST"
                    )
                await self._hold(target, receive, send)
                return
            if target.name:
                await anyio.to_thread.run_sync(self._services.mcp_servers.get, target.namespace, target.name)
        except ServiceError as error:
            await JSONResponse(serialize.failure(error), error.code)(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        gateway = self._gateways.get(loop)
        if gateway is None:
            made = await anyio.to_thread.run_sync(self._make)
            gateway = self._gateways.setdefault(loop, made)
        await gateway.serve({**scope, OPTIONS_KEY: target}, receive, send, hosts)

    def _make(self) -> "Gateway":
        with self._loading:
            module = sdk.load("controller.mcp.servers.gateway")
            made: Gateway = module.Gateway(self._services, self._sessions, self._meter)
            return made

    async def _hold(self, target: Target, receive: Receive, send: Send) -> None:
        """Keep the response open as long as the client does; then its sessions end."""
        asking = access.caller()
        caller = asking.name if asking is not None else ""
        try:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            message: Message = {}
            while message.get("type") != "http.disconnect":
                await send({"type": "http.response.body", "body": b": connected\n\n", "more_body": True})
                message = {}
                with anyio.move_on_after(_KEEP_ALIVE_SECONDS):
                    while message.get("type") != "http.disconnect":
                        message = await receive()
        except OSError:  # it is gone
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._sessions.end, caller, target.connection)


def target_of(scope: Scope) -> Target:
    """Return the target of a request. Raises BadRequest."""
    given, query = scope.get("path_params", {}), QueryParams(scope["query_string"])
    connection = Headers(scope=scope).get(CONNECTION_HEADER, "")
    if connection and not _CONNECTION.fullmatch(connection):
        raise BadRequest(f"{CONNECTION_HEADER}: must be 1 to 64 letters, digits, `-` and `_`")
    known = () if "name" in given else ("namespace",)
    wrong = [f"`{each[:60]}` is not a parameter here" for each in query if each not in known]
    if wrong:
        raise BadRequest(f"{'; '.join(wrong)}; known: {', '.join(known) or 'none'}")
    if "name" in given:
        return Target(given["namespace"], given["name"], connection)
    return Target(query.get("namespace") or "default", "", connection)
