"""HTTP over a socket of our own, for streams (events, logs, exec), and for the calls that each start and claim makes.

docker-py's pooled connections can't be cut from another thread, and its upgrade loses the bytes that came with
the headers (5 of 30 first frames were misaligned). Here the socket is ours: `close()` frees it from any thread.
A call by docker-py and requests takes a millisecond of processor more than the same one here.
"""

import contextlib
import http.client
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from controller.engine.docker.errors import Fault, of_status
from controller.engine.kernel.engine_socket import unix_path

_CHUNK_BYTES = 64 << 10


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


def connection(base_url: str, timeout_seconds: float) -> http.client.HTTPConnection:
    """Return an unconnected connection to `unix://<path>` or `tcp://<host>:<port>`. Raises ValueError otherwise."""
    path, parts = unix_path(base_url), urlsplit(base_url)
    if path:
        return _UnixConnection(path, timeout_seconds)
    if parts.scheme in ("tcp", "http") and parts.hostname:
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_seconds)
    raise ValueError(f"`{base_url}` is not an engine address; write unix:///path or tcp://host:port")


class HttpStream:
    """Streamed body of an answer; bidirectional after an upgrade.

    One thread reads and finally releases; any thread may cut. Only `release` closes the descriptor, so that no thread
    ever reads from a number that was reused by another connection.
    """

    def __init__(self, sock: socket.socket, response: http.client.HTTPResponse) -> None:
        self._sock = sock
        self._response = response
        self._upgraded = response.status == 101
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._released = False

    @property
    def released(self) -> bool:
        """True once its reading thread has ended."""
        return self._released

    def wait_at_most(self, seconds: float | None) -> None:
        """Set the time-out of each read and write from now on; None for none. They raise TimeoutError then."""
        self._sock.settimeout(seconds)

    def read(self) -> bytes:
        """Return the available bytes, at least one; b"" at the end. Raises OSError or HTTPException."""
        if self._upgraded:
            # The reader that parsed the headers may hold the stream's first bytes: never read past it.
            return self._response.fp.read1(_CHUNK_BYTES)
        return self._response.read1(_CHUNK_BYTES)

    def write(self, data: bytes) -> None:
        """Write all. Raises OSError once the peer or `cut` has ended it."""
        with self._writing:
            self._sock.sendall(data)

    def end_of_input(self) -> None:
        """Half-close: end the writing, and go on reading."""
        self._shut(socket.SHUT_WR)

    def cut(self) -> None:
        """End both directions, from any thread: a blocked read or write returns at once. Idempotent."""
        self._shut(socket.SHUT_RDWR)

    def release(self) -> None:
        """Cut, and close the descriptor. For the reading thread only."""
        self.cut()
        with self._lock, self._writing:
            self._released = True
            # An upgraded response drops its reader without closing it: close both.
            self._sock.close()
            self._response.close()

    def _shut(self, how: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            if not self._released:
                self._sock.shutdown(how)


def request(
    base_url: str,
    method: str,
    path: str,
    *,
    timeout_seconds: float,
    params: Mapping[str, str] | None = None,
    body: Any = None,
    upgrade: bool = False,
    headers: Mapping[str, str] | None = None,
) -> HttpStream:
    """Send one request and wait for its status. Raises Fault for a status of 400 or above, else one of FOREIGN.

    A `body` of bytes, or an iterator of them, is sent as it is (a tar archive), any other as JSON.
    """
    link = connection(base_url, timeout_seconds)
    headers = {
        **(headers or {}),
        **({"Connection": "Upgrade", "Upgrade": "tcp"} if upgrade else {"Connection": "close"}),
    }
    data = body if body is None or isinstance(body, bytes | Iterator) else json.dumps(body)
    if data is not None:
        headers["Content-Type"] = "application/json" if isinstance(data, str) else "application/x-tar"
    try:
        link.request(method, f"{path}?{urlencode(params)}" if params else path, body=data, headers=headers)
        sock = link.sock
        response = link.getresponse()
        if response.status >= 400:
            raise refusal(response.status, response.read())
        return HttpStream(sock, response)
    except BaseException:
        link.close()
        raise


class Connections:
    """Calls with a whole answer to one engine. Thread-safe. Idle connections are kept for those that only read.

    One that changes something has a connection of its own (see transport.py).
    """

    def __init__(self, base_url: str, most: int) -> None:
        self._base_url = base_url
        self._idle: deque[http.client.HTTPConnection] = deque(maxlen=most)

    def read(self, path: str, timeout_seconds: float) -> bytes:
        """Return the body of the answer to a GET. Raises Fault for a status of 400 or above, else one of FOREIGN."""
        try:
            link = self._idle.pop()
        except IndexError:
            return self._read(connection(self._base_url, timeout_seconds), path)
        link.timeout = timeout_seconds
        if link.sock is not None:
            link.sock.settimeout(timeout_seconds)
        try:
            return self._read(link, path)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):  # closed while it was idle
            return self._read(connection(self._base_url, timeout_seconds), path)

    def change(self, path: str, body: Any, timeout_seconds: float) -> bytes:
        """Return the body of the answer to a POST of JSON. Raises Fault for a status of 400 or above, else FOREIGN."""
        with contextlib.closing(connection(self._base_url, timeout_seconds)) as link:
            data, headers = None, {"Connection": "close"}
            if body is not None:
                data, headers["Content-Type"] = json.dumps(body), "application/json"
            link.request("POST", path, body=data, headers=headers)
            response = link.getresponse()
            return _checked(response.status, response.read())

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _read(self, link: http.client.HTTPConnection, path: str) -> bytes:
        try:
            link.request("GET", path, headers={"Connection": "keep-alive"})
            response = link.getresponse()
            content = response.read()
        except BaseException:
            link.close()
            raise
        if len(self._idle) < (self._idle.maxlen or 0) and not response.will_close:
            self._idle.append(link)
        else:
            link.close()
        return _checked(response.status, content)


def _checked(status: int, content: bytes) -> bytes:
    if status >= 400:
        raise refusal(status, content)
    return content


def refusal(status: int, body: bytes) -> Fault:
    """Return the fault of an answer of 400 or above."""
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = body.decode(errors="replace")
    return of_status(status, message)
