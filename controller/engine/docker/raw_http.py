"""One HTTP exchange over a socket of our own, for what streams: events, logs, exec.

docker-py's pooled connections can't be cut from another thread, and its upgrade loses the bytes that came with
the headers (5 of 30 first frames were misaligned). Here the socket is ours: `close()` frees it from any thread.
"""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from controller.engine.docker.errors import Fault, of_status

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
    """An unconnected connection to `unix://<path>` or `tcp://<host>:<port>`. ValueError for anything else."""
    path, parts = unix_path(base_url), urlsplit(base_url)
    if path:
        return _UnixConnection(path, timeout_seconds)
    if parts.scheme in ("tcp", "http") and parts.hostname:
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_seconds)
    raise ValueError(f"`{base_url}` is no engine address; write unix:///path or tcp://host:port")


def unix_path(base_url: str) -> str:
    """The socket's path in `unix://<path>`, "" in any other address."""
    scheme, _, path = base_url.partition("://")
    return path if scheme in ("unix", "http+unix") else ""


class Wire:
    """An answered request whose body is read as it comes; after an upgrade, both ways.

    One thread reads and, at its end, releases; any thread may cut. A handle is closed only by `release`, so that
    nobody ever reads from a number that was given to another connection meanwhile.
    """

    def __init__(self, sock: socket.socket, response: http.client.HTTPResponse) -> None:
        self._sock = sock
        self._response = response
        self._upgraded = response.status == 101
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._released = False

    def wait_at_most(self, seconds: float | None) -> None:
        """How long one read or write may take from now on; None: for ever. Past it: TimeoutError."""
        self._sock.settimeout(seconds)

    def read(self) -> bytes:
        """What is there, at least one byte; b"" at the end. OSError or HTTPException when it broke."""
        if self._upgraded:
            # The reader that parsed the headers may hold the stream's first bytes: never read past it.
            return self._response.fp.read1(_CHUNK_BYTES)
        return self._response.read1(_CHUNK_BYTES)

    def write(self, data: bytes) -> None:
        """Write all. OSError when the other side, or `cut`, ended it."""
        with self._writing:
            self._sock.sendall(data)

    def end_of_input(self) -> None:
        """No more will be written; reading goes on."""
        self._shut(socket.SHUT_WR)

    def cut(self) -> None:
        """End both directions, from any thread: a read or write that waits ends at once. May be called again."""
        self._shut(socket.SHUT_RDWR)

    def release(self) -> None:
        """Cut, and close the handle. Only by the thread that reads."""
        self.cut()
        with self._lock, self._writing:
            self._released = True
            # An upgraded response forgets its reader without closing it: close both ends ourselves.
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
) -> Wire:
    """Send one request and wait for its status. Raises Fault for a status of 400 or above, else what FOREIGN lists."""
    link = connection(base_url, timeout_seconds)
    headers = {"Connection": "Upgrade", "Upgrade": "tcp"} if upgrade else {"Connection": "close"}
    data = None if body is None else json.dumps(body)
    if data is not None:
        headers["Content-Type"] = "application/json"
    try:
        link.request(method, f"{path}?{urlencode(params)}" if params else path, body=data, headers=headers)
        sock = link.sock
        response = link.getresponse()
        if response.status >= 400:
            raise refusal(response.status, response.read())
        return Wire(sock, response)
    except BaseException:
        link.close()
        raise


def refusal(status: int, body: bytes) -> Fault:
    """The fault of an answer of 400 or above."""
    try:
        words = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        words = body.decode(errors="replace")
    return of_status(status, words)
