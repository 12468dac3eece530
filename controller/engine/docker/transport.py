"""HTTP over the engine's Unix socket for docker-py, with one real connection pool for requests that only read.

docker-py's own adapter keeps a pool for every *URL*, so that each container's inspect opens a connection of its
own, and it leaves the socket open when connecting fails.

A request that changes something has a connection of its own. A stopping engine closes its listener, then stops its
containers while it still serves open connections. A container that we restart at that moment stays half mounted, and
Docker 20.10 can never remove it (see tests/engine/test_engine_shutdown.py).
"""

# ruff: noqa: ARG002 - the signatures are those that requests calls

import socket
from collections.abc import Mapping
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection

_READS = ("GET", "HEAD")


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The pool sets `timeout` to that of the request before it connects.
            sock.settimeout(self.timeout)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


class _UnixPool(urllib3.HTTPConnectionPool):
    def __init__(self, path: str, size: int) -> None:
        super().__init__("localhost", maxsize=size)
        self._path = path

    def _new_conn(self) -> Any:
        return _UnixConnection(self._path)


class _NoPool(_UnixPool):
    """A connection for each request."""

    def __init__(self, path: str) -> None:
        super().__init__(path, 1)

    def _get_conn(self, timeout: float | None = None) -> Any:
        return self._new_conn()

    def _put_conn(self, conn: Any) -> None:
        if conn is not None:
            conn.close()


class UnixAdapter(HTTPAdapter):
    """Mount it on a session for the scheme whose requests go to the socket at `path`. Thread-safe."""

    def __init__(self, path: str, *, size: int) -> None:
        super().__init__()
        self._pool, self._no_pool = _UnixPool(path, size), _NoPool(path)

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: bool | str | None,
        proxies: Mapping[str, str] | None = None,
        cert: Any = None,
    ) -> Any:
        return self._pool if request.method in _READS else self._no_pool

    def request_url(self, request: requests.PreparedRequest, proxies: Mapping[str, str] | None) -> str:
        return request.path_url

    def close(self) -> None:
        super().close()
        self._pool.close()
        self._no_pool.close()
