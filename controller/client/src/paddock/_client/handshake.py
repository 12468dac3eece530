"""WebSocket handshake on a plain socket, for protocols that do their own framing."""

import base64
import hashlib
import http.client
import io
import json
import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from paddock._client.credentials import authorization, trusted
from paddock._client.errors import ClientError, refusal
from paddock._client.request_log import logged
from paddock._client.server import Server, dial, unreachable

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTROL_BYTES = 1 << 10
HANDSHAKE_SECONDS = 60.0  # a suspended sandbox is resumed first


def open_socket(server: Server) -> socket.socket:
    """Open a socket to the daemon. Raises Unreachable."""
    if server.socket:
        sock = dial(server)
    else:
        parts = urlsplit(server.url)
        secure = parts.scheme == "https"
        try:
            sock = socket.create_connection((parts.hostname or "", parts.port or (443 if secure else 80)), 10.0)
            if secure:
                sock = trusted(server).wrap_socket(sock, server_hostname=parts.hostname)
        except OSError as error:
            raise unreachable(server, error.strerror or str(error)) from error
    sock.settimeout(HANDSHAKE_SECONDS)
    return sock


def upgrade(
    sock: socket.socket, server: Server, target: str, offered: Sequence[str]
) -> tuple[socket.SocketIO, http.client.HTTPMessage]:
    """Upgrade the socket to a WebSocket; return its unread stream and the response headers.

    `protocol` reads the negotiated protocol from these. Raises Refused, Unreachable, ClientError.
    """
    key = base64.b64encode(os.urandom(16))
    host = urlsplit(server.url).netloc
    own_headers = "".join(f"{name}: {value}\r\n" for name, value in authorization(server).items())
    try:
        with logged("WebSocket", target) as log_entry:
            sock.sendall(
                f"GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n"
                f"{own_headers}Sec-WebSocket-Protocol: {', '.join(offered)}\r\n\r\n".encode("latin-1")
            )
            file = sock.makefile("rb", buffering=0)
            status = log_entry.status = _status(file.readline(_CONTROL_BYTES))
        headers = http.client.parse_headers(file)
        if status != 101:
            size = headers.get("Content-Length", "0")
            body = io.BufferedReader(file).read(int(size) if size.isdigit() else 0)
            raise refusal(_json(body), status)
    except (OSError, http.client.HTTPException) as error:
        raise unreachable(server, str(error) or type(error).__name__) from error
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    if headers.get("Sec-WebSocket-Accept") != accept:
        raise ClientError(f"{server} is not a Paddock daemon; check --server")
    return file, headers


def protocol(headers: http.client.HTTPMessage) -> str:
    """Return the protocol that the daemon chose, or an empty string."""
    return headers.get("Sec-WebSocket-Protocol", "")


def _status(line: bytes) -> int:
    fields = line.split(b" ", 2)
    if len(fields) < 2 or not fields[0].startswith(b"HTTP/1.") or not fields[1].isdigit():
        raise http.client.BadStatusLine(line.decode("latin-1"))
    return int(fields[1])


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None
