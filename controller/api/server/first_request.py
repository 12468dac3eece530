"""A TCP listener whose application is built at the first connection: until then it costs a thread that waits."""

import ipaddress
import select
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from starlette.types import ASGIApp

from controller.api.server.connection_limiter import ConnectionLimiter
from controller.api.server.peer_credentials import PeerProtocol
from controller.api.server.request_deadline import SHARE
from controller.api.server.server import Serving, SocketTaken, uvicorn_config
from controller.api.server.stalled_clients import STALL_SECONDS
from controller.api.server.tcp import bound, checked_key, resolve, shown_host

_GRACE_SECONDS = 5
_log = structlog.get_logger("paddock.api")


class FirstRequestServer:
    """The listener. `start` binds and sets `url` and `port`; `stop` ends it. `make` builds the application."""

    def __init__(
        self,
        make: Callable[[], ASGIApp],
        address: tuple[str, int],
        setting: str,
        *,
        cert: Path | None = None,
        key: Path | None = None,
        stall_seconds: float = STALL_SECONDS,
        share: float = SHARE,
        is_needed: Callable[[], bool] = lambda: False,
        protocol: Callable[..., PeerProtocol] = PeerProtocol,
        sni_callback: Callable[[Any, str | None, ssl.SSLContext], None] | None = None,
    ) -> None:
        """`setting` names the address in messages. Without a certificate it must be of the loopback.

        `is_needed` is asked once, on the waiting thread: True if the application is built without a connection.
        """
        self._make, self._address, self._setting = make, address, setting
        self._cert, self._key = cert, key
        self._stall_seconds, self._share, self._is_needed = stall_seconds, share, is_needed
        self._protocol, self._sni_callback = protocol, sni_callback
        self._wake: socket.socket | None = None
        self._waking: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._serving: Serving | None = None
        self.url, self.port = "", 0

    def start(self) -> None:
        """Bind, and wait on a thread. Raises SocketTaken for an address or a certificate that can't be used."""
        host, port = resolve(*self._address, self._setting)
        if self._cert is None and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            raise SocketTaken(
                f"{self._setting} is not served at {host} without TLS: tokens could be read on the network; set"
                " the certificate and its key beside it, or an address of 127.0.0.1"
            )
        key = checked_key(self._key)
        if self._cert is not None:
            _check_certificate(self._cert, key)
        listening = bound((host, port), self._setting)
        self.port = listening.getsockname()[1]
        self.url = f"{'https' if self._cert else 'http'}://{shown_host(self._address[0])}:{self.port}"
        self._wake, self._waking = socket.socketpair()
        self._thread = threading.Thread(
            target=self._wait, args=(listening, self._wake), name="first-request", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Accept no more requests, and let running ones end. May be called again."""
        thread, self._thread = self._thread, None
        if thread is not None and self._wake is not None and self._waking is not None:
            self._waking.send(b".")
            thread.join()
            self._wake.close()
            self._waking.close()
        if self._serving is not None:
            self._serving.stop()

    def _wait(self, listening: socket.socket, wake: socket.socket) -> None:
        """Wait for the first connection, then serve it and all others. If that fails, the next one tries again."""
        try:
            if self._is_needed():
                self._serve(listening)
        except Exception:
            _log.exception("listener not ready before its first connection", setting=self._setting)
        while self._serving is None:
            readable, _, _ = select.select([listening, wake], [], [])
            if wake in readable:
                listening.close()
                return
            try:
                self._serve(listening)
            except Exception:  # nobody waits for this thread
                _log.exception("listener not ready", setting=self._setting)
                listening.accept()[0].close()

    def _serve(self, listening: socket.socket) -> None:
        options: dict[str, Any] = {"ssl_certfile": self._cert, "ssl_keyfile": self._key} if self._cert else {}
        stall, share = self._stall_seconds, self._share
        config = uvicorn_config(
            self._make(),
            grace_seconds=_GRACE_SECONDS,
            stall_seconds=stall,
            share=share,
            protocol=self._protocol,
            **options,
        )
        config.load()
        if config.ssl is not None and self._sni_callback is not None:
            config.ssl.sni_callback = self._sni_callback
        serving = Serving(config, grace_seconds=_GRACE_SECONDS)
        serving.start(ConnectionLimiter(listening, share))
        self._serving = serving


def _check_certificate(cert: Path, key: Path | None) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise SocketTaken(f"{cert} and {key} can't be used for TLS: {error}") from error
