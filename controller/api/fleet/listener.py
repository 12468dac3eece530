"""The fleet listener: requests that other daemons forward, over mutual TLS 1.3."""

import asyncio
import ssl
from functools import partial
from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.api.common.errors import refuse
from controller.api.fleet import identity, relay
from controller.api.fleet.forwarding import MISDIRECTED
from controller.api.fleet.tls import FleetTls, names_of
from controller.api.server.connection_limiter import ConnectionLimiter
from controller.api.server.peer_credentials import PeerProtocol
from controller.api.server.server import Serving, uvicorn_config
from controller.api.server.tcp import bound, resolve
from controller.kinds.common.http_head import StrictConnection
from controller.service.access.access import FORWARDED
from controller.service.errors import Forbidden, ServiceError

_NAMES = "fleet_names"  # of the peer's certificate, in the state of its requests
_HEAD_BYTES = 1 << 20  # grants may name many images
_KEEP_SECONDS = 60
_BEGINNINGS = ("http.response.start", "websocket.http.response.start")
_STALL_SECONDS = 60.0  # the daemon that was asked cuts its own stalled clients long before
_log = structlog.get_logger("paddock.fleet")


class _FleetProtocol(PeerProtocol):
    """The API's protocol, with the host names of the peer's certificate in the state of each request."""

    def __init__(self, *arguments: Any, tls: FleetTls, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tls = tls
        self.conn: StrictConnection = StrictConnection(_HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("peercert")
        names = [name for name in names_of(peer or {}) if not self._tls.problem(peer, name)]
        if not names:
            _log.warning("connection to the fleet listener refused", error=self._tls.problem(peer, self._tls.name))
            transport.abort()
        self.app_state = {**self.app_state, _NAMES: frozenset(names)}


class FleetApp:
    """The application as the fleet listener serves it: it believes the identity that a host forwards."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            forwarded = _identity(scope)
        except ServiceError as error:
            _log.warning("forwarded request refused", certificate=_certificate(scope), error=str(error))
            await refuse(error, scope, receive, send)
            return
        name = identity.HEADER.encode()
        secure = forwarded.scheme == "https"
        scheme = forwarded.scheme if scope["type"] == "http" else "wss" if secure else "ws"
        headers = [header for header in scope["headers"] if header[0] != name]
        state = {**scope.get("state", {}), FORWARDED: forwarded}

        async def marked(message: Message) -> None:
            if message["type"] in _BEGINNINGS:
                wrong = [(name, relay.MISDIRECTED)] if state.get(MISDIRECTED) else []
                answer_headers = [header for header in message.get("headers", []) if header[0].lower() != name]
                message = {**message, "headers": [*answer_headers, *wrong]}
            await send(message)

        await self._app({**scope, "headers": headers, "state": state, "scheme": scheme}, receive, marked)


def _identity(scope: Scope) -> identity.Identity:
    """Return the identity that a host forwards. Raises Forbidden; BadRequest."""
    identity_headers = Headers(scope=scope).getlist(identity.HEADER)
    if len(identity_headers) != 1:
        raise Forbidden(
            "the fleet listener takes only requests that daemons of the fleet forward; send others to the API"
        )
    forwarded = identity.decode(identity_headers[0])
    if forwarded.host not in scope.get("state", {}).get(_NAMES, ()):
        raise Forbidden(
            f"host `{forwarded.host[:60]}`: the certificate is for {_certificate(scope)}; use that host's own"
        )
    return forwarded


def _certificate(scope: Scope) -> str:
    return ", ".join(f"`{name}`" for name in sorted(scope.get("state", {}).get(_NAMES, ()))) or "no host"


class FleetServer:
    """The fleet listener at `host` and `port`. `start` binds and serves; `stop` ends it."""

    def __init__(self, app: ASGIApp, host: str, port: int, tls: FleetTls, *, grace_seconds: int = 5) -> None:
        self._host, self._port, self._tls, self._grace_seconds = host, port, tls, grace_seconds
        self._app = FleetApp(app)
        self._serving: Serving | None = None
        self.address = ""

    def start(self) -> None:
        """Bind and serve. Raises SocketTaken."""
        config = uvicorn_config(
            self._app,
            grace_seconds=self._grace_seconds,
            stall_seconds=_STALL_SECONDS,
            protocol=partial(_FleetProtocol, tls=self._tls),
            ssl_context_factory=self._context,
            timeout_keep_alive=_KEEP_SECONDS,
        )
        listening = bound(resolve(self._host, self._port, "fleet_address"))
        shown_host = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"{shown_host}:{listening.getsockname()[1]}"
        self._serving = Serving(config, grace_seconds=self._grace_seconds)
        self._serving.start(ConnectionLimiter(listening, 1.0))

    def stop(self) -> None:
        """Accept no more requests, and let running ones end. May be called again."""
        if self._serving is not None:
            self._serving.stop()

    def _context(self, *_: Any) -> ssl.SSLContext:
        return self._tls.server
