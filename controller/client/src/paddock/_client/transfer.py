"""Large HTTP bodies in constant memory: one request on its own connection, streamed both ways."""

import http.client
import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

from paddock._client.connection import full_path
from paddock._client.credentials import authorization, trusted
from paddock._client.errors import ClientError, TooLarge, refusal
from paddock._client.request_log import logged
from paddock._client.server import Server, dial, unreachable

PIECE_BYTES = 1 << 18
_SEND_BUFFER_BYTES = 1 << 20  # of a Unix socket: the default is less than a piece, and each wake-up costs time
_CONNECT_SECONDS = 10.0


class Answer:
    """Response headers, and the body in chunks."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def header(self, name: str) -> str:
        """Return a header, or an empty string."""
        return self._response.getheader(name) or ""

    @property
    def size(self) -> int | None:
        """Size of the body in bytes, or None if unknown."""
        text = self.header("content-length")
        return int(text) if text.isdigit() else None

    def read(self, count: int) -> bytes:
        """Read 1 to `count` bytes, b"" at the end. Raises ClientError for a truncated body."""
        try:
            data = self._response.read1(count)
            # http.client does not report a truncated body of known size.
            if not data and self._response.length:
                raise ClientError(BROKE)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ClientError(BROKE) from error
        return data

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole body."""
        while data := self.read(PIECE_BYTES):
            yield data


BROKE = "the transfer is incomplete: the sandbox or the daemon ended it; see the daemon's log"


def check_size(size: int, max_bytes: float, params: Mapping[str, str]) -> None:
    """Raise TooLarge for a body over the limit."""
    if size > max_bytes:
        subject = params.get("path", "the answer")
        remedy = "read a part of it with a command, download it, or raise max_bytes"
        raise TooLarge(f"{subject}: has over {max_bytes:,} bytes; {remedy}")


def not_text(path: str, error: UnicodeDecodeError) -> ClientError:
    """Return the error for a file that is not text of the encoding asked for."""
    wrong = f"byte {error.start} is not valid {error.encoding}"
    return ClientError(f'{path}: {wrong}; use read_bytes for a binary file, or read it with errors="replace"')


@contextmanager
def exchange(
    server: Server,
    method: str,
    path: str,
    query: Mapping[str, str] | Sequence[tuple[str, str]],
    body: Iterable[bytes] | None = None,
) -> Iterator[Answer]:
    """Send one request; `path` is relative to the API version. Raises Refused, Unreachable, ClientError."""
    target = f"{full_path(path)}?{urlencode(query, errors='surrogateescape')}"
    link = _connection(server)
    try:
        try:
            link.putrequest(method, target)
            for name, value in authorization(server).items():
                link.putheader(name, value)
            if body is not None:
                link.putheader("Content-Type", "application/octet-stream")
                link.putheader("Transfer-Encoding", "chunked")
            with logged(method, target) as log_entry:
                link.endheaders()
                if body is not None:
                    _send(link, body)
                response = link.getresponse()
                log_entry.status = response.status
            if response.status >= 400:
                raise refusal(_json(response.read()), response.status)
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(server, str(error) or type(error).__name__) from error
        yield Answer(response)
    finally:
        link.close()


def _connection(server: Server) -> http.client.HTTPConnection:
    parts = urlsplit(server.url)
    host = parts.hostname or ""
    link: http.client.HTTPConnection
    if parts.scheme == "https":
        link = http.client.HTTPSConnection(host, parts.port, timeout=_CONNECT_SECONDS, context=trusted(server))
    else:
        link = http.client.HTTPConnection(host, parts.port, timeout=_CONNECT_SECONDS)
    try:
        if server.socket:
            link.sock = dial(server)
            link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        else:
            link.connect()
    except OSError as error:
        raise unreachable(server, error.strerror or str(error)) from error
    link.sock.settimeout(None)
    return link


def _send(link: http.client.HTTPConnection, body: Iterable[bytes]) -> None:
    """Send the body in chunks. If the daemon stops reading, its response has the reason."""
    with suppress(BrokenPipeError, ConnectionResetError):
        for piece in body:
            if piece:
                link.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        link.send(b"0\r\n\r\n")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
