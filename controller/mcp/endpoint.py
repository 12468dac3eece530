"""The ASGI application of every MCP endpoint: checks address and Host header; loads the SDK at the first request."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import anyio
from starlette.datastructures import Headers, QueryParams
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from controller.kinds.common.http_head import is_local
from controller.mcp import sdk
from controller.mcp.calls import OPTIONS_KEY, Options
from controller.mcp.json_rpc import body_of, refusal_of, replayed
from controller.mcp.names import STYLES, TOOLSETS, Style, Toolset
from controller.mcp.outputs import Outputs
from controller.mcp.servers.endpoint import ServersEndpoint
from controller.mcp.servers.sessions import Sessions
from controller.mcp.tool import IsHere
from controller.ports import Meter
from controller.service.access.access import FAILURE_KEY, FORWARDED
from controller.service.errors import BadRequest
from controller.service.listing import serialize
from controller.service.parsing import SMALL_BYTES
from controller.service.services import Services

if TYPE_CHECKING:
    from controller.mcp.protocol import Protocol

_TRUE = ("true", "1", "yes", "on", "")
_FALSE = ("false", "0", "no", "off")
_KNOWN = ("names", "namespace", "readOnly", "toolset")


class McpEndpoint:
    """Serves MCP over these services: Paddock's own tools at /mcp, other people's servers at every other address.

    Each event loop has a server of its own. `sessions` are those of other people's servers.
    """

    def __init__(
        self, services: Services, meter: Meter, sessions: Sessions | None = None, is_here: IsHere | None = None
    ) -> None:
        """`is_here` tells if a sandbox, by namespace and name, is of no other host; None: there is one host."""
        self._services, self._meter, self._is_here = services, meter, is_here
        self._servers = ServersEndpoint(services, sessions or Sessions(services.mcp_servers, meter), meter)
        self._loading, self._outputs = threading.Lock(), Outputs()
        self._protocols: WeakKeyDictionary[asyncio.AbstractEventLoop, Protocol] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/mcp":
            await self._servers(scope, receive, send, _accepted_hosts(scope))
            return
        try:
            options = options_of(QueryParams(scope["query_string"]))
        except BadRequest as error:
            await JSONResponse(serialize.failure(error), error.code)(scope, receive, send)
            return
        if scope["method"] == "POST":
            body = await body_of(receive)
            if (refusal := refusal_of(body)) is not None:
                await JSONResponse(refusal, 400)(scope, receive, send)
                return
            receive = replayed(body, receive)
        loop = asyncio.get_running_loop()
        protocol = self._protocols.get(loop)
        if protocol is None:
            new_protocol = await anyio.to_thread.run_sync(self._make)
            protocol = self._protocols.setdefault(loop, new_protocol)
        sent = Headers(scope=scope).get("content-length", "")
        size = int(sent) if sent.isascii() and sent.isdigit() else SMALL_BYTES + 1  # sent in chunks: it may be large
        options = replace(options, failure=scope.get(FAILURE_KEY), size_bytes=size)
        await protocol.serve({**scope, OPTIONS_KEY: options}, receive, send, _accepted_hosts(scope))

    def sandbox_of(self, query: bytes, message: Any) -> tuple[str, str] | None:
        """Return the sandbox whose host's daemon must answer the message at /mcp?`query`; None: any daemon does."""
        try:
            options = options_of(QueryParams(query))
        except BadRequest:
            return None
        sandbox: tuple[str, str] | None = sdk.load("controller.mcp.destination").sandbox_of(
            self._services, message, options.namespace
        )
        return sandbox

    def _make(self) -> "Protocol":
        with self._loading:  # it takes half a second: not on the event loop
            protocol = sdk.load("controller.mcp.protocol")
            new_protocol: Protocol = protocol.Protocol(self._services, self._meter, self._outputs, self._is_here)
            return new_protocol


def options_of(query: QueryParams) -> Options:
    """Parse the query of the endpoint's address. Raises BadRequest with every error."""
    wrong = [
        f"`{parameter}` is not a parameter here; known: {', '.join(_KNOWN)}"
        for parameter in query
        if parameter not in _KNOWN
    ]
    names: Style | None = next((style for style in STYLES if style == query.get("names", "dots")), None)
    if names is None:
        wrong.append(f"names: `{query['names'][:60]}` is not one of {', '.join(STYLES)}")
    toolset: Toolset | None = next(
        (toolset_name for toolset_name in TOOLSETS if toolset_name == query.get("toolset", "all")), None
    )
    if toolset is None:
        wrong.append(f"toolset: `{query['toolset'][:60]}` is not one of {', '.join(TOOLSETS)}")
    read_only = query.get("readOnly", "false").lower()
    if read_only not in _TRUE + _FALSE:
        wrong.append(f"readOnly: `{read_only[:60]}` is not true or false")
    if wrong or names is None or toolset is None:
        raise BadRequest("; ".join(wrong))
    return Options(names, query.get("namespace") or "default", read_only in _TRUE, toolset)


def _accepted_hosts(scope: Scope) -> Sequence[str]:
    """Return the request's own Host header if it is acceptable.

    A page that resolves its name to this host has no token. So without one only local names are accepted. What another
    daemon forwards was accepted by it.
    """
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    is_trusted = "authorization" in headers or FORWARDED in scope.get("state", {})
    accepted = bool(host) and (is_trusted or is_local(host))
    return (host,) if accepted else ()
