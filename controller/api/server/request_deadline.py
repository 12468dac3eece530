"""Deadlines for requests: a client that stops sending gets 408, and its connection is closed.

They hold for plain HTTP. WebSockets and file transfers have rules of their own. Clients that stop reading are handled
by stalled_clients.py.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

import h11
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from controller.api.common.paths import STREAMED
from controller.api.server.subprotocol_token import with_authorization
from controller.kinds.common.http_head import StrictConnection
from controller.service.listing import serialize

HEAD_SECONDS = 10.0  # from the first byte of a request (or from connecting) to the end of its head
BODY_SECONDS = 300.0  # for a whole body
STALL_SECONDS = 30.0  # for the next piece of a body
MOST_CONNECTIONS = 1000  # of one listener, of which 500 may be watches
SHARE = 1.0  # of them that one user of this host, or one remote address, may have by default


def _status(reason: str, code: int, message: str) -> bytes:
    return json.dumps(serialize.status(reason, code, message)).encode()


_TIMED_OUT = _status("Timeout", 408, "the request was not complete in time; send it again, without pauses")
_TOO_MANY_CONNECTIONS = _status(
    "TooManyRequests",
    429,
    f"too many connections are open on this listener (at most {MOST_CONNECTIONS}; one user or address may have"
    " caller_share of them); close some",
)


class RequestDeadlineProtocol(H11Protocol):
    """uvicorn's protocol with deadlines, and limits on connections, both answered as a Status.

    One `holder` may have `share` of all connections. A holder of None is not limited. Without `has_body_limit` a
    body may take any time, as long as it goes on.
    """

    holder: object = None
    has_body_limit = True
    share = SHARE
    _timer: asyncio.TimerHandle | None = None
    _body_until = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn: StrictConnection = StrictConnection()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._too_many():
            self.app = _refuse_crowded
        self._set_deadline(HEAD_SECONDS)

    def _too_many(self) -> bool:
        """Return true if this connection exceeds the limit in total or of its holder."""
        most = max(1, int(MOST_CONNECTIONS * self.share))
        if len(self.connections) <= most:
            return False
        alike = sum(getattr(connection, "holder", None) == self.holder for connection in self.connections)
        return len(self.connections) > MOST_CONNECTIONS or (self.holder is not None and alike > most)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.transport.get_protocol() is not self:  # a WebSocket took over
            return
        if self.transport.is_closing():
            self._set_deadline(None)
        elif self.cycle is None or self.cycle.response_complete:
            if self._timer is None:
                self._set_deadline(HEAD_SECONDS)
        elif self.cycle.more_body and not (self.has_body_limit and STREAMED.fullmatch(self.scope["path"])):
            if self.cycle is not before:
                self._body_until = time.monotonic() + BODY_SECONDS
            seconds_left = self._body_until - time.monotonic() if self.has_body_limit else STALL_SECONDS
            self._set_deadline(min(STALL_SECONDS, seconds_left))
        else:
            self._set_deadline(None)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._set_deadline(None)
        if self.app is not _refuse_crowded:
            self.headers = with_authorization(self.headers)
            super().handle_websocket_upgrade(event)
            return
        self._send_status(429, _TOO_MANY_CONNECTIONS, [("retry-after", "1")])
        self.transport.close()

    def _set_deadline(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(max(0.0, seconds), self._missed)

    def _missed(self) -> None:
        """Handle a missed deadline."""
        self._timer = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.cycle.more_body:
                return
            if self.flow.read_paused:  # we are the ones who do not read
                self._set_deadline(STALL_SECONDS)
                return
        self._end(408, _TIMED_OUT)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class's
        """Answer bytes that are not HTTP, and end the connection: the start of a next request is unknown."""
        fault = self.conn.fault or "it is not HTTP/1.1; send it as RFC 9112 says"
        self._end(400, _status("BadRequest", 400, f"the request was not read: {fault}"))

    def _end(self, code: int, body: bytes) -> None:
        """Send this answer unless another has begun, and end the connection."""
        unanswered = True
        if self.cycle is not None and not self.cycle.response_complete:
            unanswered = not self.cycle.response_started
            self.cycle.disconnected = True  # releases the reader of the body
            self.cycle.message_event.set()
        if unanswered and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send_status(code, body)
        self.transport.close()

    def _send_status(self, code: int, body: bytes, extra_headers: Sequence[tuple[str, str]] = ()) -> None:
        """Answer without the application; the connection ends after it."""
        head = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (
            h11.Response(status_code=code, headers=[*head, *extra_headers]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")


async def _refuse_crowded(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Retry-After": "1", "Connection": "close"}
    await Response(_TOO_MANY_CONNECTIONS, 429, headers, "application/json")(scope, receive, send)
