"""Address of the daemon: the given one, or the existing socket."""

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from controller.client.errors import BadAddress, Unreachable

_SYSTEM_SOCKET = "/run/paddock/paddock.sock"


@dataclass(frozen=True, slots=True)
class Server:
    """Address. `socket` is a Unix socket's path; if empty, `url` is used over TCP."""

    url: str
    socket: str = ""

    @property
    def in_clear(self) -> bool:
        """True if data leaves this machine without TLS."""
        parts = urlsplit(self.url)
        return not self.socket and parts.scheme == "http" and not _is_loopback(parts.hostname or "")

    def __str__(self) -> str:
        return f"unix://{self.socket}" if self.socket else self.url


def locate(given: str | None) -> Server:
    """Return the daemon given by --server or the environment, else the first existing socket."""
    if given:
        return _parse(given)
    if path := os.environ.get("PADDOCK_SOCKET"):
        return _parse(path)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = Path(runtime) / "paddock.sock" if runtime else None
    return _parse(str(own) if own is not None and _is_ours(own) else _SYSTEM_SOCKET)


def _is_ours(path: Path) -> bool:
    """Tell if the socket is root's or our own: after `su` the folder may belong to another user."""
    try:
        return path.stat().st_uid in (0, os.geteuid())
    except OSError:
        return False


def dial(server: Server) -> socket.socket:
    """Connect to the daemon's Unix socket. Raises Unreachable."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(server.socket)
    except PermissionError as error:
        made.close()
        message = f"no permission to use {server.socket}; run this as root, or as a member of the group that owns it"
        raise Unreachable(message) from error
    except OSError as error:
        made.close()
        raise unreachable(server, error.strerror or str(error)) from error
    return made


def unreachable(server: Server, why: str) -> Unreachable:
    """Return the error for a daemon that does not answer."""
    return Unreachable(f"no Paddock daemon answers at {server} ({why}); start it with `make up` or `paddock serve`")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse(text: str) -> Server:
    if text.startswith("/"):
        return Server("http://paddock", text)
    parts = urlsplit(text)
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return Server("http://paddock", parts.path)
    if parts.scheme in ("http", "https") and parts.netloc:
        return Server(text.rstrip("/"))
    raise BadAddress(f"`{text}` is not a valid server address; write unix:///path/to/socket or http://host:port")
