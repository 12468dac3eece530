"""The official SDK's client on a test world's listener, and plain HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from controller.api.app import create_app
from controller.api.server.listeners import ListenerRules, Listeners
from controller.mcp.endpoint import McpEndpoint
from tests.helpers_api import World

T = TypeVar("T")
ERAS = ("2026-07-28", "legacy")


@contextmanager
def serving(world: World, **rules: Any) -> Iterator[Listeners]:
    """Start the listeners with MCP."""

    def make(who: Any) -> Any:
        endpoint = McpEndpoint(world.services, world.meter)
        return create_app(world.services, ready=lambda: world.checks, meter=world.meter, who=who, mcp_app=endpoint)

    doors = Listeners(ListenerRules(world.socket, **rules), world.store.tokens, world.clock, make)
    doors.start()
    try:
        yield doors
    finally:
        doors.stop()


@asynccontextmanager
async def client(
    world: World, era: str = ERAS[0], token: str = "", query: str = "", **options: Any
) -> AsyncIterator[Client]:
    """The SDK's client over the Unix socket."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    transport = httpx2.AsyncHTTPTransport(uds=str(world.socket))
    async with httpx2.AsyncClient(transport=transport, headers=headers, timeout=60) as http:
        url = f"http://localhost/mcp{query}"
        async with Client(streamable_http_client(url, http_client=http), mode=era, **options) as made:
            yield made


def run(world: World, do: Callable[[Client], Awaitable[T]], era: str = ERAS[0], **options: Any) -> T:
    """Return what `do` returns with a client, in a loop of its own."""

    async def with_client() -> T:
        async with client(world, era, **options) as made:
            return await do(made)

    with serving(world):
        return asyncio.run(with_client())
