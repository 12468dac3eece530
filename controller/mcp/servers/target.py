"""The server that a request is for, and the connection that it belongs to."""

from dataclasses import dataclass

CONNECTION_HEADER, SESSION_HEADER = "Paddock-Connection", "Mcp-Session-Id"
UNSANDBOXED_HEADER = "Paddock-Unsandboxed"


@dataclass(frozen=True, slots=True)
class Target:
    """One server, or (name "") all of a namespace. Requests of one `connection` share their sessions."""

    namespace: str
    name: str = ""
    connection: str = ""
