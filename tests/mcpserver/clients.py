"""The official SDK's client on a test API's listener; its methods are called synchronously."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from controller.api.app import create_app
from controller.api.listeners import ListenerRules, Listeners
from controller.api.middleware.load import LoadLimits
from controller.mcp.endpoint import McpEndpoint
from controller.mcp.servers.sessions import Sessions
from tests.helpers_api import ApiStack

ERAS = ("2026-07-28", "legacy")


@contextmanager
def serving(
    api: ApiStack, load: LoadLimits = LoadLimits(), sessions: Sessions | None = None, is_here: Any = None, **rules: Any
) -> Iterator[Listeners]:
    """Start the listeners with MCP."""

    def make(who: Any) -> Any:
        endpoint = McpEndpoint(api.services, api.meter, sessions, is_here)
        return create_app(api.services, ready=lambda: api.checks, meter=api.meter, who=who, load=load, mcp_app=endpoint)

    listeners = Listeners(ListenerRules(api.socket, **rules), api.store.tokens, api.clock, make)
    listeners.start()
    try:
        yield listeners
    finally:
        if sessions is not None:
            sessions.close(0)  # before the listeners, as a daemon does: their streams end
        listeners.stop()


@asynccontextmanager
async def client(
    listener: Path, era: str = ERAS[0], token: str = "", query: str = "", path: str = "/mcp", **options: Any
) -> AsyncIterator[Client]:
    """The SDK's client over a Unix socket."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    transport = httpx2.AsyncHTTPTransport(uds=str(listener), verify=False)
    async with httpx2.AsyncClient(transport=transport, headers=headers, timeout=60) as http:
        url = f"http://localhost{path}{query}"
        async with Client(streamable_http_client(url, http_client=http), mode=era, **options) as created:
            yield created


class Mcp:
    """Clients of one listener, one for each era, token and query."""

    def __init__(self, listener: Path, portal: BlockingPortal, undo: ExitStack) -> None:
        self.listener, self.portal, self._undo = listener, portal, undo
        self._clients: dict[tuple[str, str, str], Client] = {}

    def client(self, era: str = ERAS[0], token: str = "", query: str = "") -> Client:
        key = era, token, query
        if key not in self._clients:
            opened = self.portal.wrap_async_context_manager(client(self.listener, era, token, query))
            self._clients[key] = self._undo.enter_context(opened)
        return self._clients[key]

    def do(self, method: str, *given: Any, era: str = ERAS[0], token: str = "", query: str = "", **named: Any) -> Any:
        """Return the result of one of the client's methods."""
        return self.portal.call(partial(getattr(self.client(era, token, query), method), *given, **named))

    def call(self, name: str, given: dict[str, Any] | None = None, **more: Any) -> Any:
        """Return the result of a tool."""
        return self.do("call_tool", name, given or {}, **more)

    def data(self, name: str, given: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Return the structured result of a call without an error; its text is the same as JSON."""
        result = self.call(name, given, **more)
        assert not result.is_error, result.content[0].text
        assert json.loads(result.content[0].text) == result.structured_content
        structured_content: dict[str, Any] = result.structured_content
        return structured_content

    def error(self, name: str, given: dict[str, Any] | None = None, **more: Any) -> str:
        """Return the message of a call that reports an error."""
        result = self.call(name, given, **more)
        assert result.is_error, result
        assert result.structured_content is None
        return str(result.content[0].text)


@contextmanager
def connected(listener: Path) -> Iterator[Mcp]:
    """Yield clients of a listener."""
    with start_blocking_portal() as portal, ExitStack() as undo:
        yield Mcp(listener, portal, undo)


@contextmanager
def talking(api: ApiStack, **rules: Any) -> Iterator[Mcp]:
    """Serve the API, and yield its clients."""
    with serving(api, **rules), connected(api.socket) as created:
        yield created
