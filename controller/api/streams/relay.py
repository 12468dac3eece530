"""Relay of a client's request to a server behind this daemon: a program in a sandbox, or another host's daemon.

Bodies and messages pass piece by piece, as they are; a slow side slows the other. Who relays decides about headers,
and about answers that are none (`proxy.py`; `api/fleet/relay.py`).
"""

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, NoReturn

import h11
from starlette.types import Message, Scope
from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from controller.api.server.peer_credentials import CONNECTION
from controller.api.server.stalled_clients import ClientTransport

Headers = Sequence[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    )
)
HEAD_BYTES = 64 << 10
_CLOSE_SECONDS = 2.0
_POLL_SECONDS = 1.0
_ABNORMAL = 1011
_NO_CLOSE_CODES = (1005, 1006, 1015)  # they say that none was sent


class Gone(Exception):
    """The client has disconnected."""


class ServerLink(ABC):
    """A connection to a server, for one request at a time."""

    def __init__(self) -> None:
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send all data. Waits while the other side reads none. Raises OSError."""

    @abstractmethod
    async def read(self) -> bytes:
        """Return what has come, b"" at the end. Raises OSError."""

    async def push(self, *events: h11.Event) -> None:
        """Send parts of a request. Raises OSError; h11.LocalProtocolError."""
        if data := b"".join(self.http.send(event) or b"" for event in events):
            await self.write(data)

    async def next_event(self) -> Any:
        """Return the next part of an answer. Raises OSError; h11.RemoteProtocolError."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.read())
        return event

    async def head(self) -> h11.Response:
        """Return the head of an answer, without those before it. Raises OSError; h11.RemoteProtocolError."""
        event = await self.next_event()
        while isinstance(event, h11.InformationalResponse):
            event = await self.next_event()
        if not isinstance(event, h11.Response):
            raise ConnectionResetError("it closed the connection without an answer")
        return event

    async def piece(self) -> bytes:
        """Return the next piece of an answer's body, b"" at its end. Raises OSError; h11.RemoteProtocolError."""
        event = await self.next_event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionResetError("it closed the connection within its answer")
        return b""


def client_transport(scope: Scope) -> ClientTransport | None:
    """Return the client's connection, where there is one."""
    transport: ClientTransport | None = scope.get("state", {}).get(CONNECTION)
    return transport


def end_to_end_headers(headers: Headers, never: frozenset[bytes]) -> Headers:
    """Return the headers that pass a proxy: none of its own connection."""
    connection_headers = {
        option.strip().lower() for name, value in headers if name == b"connection" for option in value.split(b",")
    }
    return [(name, value) for name, value in headers if name not in never and name not in connection_headers]


def headers_of(response: h11.Response | h11.InformationalResponse) -> Headers:
    """Return the headers of an answer; their names are in lower case."""
    return [(bytes(name), bytes(value)) for name, value in response.headers]


async def first_of(*work: Coroutine[Any, Any, Any]) -> Any:
    """Run these until one ends, end the others, and return its result: of several that of the first one here."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        # What they use must not be closed while they still run.
        await asyncio.gather(*tasks, return_exceptions=True)


async def unless_gone(work: Awaitable[Any], client: ClientTransport | None) -> Any:
    """Return the result of work that waits for the server. Raises Gone when the client's connection ends meanwhile."""
    doing = asyncio.ensure_future(work)
    try:
        while not doing.done():
            await asyncio.wait({doing}, timeout=_POLL_SECONDS)
            if client is not None and client.is_closing():
                raise Gone
        return doing.result()
    finally:
        doing.cancel()


async def receive_fairly(loop: asyncio.AbstractEventLoop, sock: socket.socket, count: int) -> bytes:
    """Receive up to `count` bytes, b"" at the end. Others run first, even while there is always more to receive."""
    await asyncio.sleep(0)
    return await loop.sock_recv(sock, count)


async def pass_body(
    receive: Receive, server: ServerLink, client: ClientTransport | None, stall_seconds: float | None = None
) -> NoReturn:
    """Send the client's body to the server, then wait for the client to disconnect.

    Raises Gone, and TimeoutError if the client sends nothing for `stall_seconds`. What a server that reads no more
    does not take is dropped.
    """
    has_more = server_reads = True
    while has_more:
        async with asyncio.timeout(stall_seconds):
            message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        has_more = message.get("more_body", False)
        if not server_reads:
            continue
        data = message.get("body", b"")
        events: list[h11.Event] = [h11.Data(data=data)] if data else []
        events += [] if has_more else [h11.EndOfMessage()]
        try:
            await unless_gone(server.push(*events), client)
        except (OSError, h11.LocalProtocolError):  # it reads no more, and may have answered already
            server_reads = False
    await wait_gone(receive)


async def wait_gone(receive: Receive) -> NoReturn:
    """Wait for the client to disconnect. Raises Gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise Gone


def websocket_factory(
    uri: WebSocketURI, subprotocols: Iterable[str], most_bytes: int
) -> Callable[[], ClientConnection]:
    """Return what makes the client's side of a WebSocket to a server, one message of which is in memory at a time."""
    protocol = ClientProtocol(
        uri,
        subprotocols=[Subprotocol(subprotocol) for subprotocol in subprotocols] or None,
        max_size=most_bytes,
    )
    return lambda: ClientConnection(protocol, ping_interval=None, close_timeout=_CLOSE_SECONDS, max_queue=1)


def handshake_headers(headers: Headers) -> dict[str, str]:
    """Return the headers of a handshake that are not the connection's own."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers
        if name not in (b"host", b"content-length") and not name.startswith(b"sec-websocket-")
    }


def refusal_headers(response: Response) -> Headers:
    """Return the headers of an answer that refuses a WebSocket."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()]


async def relay_messages(
    receive: Receive,
    send: Send,
    server: ClientConnection,
    client: ClientTransport | None,
    *,
    passed: Callable[[str | bytes], None] = lambda _message: None,
    broke: Callable[[ConnectionClosed], None] = lambda _error: None,
) -> None:
    """Relay messages both ways until one side closes, and close the other with its code.

    Raises Gone, and what `send` and `receive` raise. `passed` gets each message of the server, `broke` the error if
    that ends without a close.
    """
    await first_of(_to_server(receive, server, client), _to_client(send, server, passed, broke))


async def _to_server(receive: Receive, server: ClientConnection, client: ClientTransport | None) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await server.close(close_code(message.get("code")), str(message.get("reason") or ""))
            return
        text, data = message.get("text"), message.get("bytes")
        with contextlib.suppress(ConnectionClosed):  # which `_to_client` reports
            await unless_gone(server.send((data or b"") if text is None else text), client)


async def _to_client(
    send: Send,
    server: ClientConnection,
    passed: Callable[[str | bytes], None],
    broke: Callable[[ConnectionClosed], None],
) -> None:
    while True:
        try:
            message = await server.recv()
        except ConnectionClosed as error:
            close_frame = error.rcvd or error.sent  # ours, for a message that is too large
            if close_frame is None:
                broke(error)
            code = close_code(close_frame.code) if close_frame else _ABNORMAL
            await send({"type": "websocket.close", "code": code, "reason": close_frame.reason if close_frame else ""})
            return
        await send({"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message})
        passed(message)


def close_code(code: int | None) -> int:
    """Return a code that can be sent for one that was received."""
    if code is None or code == _NO_CLOSE_CODES[0]:
        return 1000
    return _ABNORMAL if code in _NO_CLOSE_CODES else code
