# Generated from _async/mcp.py by `python -m tests.sdk.unasync`: change that one.
"""MCP servers of other people, each in a sandbox."""

from paddock._models import condition_of
from paddock._sync.objects import Objects
from paddock._transport.blocking import Transport


class MCP:
    """MCPServers of a namespace.

    for server in paddock.mcp.servers.list():
        print(server["metadata"]["name"], paddock.mcp.is_sandboxed(server["metadata"]["name"]))
    """

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._transport, self._namespace = transport, namespace

    @property
    def servers(self) -> Objects:
        """The MCPServers, as any other objects."""
        return Objects(self._transport, self._namespace, "mcpservers")

    def is_sandboxed(self, name: str) -> bool:
        """Tell if a server runs in a sandbox, and not as the process of a user. Raises NotFound."""
        condition = condition_of(self.servers.get(name), "Sandboxed") or {}
        return condition.get("status") != "False"
