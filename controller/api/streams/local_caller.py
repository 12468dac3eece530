"""Clients on this host that take what comes behind a WebSocket's handshake as it is, without frames."""

import socket

from fastapi import WebSocket

from controller.api.server.peer_credentials import LINK
from controller.api.streams.stalled_clients import Carrier, Link


def near(websocket: WebSocket, protocol: str) -> Link | None:
    """The connection of a client that offers that subprotocol on the Unix socket; None: carry it another way.

    Of the answers before this one nothing is left to send.
    """
    link: Link | None = websocket.scope["state"].get(LINK)
    if link is None or protocol not in websocket.scope.get("subprotocols", []):
        return None
    is_near = link.get_extra_info("socket").family == socket.AF_UNIX and not link.get_write_buffer_size()
    return link if is_near else None


async def take_over(websocket: WebSocket, link: Link, protocol: str, carrier: Carrier) -> bool:
    """Shake hands; from then on its socket is the carrier's. False: whoever asked has gone, or is told by others."""
    link.pause_reading()  # what comes behind the handshake is none of the WebSocket's
    before = link.written
    await websocket.accept(subprotocol=protocol)
    if link.written == before:
        return False
    if link.get_write_buffer_size():  # what is carried would go in between
        link.abort()
        return False
    link.tunnel = carrier
    return True


async def gone(websocket: WebSocket) -> None:
    """Wait until the connection is no more, or must not be."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
