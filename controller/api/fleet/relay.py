"""Relay of a request or a WebSocket to the daemon of another host. Bodies and messages pass as they are.

A body that was not read yet is sent once the other daemon asks for it (`Expect: 100-continue`): one that came to the
wrong host has lost nothing.
"""

import asyncio
import secrets
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import urlsplit

import h11
import structlog
from starlette.types import Message, Receive, Scope, Send
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.uri import WebSocketURI

from controller.api.common.trace import HEADER as TRACE_HEADER
from controller.api.fleet.identity import HEADER
from controller.api.fleet.links import Link, Links, Unreachable, was_refused
from controller.api.fleet.tls import why_refused
from controller.api.server.stalled_clients import ClientTransport
from controller.api.ssh import protocol as ssh
from controller.api.streams.exec_websocket import PROTOCOL, STATUS
from controller.api.streams.relay import (
    HOP,
    Gone,
    Headers,
    client_transport,
    end_to_end_headers,
    first_of,
    handshake_headers,
    headers_of,
    pass_body,
    refusal_headers,
    relay_messages,
    unless_gone,
    wait_gone,
    websocket_factory,
)
from controller.service.exec.exec_limits import PAUSE_SECONDS

MISDIRECTED = b"misdirected"  # value of the header in the answer of a host to which the object is not bound
_HEADER = HEADER.encode()
_NEVER_IN = HOP | {b"authorization", b"expect", b"content-length", b"traceparent", _HEADER}
_NEVER_OUT = HOP | {b"date", TRACE_HEADER.lower().encode(), _HEADER}
_MESSAGE_BYTES = 16 << 20  # of a WebSocket's message; one is in memory at a time
_HANDSHAKE_SECONDS = 300.0  # a sandbox that was suspended is started first
_PAUSES = {PROTOCOL: PAUSE_SECONDS, ssh.PROTOCOL: ssh.PAUSE_SECONDS}  # of a client that reads nothing, by subprotocol
_log = structlog.get_logger("paddock.fleet")


class Lost(Exception):
    """The connection to the host broke before its answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Destination of a request, and what is added to it: the caller's identity, and the trace id."""

    host: str
    address: str
    identity: bytes
    trace: str


@dataclass(slots=True)
class Client:
    """A request as this daemon got it. `body`: if it was read already.

    `started`: the answer has begun; `connected`: the WebSocket's beginning was received.
    """

    scope: Scope
    receive: Receive
    send: Send
    body: bytes | None
    started: bool = False
    connected: bool = False
    _next: "asyncio.Task[Message] | None" = None

    @property
    def target(self) -> bytes:
        """Path and query, as they were sent."""
        path: bytes = self.scope["raw_path"].partition(b"?")[0]
        query: bytes = self.scope.get("query_string", b"")
        return path + (b"?" + query if query else b"")

    @property
    def link(self) -> ClientTransport | None:
        """The client's connection, where there is one."""
        return client_transport(self.scope)

    @property
    def streams(self) -> bool:
        """Return True if there is a body that was not read yet."""
        headers = dict(self.scope["headers"])
        return self.body is None and (b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0")

    def head(self, request: Outgoing) -> list[tuple[bytes, bytes]]:
        """Return the headers for the other daemon."""
        headers = end_to_end_headers(self.scope["headers"], _NEVER_IN)
        trace = f"00-{request.trace}-{secrets.token_hex(8)}-01".encode()
        return [*headers, (_HEADER, request.identity), *([(b"traceparent", trace)] if request.trace else ())]

    def framing(self) -> list[tuple[bytes, bytes]]:
        """Return the headers about the body."""
        lengths = [value for name, value in self.scope["headers"] if name == b"content-length"]
        if not self.streams:
            return [(b"content-length", b"%d" % len(self.body or b""))] if self.body or lengths else []
        length = (b"content-length", lengths[0]) if lengths else (b"transfer-encoding", b"chunked")
        return [length, (b"expect", b"100-continue")]

    async def begin(self, status: int, headers: Headers) -> None:
        """Begin the answer."""
        self.started = True
        answer_headers = list(end_to_end_headers(headers, _NEVER_OUT))
        await self.send({"type": f"{self._prefix}http.response.start", "status": status, "headers": answer_headers})

    async def give(self, data: bytes, *, has_more: bool) -> None:
        """Send a piece of the answer."""
        await self.send({"type": f"{self._prefix}http.response.body", "body": data, "more_body": has_more})

    @property
    def _prefix(self) -> str:
        return "websocket." if self.scope["type"] == "websocket" else ""

    async def message(self) -> Message:
        """Return the client's next message. A cancelled call loses none."""
        if self._next is None:
            self._next = asyncio.ensure_future(self.receive())
        message = await asyncio.shield(self._next)
        self._next = None
        return message

    def forget(self) -> None:
        """Wait for no more messages."""
        if self._next is not None:
            self._next.cancel()
            self._next = None


async def pass_on(links: Links, request: Outgoing, client: Client) -> bool:
    """Pass the request on, and its answer back; return False if it came to the wrong host.

    Raises Unreachable; Lost; Gone when the client has disconnected.
    """
    if client.scope["type"] == "websocket":
        return await _websocket(links, request, client)
    return await _http(links, request, client)


async def _http(links: Links, request: Outgoing, client: Client) -> bool:
    link = await links.open(request.host, request.address)
    head = h11.Request(
        method=client.scope["method"], target=client.target, headers=[*client.head(request), *client.framing()]
    )
    try:
        await link.push(head)
        if client.streams and (early := await _until_asked(link, client)) is not None:
            right: bool = await unless_gone(_answer(link, client, early), client.link)
        else:
            right = await first_of(_answer(link, client), _send_body(link, client))
    except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError) as error:
        link.close()
        if not client.started:
            raise _failure(request, link.writer.transport, error) from error
        _log.info("forwarded answer broke off", host=request.host, error=why_refused(error))
        return True  # an unfinished body reports the error to the client
    except BaseException:
        link.close()
        raise
    links.keep(link)
    return right


async def _until_asked(link: Link, client: Client) -> h11.Response | None:
    """Wait until the other daemon asks for the body; return its answer if it answers without."""
    while True:
        event = await unless_gone(link.next_event(), client.link)
        if isinstance(event, h11.Response):
            return event
        if isinstance(event, h11.InformationalResponse) and event.status_code == 100:
            return None
        if not isinstance(event, h11.InformationalResponse):
            raise ConnectionResetError("it closed the connection without an answer")


async def _send_body(link: Link, client: Client) -> NoReturn:
    """Send the body, then wait for the client to disconnect, which is its only end. Raises Gone.

    It runs beside the answer, which ends the request otherwise, and cancels this.
    """
    if client.streams:
        await pass_body(client.message, link, client.link)
    await link.push(*([h11.Data(data=client.body)] if client.body else ()), h11.EndOfMessage())
    await wait_gone(client.message)


async def _answer(link: Link, client: Client, first: h11.Response | None = None) -> bool:
    """Send the answer to the client; return False, with nothing sent, if the request came to the wrong host."""
    headers = headers_of(response := first or await link.head())
    right = (_HEADER, MISDIRECTED) not in headers
    if right:
        await client.begin(response.status_code, headers)
    while data := await link.piece():
        if right:
            await client.give(data, has_more=True)
    if right:
        await client.give(b"", has_more=False)
    return right


async def _websocket(links: Links, request: Outgoing, client: Client) -> bool:
    path, _, query = client.target.decode("latin-1").partition("?")
    name, port = _host_and_port(client.scope["headers"], request.host)
    factory = websocket_factory(
        WebSocketURI(True, name, port, path, query), client.scope.get("subprotocols", []), _MESSAGE_BYTES
    )
    transport = await links.connect(request.host, request.address, factory)
    far = transport.get_protocol()
    assert isinstance(far, ClientConnection)
    try:
        await _handshake(far, request, client)
        links.remember(request.host, transport.get_extra_info("ssl_object"))
        client.started = True
        if client.link is not None and (pause_seconds := _PAUSES.get(far.subprotocol or "")):
            client.link.pause_seconds = pause_seconds  # the other daemon bounds it
        await client.send({"type": "websocket.accept", "subprotocol": far.subprotocol, "headers": []})
        await _messages(client, far, request.host)
    except InvalidStatus as refused:
        response = refused.response
        headers = refusal_headers(response)
        if (_HEADER, MISDIRECTED) in headers:
            return False
        await client.begin(response.status_code, headers)
        await client.give(bytes(response.body or b""), has_more=False)
    except (InvalidHandshake, ConnectionClosed, EOFError, OSError) as error:
        if client.started:
            _log.info("forwarded WebSocket broke off", host=request.host, error=why_refused(error))
            return True
        raise _failure(request, transport, error) from error
    finally:
        transport.abort()
    return True


async def _handshake(far: ClientConnection, request: Outgoing, client: Client) -> None:
    """Shake hands with the other daemon. Raises Gone when the client disconnects meanwhile."""
    if not client.connected and (await client.message())["type"] != "websocket.connect":
        raise Gone
    client.connected = True
    shaking = asyncio.create_task(far.handshake(handshake_headers(client.head(request)), user_agent_header=None))
    disconnect = asyncio.create_task(client.message())
    try:
        await asyncio.wait({shaking, disconnect}, timeout=_HANDSHAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if shaking.done():
            shaking.result()
            return
        if disconnect.done():
            raise Gone
        raise TimeoutError("no WebSocket handshake in time")
    finally:
        shaking.cancel()
        disconnect.cancel()
        await asyncio.gather(shaking, disconnect, return_exceptions=True)


async def _messages(client: Client, far: ClientConnection, host: str) -> None:
    """Relay messages both ways until one side closes. Raises Gone when the client's connection ends meanwhile."""
    is_ended = False  # the command's end was passed on: nothing is lost any more

    def passed(message: str | bytes) -> None:
        nonlocal is_ended
        is_ended = far.subprotocol == PROTOCOL and isinstance(message, bytes) and message[:1] == bytes((STATUS,))

    def broke(error: ConnectionClosed) -> None:
        if not is_ended:
            _log.info("forwarded WebSocket broke off", host=host, error=why_refused(error))

    async def send(message: Message) -> None:
        await _give(client, message)

    await relay_messages(client.message, send, far, client.link, passed=passed, broke=broke)


async def _give(client: Client, message: Message) -> None:
    """Send the client a message. Raises Gone: one that left has what it wanted, and nothing broke."""
    try:
        await client.send(message)
    except OSError:
        raise Gone from None


def _host_and_port(headers: Headers, host: str) -> tuple[str, int]:
    """Return host and port as the client named them, which programs in the sandbox are shown."""
    host_header = next((value for name, value in headers if name == b"host"), b"")
    try:
        parsed = urlsplit(f"//{host_header.decode('ascii')}")
        return parsed.hostname or host, parsed.port or 443
    except ValueError:
        return host, 443


def _failure(request: Outgoing, transport: asyncio.BaseTransport, error: Exception) -> Exception:
    """Return the error of a connection that broke before the answer: Unreachable if the request was never read."""
    if was_refused(transport):
        why = "it refuses this host's certificate; the log of that daemon says why"
        _log.warning("own certificate refused", host=request.host, address=request.address)
        return Unreachable(f"{request.address}: {why}")
    why = why_refused(error)
    _log.warning("connection to host lost", host=request.host, address=request.address, error=why)
    return Lost(why)
