"""Port-forward: a TCP port of a sandbox over a WebSocket, one WebSocket a connection.

Binary frames are data, in both directions. The text frame `end` half-closes its direction; the other goes on. When both
have ended, or one side disconnected, everything is freed. One frame at a time is buffered, so a slow side slows the
other.

A client on the Unix socket may offer the subprotocol `raw.portforward.paddock`. If accepted, the handshake is followed
by the format of tunnel.py instead of frames.
"""

import asyncio
import contextlib
import socket
import threading
from typing import Annotated, Any

import anyio
import structlog
from fastapi import APIRouter, Depends, WebSocket
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from controller.api.common import errors
from controller.api.common.dependencies import UseCases
from controller.api.common.models import PREFIX
from controller.api.common.query_names import takes_query
from controller.api.server.stalled_clients import ClientTransport
from controller.api.streams.relay import receive_fairly
from controller.api.streams.tunnel import Tunnel, hand_over, local_transport, wait_for_disconnect
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service.errors import BadRequest, ServiceError

PROTOCOL, RAW = "portforward.paddock", "raw.portforward.paddock"
END = "end"
_PIECE_BYTES = 1 << 18
_OPENING = 32  # connections being opened at a time; one waits while its sandbox is resumed
_TUNNELS = 32  # at a time, each with five descriptors and up to 2 MiB in pipes; others use frames
_log = structlog.get_logger("paddock.api")


routes = APIRouter(prefix=PREFIX, tags=["Sandbox"])


class PortForwarding:
    """Bounds of one application's forwarded connections: `opening` at a time, and `tunnels` without frames."""

    def __init__(self) -> None:
        self.opening = anyio.CapacityLimiter(_OPENING)
        self.tunnels = threading.BoundedSemaphore(_TUNNELS)


async def forwarding(connection: HTTPConnection) -> PortForwarding:
    """Return the bounds of the request's application."""
    port_forwarding: PortForwarding = connection.app.state.port_forwarding
    return port_forwarding


@routes.websocket("/namespaces/{namespace}/sandboxes/{name}/portforward")
@takes_query("port")
async def portforward(
    services: UseCases,
    bounds: Annotated[PortForwarding, Depends(forwarding)],
    websocket: WebSocket,
    namespace: str,
    name: str,
) -> None:
    """Connect to a TCP port of the sandbox. Query: port."""
    try:
        port = _port(websocket.query_params.get("port", ""))
        opened = await anyio.to_thread.run_sync(
            services.forward.open, SANDBOX, namespace, name, port, limiter=bounds.opening
        )
    except ServiceError as error:
        await websocket.send_denial_response(errors.answer(error))
        return
    try:
        if not await _tunnel(websocket, opened.sock, bounds.tunnels):
            await _relay(websocket, opened.sock)
    finally:
        opened.close()


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5:
        raise BadRequest("port must be a number from 1 to 65535")
    return int(text)


async def _tunnel(websocket: WebSocket, sock: socket.socket, tunnels: threading.BoundedSemaphore) -> bool:
    """Forward without frames; return False, with nothing done, if that is not possible."""
    link = local_transport(websocket, RAW)
    if link is None:
        return False
    if not tunnels.acquire(blocking=False):
        return False
    try:
        try:
            tunnel = Tunnel(link.get_extra_info("socket"), sock)
        except OSError as error:
            _log.debug("tunnel unavailable, using frames", error=str(error))
            return False
        with contextlib.closing(tunnel):
            await _carry(websocket, link, tunnel)
        return True
    finally:
        tunnels.release()


async def _carry(websocket: WebSocket, link: ClientTransport, tunnel: Tunnel) -> None:
    """Run the tunnel until both directions have ended, or one side disconnected."""
    if not await hand_over(websocket, link, RAW, tunnel):
        return
    disconnected = asyncio.create_task(wait_for_disconnect(websocket))
    either: set[asyncio.Future[Any]] = {tunnel.over, disconnected}
    try:
        tunnel.start()
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if tunnel.over.done() and (error := tunnel.over.result()):
            _log.debug("forwarded connection failed", error=str(error))
    finally:
        tunnel.close()
        link.abort()
        disconnected.cancel()
        await asyncio.gather(disconnected, return_exceptions=True)


async def _relay(websocket: WebSocket, sock: socket.socket) -> None:
    """Forward frames until both directions have ended, or one side disconnected."""
    sock.setblocking(False)
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
    sent, broken = asyncio.Event(), asyncio.Event()
    incoming = asyncio.create_task(_in(websocket, sock, sent, broken))
    both = asyncio.create_task(_out(websocket, sock, sent, broken))
    try:
        await asyncio.wait({incoming, both}, return_when=asyncio.FIRST_COMPLETED)
        for task in (incoming, both):
            if task.done():
                task.result()
        await websocket.close()
    except (WebSocketDisconnect, RuntimeError, OSError) as error:  # Starlette raises either of the first two
        _log.debug("forwarded connection failed", error=str(error))
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            await websocket.close(1011)
    finally:
        incoming.cancel()
        both.cancel()
        # The socket must not be closed while the event loop still waits for it.
        await asyncio.gather(incoming, both, return_exceptions=True)


async def _out(websocket: WebSocket, sock: socket.socket, sent: asyncio.Event, broken: asyncio.Event) -> None:
    """Send the sandbox's data to its end; then wait for the client's end."""
    loop = asyncio.get_running_loop()
    while data := await receive_fairly(loop, sock, _PIECE_BYTES):
        await websocket.send_bytes(data)
    if broken.is_set():
        return  # which `_in` reports
    await websocket.send_text(END)
    await sent.wait()


async def _in(websocket: WebSocket, sock: socket.socket, sent: asyncio.Event, broken: asyncio.Event) -> None:
    """Receive the client's data. Raises once the client or the sandbox disconnects.

    A socket reports an error once. `broken` keeps `_out` from taking it for a clean end.
    """
    loop = asyncio.get_running_loop()
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        try:
            if data := message.get("bytes"):
                await loop.sock_sendall(sock, data)
            elif message.get("text") == END and not sent.is_set():
                sock.shutdown(socket.SHUT_WR)
                sent.set()
        except OSError:
            broken.set()
            raise
