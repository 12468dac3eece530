"""HTTP over the engine's Unix socket for docker-py, with one real pool of connections.

docker-py's own adapter keeps a pool for every *URL*, so that each container's inspect opens a connection of its
own, and it leaves the socket open when connecting fails.
"""

# ruff: noqa: ARG002 - the signatures are those that requests calls

import socket
from collections.abc import Mapping
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection


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


class UnixAdapter(HTTPAdapter):
    """Mount it on a session for the scheme whose requests go to the socket at `path`. Thread-safe."""

    def __init__(self, path: str, *, size: int) -> None:
        super().__init__()
        self._pool = _UnixPool(path, size)

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: bool | str | None,
        proxies: Mapping[str, str] | None = None,
        cert: Any = None,
    ) -> Any:
        return self._pool

    def get_connection(self, url: str | bytes, proxies: Mapping[str, str] | None = None) -> Any:
        """What requests before 2.32.2 asks instead."""
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Mapping[str, str] | None) -> str:
        return request.path_url

    def close(self) -> None:
        super().close()
        self._pool.close()
