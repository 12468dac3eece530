"""Address of the daemon: the given one, or the existing socket."""

import ipaddress
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from paddock._client.contexts import chosen_context
from paddock._client.errors import BadAddress, ClientError, Unreachable

_SYSTEM_SOCKET = "/run/paddock/paddock.sock"
_UNKNOWN_AUTHORITY = "name its authority's certificate: PADDOCK_CA_FILE, or `paddock config set-context --ca-file`"
_OTHER_NAME = "use a name that it has, or have it made for this one"
_REMEDIES = {10: "have a new one made", 62: _OTHER_NAME, 64: _OTHER_NAME}  # OpenSSL's: expired; another name, address


@dataclass(frozen=True, slots=True)
class Server:
    """Address. `socket` is a Unix socket's path; if empty, `url` is used over TCP.

    `token`, `token_file` and `ca_file` are those of a context or a program; empty: those of the environment.
    """

    url: str
    socket: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    ca_file: str = ""

    @property
    def in_clear(self) -> bool:
        """True if data leaves this machine without TLS."""
        parts = urlsplit(self.url)
        return not self.socket and parts.scheme == "http" and not _is_loopback(parts.hostname or "")

    def __str__(self) -> str:
        return f"unix://{self.socket}" if self.socket else self.url


def locate(named_address: str | None, *, context: str | None = None) -> Server:
    """Return the daemon of `named_address` or `context`, else of the environment, the current context, or a socket.

    Raises BadAddress for a malformed address, and ClientError for a missing context or a bad file of contexts.
    """
    if named_address and context:
        raise ClientError("a server and a context exclude each other; name one")
    if named_address:
        return parse_address(named_address)
    if context is None:
        for variable in ("PADDOCK_SERVER", "PADDOCK_SOCKET"):
            if address := os.environ.get(variable):
                return parse_address(address)
    chosen = chosen_context(context)
    if chosen is not None and chosen.server:
        return replace(
            parse_address(chosen.server),
            token_file=chosen.token_file,
            ca_file=chosen.ca_file,
        )
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own_socket = Path(runtime) / "paddock.sock" if runtime else None
    return parse_address(str(own_socket) if own_socket is not None and _is_ours(own_socket) else _SYSTEM_SOCKET)


def _is_ours(path: Path) -> bool:
    """Tell if the socket is root's or our own: after `su` the folder may belong to another user."""
    try:
        return path.stat().st_uid in (0, os.geteuid())
    except OSError:
        return False


def dial(server: Server) -> socket.socket:
    """Connect to the daemon's Unix socket. Raises Unreachable."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(server.socket)
    except PermissionError as error:
        sock.close()
        message = f"no permission to use {server.socket}; run this as root, or as a member of the group that owns it"
        raise Unreachable(message) from error
    except OSError as error:
        sock.close()
        raise unreachable(server, error.strerror or str(error)) from error
    return sock


def unreachable(server: Server, why: str) -> Unreachable:
    """Return the error for a daemon that does not answer, or whose certificate the handled exception refuses."""
    certificate_error = next(
        (cause for cause in _causes(sys.exception()) if isinstance(cause, ssl.SSLCertVerificationError)), None
    )
    if certificate_error is not None:
        remedy = _REMEDIES.get(certificate_error.verify_code, _UNKNOWN_AUTHORITY)
        return Unreachable(f"{server}: its certificate is not trusted ({certificate_error.verify_message}); {remedy}")
    return Unreachable(f"no Paddock daemon answers at {server} ({why}); start it with `make up` or `paddock serve`")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_address(text: str) -> Server:
    """Return the address in a text. Raises BadAddress."""
    if text.startswith("/"):
        return Server("http://paddock", text)
    parts = urlsplit(text)
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return Server("http://paddock", parts.path)
    if parts.scheme in ("http", "https") and parts.netloc:
        return Server(text.rstrip("/"))
    raise BadAddress(f"`{text}` is not a valid server address; write unix:///path/to/socket or http://host:port")
