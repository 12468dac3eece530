"""MCP servers of other people, each in a sandbox."""

from paddock._async.objects import AsyncObjects
from paddock._models import condition_of
from paddock._transport.aio import AsyncTransport


class AsyncMCP:
    """MCPServers of a namespace.

    for server in await paddock.mcp.servers.list():
        print(server["metadata"]["name"], await paddock.mcp.is_sandboxed(server["metadata"]["name"]))
    """

    def __init__(self, transport: AsyncTransport, namespace: str) -> None:
        self._transport, self._namespace = transport, namespace

    @property
    def servers(self) -> AsyncObjects:
        """The MCPServers, as any other objects."""
        return AsyncObjects(self._transport, self._namespace, "mcpservers")

    async def is_sandboxed(self, name: str) -> bool:
        """Tell if a server runs in a sandbox, and not as the process of a user. Raises NotFound."""
        condition = condition_of(await self.servers.get(name), "Sandboxed") or {}
        return condition.get("status") != "False"
