"""The server that a request is for, and the connection that it belongs to."""

from dataclasses import dataclass, field

from controller.kinds.access.access import AccessRequest
from controller.kinds.mcpserver import KIND
from controller.service.mcp.server import Server

CONNECTION_HEADER, SESSION_HEADER = "Paddock-Connection", "Mcp-Session-Id"
UNSANDBOXED_HEADER = "Paddock-Unsandboxed"


@dataclass(frozen=True, slots=True)
class Target:
    """One server, or (name "") all of a namespace. Requests of one `connection` share their sessions.

    `server` is the one of that name, once it was read.
    """

    namespace: str
    name: str = ""
    connection: str = ""
    server: Server | None = field(default=None, compare=False)


def use_of(server: Server) -> AccessRequest:
    """Return the request for access that each use of a server is."""
    return AccessRequest("use", KIND.name, server.obj.namespace, server.obj.name, "mcp")
