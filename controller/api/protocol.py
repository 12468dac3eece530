"""uvicorn's HTTP protocol, which closes connections that ask for nothing.

uvicorn waits for ever for a first request, and for the rest of one that it has answered already (a 401 comes before
the body). No token is needed for that: whoever opens connections would use up the daemon's file descriptors.
"""

import asyncio
from typing import Any

from h11 import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0
_OVER = 2  # times `limit_concurrency`: up to there a connection is answered with 503, beyond it is not even read


class BoundedProtocol(H11Protocol):
    """A request has to be there `head_seconds` after its first byte, or after the connection was made."""

    def __init__(self, *arguments: Any, head_seconds: float = HEAD_SECONDS, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_seconds = head_seconds
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > _OVER * self.limit_concurrency:
            transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_be()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Request) -> None:
        self._let_be()
        super().handle_websocket_upgrade(event)

    def _watch(self) -> None:
        """While nothing of this connection is being answered, it has so long: not longer for each byte that comes."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering or self.transport.get_protocol() is not self:  # it may be a WebSocket by now
            self._let_be()
        elif self._closing is None:
            self._closing = self.loop.call_later(self._head_seconds, self.transport.abort)

    def _let_be(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
