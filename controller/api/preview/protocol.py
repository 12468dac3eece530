"""Protocol of the preview listener: bodies may take any time, and a WebSocket is a request that may be answered 101.

After a 101 the connection carries bytes as they are: no message is too large, and no extension is in the way.
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

import h11

from controller.api.server.peer_credentials import PeerProtocol

SWITCH = "switch"  # in the state of a request for a WebSocket: its connection
SERVER_NAME = "server name"  # in the state of a request over TLS: the name that the client asked for; "": none
_ASKED_NAME = "paddock_server_name"
_HIGH_WATER_BYTES = 1 << 16


def note_server_name(tls: Any, name: str | None, _context: ssl.SSLContext) -> None:
    """Keep the name of the server that a TLS client asks for; for `ssl.SSLContext.sni_callback`."""
    setattr(tls, _ASKED_NAME, name or "")


class PreviewProtocol(PeerProtocol):
    """uvicorn's protocol for previews. `bytes_in` and `bytes_out` were relayed after a 101."""

    has_body_limit = False
    is_switched = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._arrived, self._incoming = asyncio.Event(), bytearray()
        self._is_lost = False
        self.bytes_in = self.bytes_out = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.app_state[SERVER_NAME] = getattr(tls, _ASKED_NAME, "")

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._arrived.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.is_switched:
            super().data_received(data)
            return
        self._incoming += data
        if len(self._incoming) > _HIGH_WATER_BYTES:
            self.flow.pause_reading()
        self._arrived.set()

    def shutdown(self) -> None:
        """End a switched connection at once: it has no end of its own."""
        if self.is_switched:
            self.transport.close()
        else:
            super().shutdown()

    def switch(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Answer 101. From now on `receive` and `send` carry the connection's bytes, until `close`."""
        head = self.conn.send(h11.InformationalResponse(status_code=101, headers=list(headers))) or b""
        self._incoming += self.conn.trailing_data[0]
        # Not complete: `receive` of the request would report a disconnect.
        self.cycle.response_started = self.is_switched = True
        self.transport.write(head)
        self.flow.resume_reading()

    async def receive(self) -> bytes:
        """Return what the client has sent; b"" once it is gone."""
        while not self._incoming and not self._is_lost:
            self._arrived.clear()
            await self._arrived.wait()
        data = bytes(self._incoming)
        self._incoming.clear()
        self.bytes_in += len(data)
        self.flow.resume_reading()
        return data

    async def send(self, data: bytes) -> None:
        """Send to the client, once it has taken what was sent before."""
        await self.flow.drain()
        if not self._is_lost:
            self.transport.write(data)
            self.bytes_out += len(data)

    def close(self) -> None:
        """End the connection once all is sent."""
        self.transport.close()

    def _should_upgrade(self) -> bool:
        """Leave a WebSocket to the application, as a request whose state has this connection."""
        if self._get_upgrade() == b"websocket":
            state: dict[str, Any] = self.scope["state"]
            state[SWITCH] = self
        return False
