"""A port of a box over a WebSocket, one for each connection.

Binary frames are the data, in both directions. The text frame `end` says that its sender has no more data; the other
direction goes on. When both have ended, or either side is gone, everything is freed. What the one side does not take,
the other can not send: a frame at a time is held.
"""

import asyncio
import contextlib
import socket

import anyio
import structlog
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from controller.api import errors
from controller.api.paths import PREFIX
from controller.kinds.registry import Kind
from controller.service.errors import BadRequest, ServiceError
from controller.service.services import Services

PROTOCOL = "portforward.paddock"
END = "end"
_PIECE_BYTES = 1 << 18
_OPENING = 32  # connections that are being opened at a time; a box that is being woken keeps one waiting
_log = structlog.get_logger("paddock.api")


def router(kind: Kind, services: Services) -> APIRouter:
    """The route of a kind whose objects have a container."""
    routes = APIRouter(prefix=PREFIX, tags=[kind.name])
    limiter = anyio.CapacityLimiter(_OPENING)

    @routes.websocket(f"/namespaces/{{namespace}}/{kind.plural}/{{name}}/portforward")
    async def portforward(websocket: WebSocket, namespace: str, name: str) -> None:
        """A connection to a TCP port of the box. Query: port."""
        try:
            port = _port(websocket.query_params.get("port", ""))
            opened = await anyio.to_thread.run_sync(services.forward.open, kind, namespace, name, port, limiter=limiter)
        except ServiceError as error:
            await websocket.send_denial_response(errors.answer(error))
            return
        try:
            await _relay(websocket, opened.sock)
        finally:
            opened.close()

    return routes


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5:
        raise BadRequest("port must be a number from 1 to 65535")
    return int(text)


async def _relay(websocket: WebSocket, sock: socket.socket) -> None:
    """Carry both directions until both have ended, or one side is gone."""
    sock.setblocking(False)
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
    sent = asyncio.Event()
    coming = asyncio.create_task(_in(websocket, sock, sent))
    both = asyncio.create_task(_out(websocket, sock, sent))
    try:
        await asyncio.wait({coming, both}, return_when=asyncio.FIRST_COMPLETED)
        for each in (coming, both):
            if each.done():
                each.result()
        await websocket.close()
    except (WebSocketDisconnect, RuntimeError, OSError) as error:  # Starlette raises either of the first two
        _log.debug("a forwarded connection broke off", error=str(error))
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            await websocket.close(1011)
    finally:
        coming.cancel()
        both.cancel()
        # The socket must not be closed while the event loop still waits for it.
        await asyncio.gather(coming, both, return_exceptions=True)


async def _out(websocket: WebSocket, sock: socket.socket, sent: asyncio.Event) -> None:
    """What the box sends, to its end; then wait for the client's."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(sock, _PIECE_BYTES):
        await websocket.send_bytes(data)
    await websocket.send_text(END)
    await sent.wait()


async def _in(websocket: WebSocket, sock: socket.socket, sent: asyncio.Event) -> None:
    """What the client sends; ends by raising, once it has gone."""
    loop = asyncio.get_running_loop()
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        if data := message.get("bytes"):
            await loop.sock_sendall(sock, data)
        elif message.get("text") == END and not sent.is_set():
            sock.shutdown(socket.SHUT_WR)
            sent.set()
