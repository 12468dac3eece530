"""Relay of an HTTP request or a WebSocket to a program in a sandbox, over an open connection to its port.

The program gets neither the caller's token nor what a caller could claim about proxies. Its answer is for programs: a
browser that shows it all the same gives it an origin of its own (`Content-Security-Policy: sandbox`), and headers that
speak for a whole origin are dropped, because that is the daemon's.
"""

import asyncio
import re
import socket
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import h11
import structlog
from fastapi import WebSocket
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.uri import WebSocketURI

from controller.api.common import errors
from controller.api.streams.relay import (
    HOP,
    Gone,
    Headers,
    ServerLink,
    client_transport,
    end_to_end_headers,
    first_of,
    handshake_headers,
    headers_of,
    pass_body,
    receive_fairly,
    refusal_headers,
    relay_messages,
    unless_gone,
    websocket_factory,
)
from controller.service.errors import BadGateway, BadRequest, ServiceError
from controller.service.sandbox.port_forward import Forwarded

STALL_SECONDS = 30.0  # for the next piece of a request's body
MESSAGE_BYTES = 4 << 20  # of a WebSocket's message out of the sandbox; one is in memory at a time
_HANDSHAKE_SECONDS = 30.0
_PIECE_BYTES = 1 << 16
_MOST_STATUS, _MOST_INTERIM = 599, 16
_NAME = "paddock"
_NEVER_IN = HOP | {b"authorization", b"host", b"expect", b"forwarded"}
_NEVER_OUT = HOP | {
    *(b"date", b"x-content-type-options", b"cross-origin-resource-policy"),
    *(b"alt-svc", b"clear-site-data", b"nel", b"public-key-pins", b"report-to", b"reporting-endpoints"),
    *(b"service-worker-allowed", b"sourcemap", b"strict-transport-security"),
}
_CONFINED = (
    (b"content-security-policy", b"sandbox"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
UPGRADE = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))
_SWITCHING = 101
_PATH_OF_COOKIE = re.compile(rb";\s*path\s*=\s*([^;]*)", re.IGNORECASE)
_DOMAIN_OF_COOKIE = re.compile(rb";\s*domain\s*=[^;]*", re.IGNORECASE)
_log = structlog.get_logger("paddock.api")


class Switch(Protocol):
    """A client's connection that can be answered 101, and then carries bytes as they are."""

    def switch(self, headers: Headers) -> None:
        """Answer 101 with these headers."""
        ...

    async def receive(self) -> bytes:
        """Return what the client has sent; b"" once it is gone."""
        ...

    async def send(self, data: bytes) -> None:
        """Send to the client, once it has taken what was sent before."""
        ...

    def close(self) -> None:
        """End the connection once all is sent."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A request for a sandbox's port. `prefix` is the path of the port in the API; `target` what follows, and query."""

    method: str
    port: int
    prefix: str
    target: bytes
    headers: Headers
    scheme: str = "http"

    def head(self) -> Headers:
        """Return the headers for the program."""
        headers = end_to_end_headers(self.headers, _NEVER_IN)
        host = next((value for name, value in self.headers if name == b"host"), b"")
        chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        return [
            (b"host", b"localhost:%d" % self.port),
            *((name, value) for name, value in headers if not name.startswith(b"x-forwarded-")),
            (b"x-forwarded-host", host),
            (b"x-forwarded-proto", self.scheme.encode()),
            (b"x-forwarded-prefix", self.prefix.encode()),
            (b"via", f"1.1 {_NAME}".encode()),
            *([(b"transfer-encoding", b"chunked")] if chunked else ()),
        ]

    def answer_headers(self, headers: Headers) -> Headers:
        """Return the headers of the program's answer for the client. Links and cookies keep to the prefix."""
        answer_headers: list[tuple[bytes, bytes]] = []
        for name, value in end_to_end_headers(headers, _NEVER_OUT):
            if name == b"location":
                value = self._location(value)
            elif name == b"set-cookie":
                value = self._cookie(value)
            elif name.startswith(b"access-control-"):
                continue
            answer_headers.append((name, value))
        return [*answer_headers, (b"via", f"1.1 {_NAME}".encode()), *_CONFINED]

    def _location(self, value: bytes) -> bytes:
        """Return where a redirect leads through the API; unchanged if it is relative, or leads elsewhere."""
        try:
            parts = urlsplit(value.decode("ascii"))
            is_own = parts.hostname in ("localhost", "127.0.0.1", "::1") and parts.port == self.port
        except ValueError:
            return value
        if not is_own and (parts.scheme or parts.netloc or not parts.path.startswith("/")):
            return value
        return parts._replace(scheme="", netloc="", path=self.prefix + (parts.path or "/")).geturl().encode()

    def _cookie(self, value: bytes) -> bytes:
        """Return a cookie that goes to this port alone."""
        match = _PATH_OF_COOKIE.search(value)
        path = match[1].strip() if match else b""
        plain = _DOMAIN_OF_COOKIE.sub(b"", _PATH_OF_COOKIE.sub(b"", value))
        return plain + b"; Path=" + self.prefix.encode() + (path if path.startswith(b"/") else b"/")


class ProxiedResponse(Response):
    """The answer of a program in a sandbox. It closes the connection."""

    def __init__(self, request: ProgramRequest, opened: Forwarded, switch: Switch | None = None) -> None:
        """`switch` is the client's connection if the request asks for a WebSocket."""
        super().__init__()
        self._asked, self._opened, self._switch = request, opened, switch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay until the answer is complete, or one side disconnected."""
        exchange = _Exchange(self._asked, self._opened.sock, scope, receive, send, self._switch)
        try:
            await first_of(exchange.answer(), exchange.take_in())
        except Gone:
            pass
        except ServiceError as error:
            if exchange.started:  # an unfinished body reports the error to the client
                _log.info("proxied answer broke off", error=str(error))
            else:
                await errors.answer(error)(scope, receive, send)
        finally:
            self._opened.close()


class _Exchange(ServerLink):
    """One request and its answer. `take_in` only ends with the client; `answer` ends with the answer."""

    def __init__(
        self,
        request: ProgramRequest,
        sock: socket.socket,
        scope: Scope,
        receive: Receive,
        send: Send,
        switch: Switch | None = None,
    ) -> None:
        super().__init__()
        sock.setblocking(False)
        self._switch = switch
        self._asked, self._sock, self._receive, self._send = request, sock, receive, send
        self._client = client_transport(scope)
        self._loop = asyncio.get_running_loop()
        self.started = False

    async def write(self, data: bytes) -> None:
        """As of the base class."""
        await self._loop.sock_sendall(self._sock, data)

    async def read(self) -> bytes:
        """As of the base class."""
        return await receive_fairly(self._loop, self._sock, _PIECE_BYTES)

    async def take_in(self) -> None:
        """Send the request to the program. Raises Gone when the client disconnects, BadRequest when it stalls."""
        try:
            head = h11.Request(method=self._asked.method, target=self._asked.target, headers=list(self._asked.head()))
            await unless_gone(self.push(head), self._client)
        except h11.LocalProtocolError as error:
            raise BadRequest(f"the request can't be passed on: {error}") from error
        try:
            await pass_body(self._receive, self, self._client, STALL_SECONDS)
        except TimeoutError:
            raise BadRequest(f"nothing was sent for {STALL_SECONDS:g} s; send the body without pauses") from None

    async def answer(self) -> None:
        """Send the program's answer to the client. Raises BadGateway."""
        try:
            event = await self.next_event()
            interim = 0
            while isinstance(event, h11.InformationalResponse):
                if event.status_code == _SWITCHING:
                    await self._relay(event)
                    return
                if (interim := interim + 1) > _MOST_INTERIM:
                    raise _no_answer(self._asked.port, f"it sent more than {_MOST_INTERIM} interim answers")
                event = await self.next_event()
            if not isinstance(event, h11.Response):
                raise _no_answer(self._asked.port, "it closed the connection without an answer")
            await self._begin(event)
            while data := await self.piece():
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
            await self._send({"type": "http.response.body", "body": b""})
        except h11.RemoteProtocolError as error:
            raise _no_answer(self._asked.port, str(error)) from error
        except OSError as error:
            raise _no_answer(self._asked.port, error.strerror or str(error)) from error

    async def _begin(self, event: h11.Response) -> None:
        if event.status_code > _MOST_STATUS:
            raise _no_answer(self._asked.port, f"{event.status_code} is not a status of HTTP")
        headers = self._asked.answer_headers(headers_of(event))
        self.started = True
        await self._send({"type": "http.response.start", "status": event.status_code, "headers": headers})

    async def _relay(self, event: h11.InformationalResponse) -> None:
        """Answer 101, then relay bytes until one side ends."""
        assert self._switch is not None  # h11 takes no 101 that was not asked for
        headers = self._asked.answer_headers(headers_of(event))
        self.started = True
        self._switch.switch([*headers, *UPGRADE])
        early = bytes(self.http.trailing_data[0])
        try:
            await first_of(self._to_program(self._switch), self._to_client(self._switch, early))
        finally:
            self._switch.close()

    async def _to_program(self, client: Switch) -> None:
        while data := await client.receive():
            await self.write(data)

    async def _to_client(self, client: Switch, early: bytes) -> None:
        await client.send(early)
        while data := await self.read():
            await client.send(data)


def _no_answer(port: int, why: str) -> BadGateway:
    return BadGateway(f"port {port}: the program did not answer as HTTP ({why}); see the sandbox's log")


async def relay_websocket(websocket: WebSocket, request: ProgramRequest, opened: Forwarded) -> None:
    """Relay messages between the client and the program until one closes. Closes the connection to the program."""
    program: ClientConnection | None = None
    try:
        program = await _connect(websocket, request, opened)
        await websocket.accept(subprotocol=program.subprotocol)
        await _messages(websocket, program)
    except InvalidStatus as refused:
        response = refused.response
        headers = request.answer_headers(refusal_headers(response))
        answer = Response(bytes(response.body or b""), min(response.status_code, _MOST_STATUS))
        answer.raw_headers = [header for header in headers if header[0] != b"content-length"]
        await websocket.send_denial_response(answer)
    except ServiceError as error:
        await websocket.send_denial_response(errors.answer(error))
    finally:
        if program is not None:
            program.transport.abort()
        opened.close()


async def _connect(websocket: WebSocket, request: ProgramRequest, opened: Forwarded) -> ClientConnection:
    """Return the WebSocket to the program. Raises InvalidStatus for its refusal, else BadGateway."""
    path, _, query = request.target.decode("latin-1").partition("?")
    uri = WebSocketURI(False, "localhost", request.port, path, query)
    opened.sock.setblocking(False)
    _, program = await asyncio.get_running_loop().create_connection(
        websocket_factory(uri, websocket.scope.get("subprotocols", []), MESSAGE_BYTES), sock=opened.sock
    )
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            await program.handshake(handshake_headers(request.head()), user_agent_header=None)
    except TimeoutError:
        program.transport.abort()
        raise _no_answer(request.port, f"no WebSocket handshake in {_HANDSHAKE_SECONDS:g} s") from None
    except InvalidStatus:
        program.transport.abort()
        raise
    except (InvalidHandshake, ConnectionClosed, EOFError, OSError) as error:
        program.transport.abort()
        raise _no_answer(request.port, str(error) or "it closed the connection") from error
    return program


async def _messages(websocket: WebSocket, program: ClientConnection) -> None:
    try:
        await relay_messages(websocket.receive, websocket.send, program, client_transport(websocket.scope))
    except Gone:
        pass
    except (WebSocketDisconnect, RuntimeError, OSError) as error:  # Starlette raises either of the first two
        _log.debug("proxied WebSocket failed", error=str(error))
