"""The TCP listener, for callers with tokens: over TLS, or on loopback without it."""

import ipaddress
import os
import socket
import ssl
import stat
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from controller.api.server.connection_limiter import ConnectionLimiter
from controller.api.server.request_deadline import SHARE
from controller.api.server.server import Serving, SocketTaken, uvicorn_config
from controller.api.server.stalled_clients import STALL_SECONDS


class TcpServer:
    """The TCP listener. `start` binds, serves and sets `url`; `stop` ends it."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        cert: Path | None,
        key: Path | None,
        grace_seconds: int = 5,
        stall_seconds: float = STALL_SECONDS,
        share: float = SHARE,
    ) -> None:
        """Keep the parameters; nothing is read or bound before `start`. One remote address may have `share`."""
        self._app, self._host, self._port, self._stall_seconds = app, host, port, stall_seconds
        self._share = share
        self._cert, self._key, self._grace_seconds = cert, key, grace_seconds
        self._serving: Serving | None = None
        self.url = ""

    def start(self) -> None:
        """Bind and serve. Raises SocketTaken for an address or a certificate that can't be used."""
        address = resolve(self._host, self._port)
        secure = self._cert is not None
        if not secure and not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback:
            raise SocketTaken(
                f"the API is not served at {self._host} without TLS: tokens could be read on the network; set"
                " tls_cert_file and tls_key_file, or api_host to 127.0.0.1"
            )
        options: dict[str, Any] = {"ssl_certfile": self._cert, "ssl_keyfile": checked_key(self._key)} if secure else {}
        stall = self._stall_seconds
        config = uvicorn_config(
            self._app, grace_seconds=self._grace_seconds, stall_seconds=stall, share=self._share, **options
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise SocketTaken(f"{self._cert} and {self._key} can't be used for TLS: {error}") from error
        listening = bound(address)
        self.url = f"{'https' if secure else 'http'}://{shown_host(self._host)}:{listening.getsockname()[1]}"
        self._serving = Serving(config, grace_seconds=self._grace_seconds)
        self._serving.start(ConnectionLimiter(listening, self._share))

    def stop(self) -> None:
        """Accept no more requests, and let running ones end. May be called again."""
        if self._serving is not None:
            self._serving.stop()


def resolve(host: str, port: int, setting: str = "api_host") -> tuple[str, int]:
    """Return the address to listen at. Raises SocketTaken."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SocketTaken(f"{setting} `{host}` is not an address of this host: {error}; set another") from error
    return str(addresses[0][4][0]), port


def bound(address: tuple[str, int], setting: str = "api_host") -> socket.socket:
    """Return a socket that listens there. Raises SocketTaken."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        what = "the API" if setting == "api_host" else setting
        raise SocketTaken(f"{what} can't be served at {address[0]}:{address[1]}: {error.strerror}") from error
    return sock


def checked_key(key: Path | None) -> Path | None:
    """Return the private key's file. Raises SocketTaken if others may read it."""
    if key is None:
        return None
    try:
        key_stat = os.stat(key)
    except OSError as error:
        raise SocketTaken(f"{key}: {error.strerror}; set tls_key_file to the private key") from error
    if stat.S_IMODE(key_stat.st_mode) & 0o037:
        raise SocketTaken(f"{key} is a private key that others may use; run `chmod 0600 {key}`")
    return key


def shown_host(host: str) -> str:
    """Return a host as URLs have it."""
    return f"[{host}]" if ":" in host else host
