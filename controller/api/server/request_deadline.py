"""For how long a connection is waited for: one that sends nothing any more must not be kept for ever.

Only what goes over HTTP itself is timed: WebSockets, and the transfers of files, have rules of their own. One that
takes nothing any more is cut off by stalls.py.
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

from controller.api.middleware.limits import STREAMED
from controller.api.server.strict_http import StrictConnection
from controller.api.server.subprotocol_token import with_authorization
from controller.service.objects import serialize

HEAD_SECONDS = 10.0  # from the first byte of a request (or from connecting) to the end of its head
BODY_SECONDS = 300.0  # for a whole body
STALL_SECONDS = 30.0  # for the next piece of a body
MOST_CONNECTIONS = 1000  # of one door, of which 500 may be watches
SHARE = 1.0  # of them that one user of this host, or one address beyond it, may have, unless the settings say less


def _status(reason: str, code: int, words: str) -> bytes:
    return json.dumps(serialize.status(reason, code, words)).encode()


_LATE = _status("Timeout", 408, "the request did not come to its end in time; send it again, in one go")
_CROWDED = _status(
    "TooManyRequests",
    429,
    f"too many connections are open at this door ({MOST_CONNECTIONS} are the most, and of one user or address a share"
    " of them: caller_share); end some",
)


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, with time limits, and bounds on connections that are told as a Status.

    `holder` is whose connection it is, and may have no more than `share` of them all; None: not known.
    """

    holder: object = None
    share = SHARE
    _waiting: asyncio.TimerHandle | None = None
    _body_until = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn: StrictConnection = StrictConnection()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._too_many():
            self.app = _crowded
        self._wait(HEAD_SECONDS)

    def _too_many(self) -> bool:
        """Whether this one is more than there may be, of all or of its holder."""
        most = max(1, int(MOST_CONNECTIONS * self.share))
        if len(self.connections) <= most:
            return False
        alike = sum(getattr(each, "holder", None) == self.holder for each in self.connections)
        return len(self.connections) > MOST_CONNECTIONS or (self.holder is not None and alike > most)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.transport.get_protocol() is not self:  # it is a WebSocket's by now
            return
        if self.transport.is_closing():
            self._wait(None)
        elif self.cycle is None or self.cycle.response_complete:
            if self._waiting is None:
                self._wait(HEAD_SECONDS)
        elif self.cycle.more_body and not STREAMED.fullmatch(self.scope["path"]):
            if self.cycle is not before:
                self._body_until = time.monotonic() + BODY_SECONDS
            self._wait(min(STALL_SECONDS, self._body_until - time.monotonic()))
        else:
            self._wait(None)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._wait(None)
        if self.app is not _crowded:
            self.headers = with_authorization(self.headers)
            super().handle_websocket_upgrade(event)
            return
        self._tell(429, _CROWDED, [("retry-after", "1")])
        self.transport.close()

    def _wait(self, seconds: float | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = None if seconds is None else self.loop.call_later(max(0.0, seconds), self._late)

    def _late(self) -> None:
        """What was waited for has not come."""
        self._waiting = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if not self.cycle.more_body:
                return
            if self.flow.read_paused:  # it is we who do not read
                self._wait(STALL_SECONDS)
                return
        self._end(408, _LATE)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class's
        """End a connection on which something else than HTTP has come: nobody can tell where a next request begins."""
        why = self.conn.fault or "it is not HTTP/1.1; send it as RFC 9112 has it"
        self._end(400, _status("BadRequest", 400, f"the request was not read: {why}"))

    def _end(self, code: int, body: bytes) -> None:
        """Answer so where no answer has begun, and end the connection."""
        untold = True
        if self.cycle is not None and not self.cycle.response_complete:
            untold = not self.cycle.response_started
            self.cycle.disconnected = True  # whoever reads the body is let go
            self.cycle.message_event.set()
        if untold and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._tell(code, body)
        self.transport.close()

    def _tell(self, code: int, body: bytes, more: Sequence[tuple[str, str]] = ()) -> None:
        """Answer without the application, and end the connection after it."""
        head = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=code, headers=[*head, *more]), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")


async def _crowded(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Retry-After": "1", "Connection": "close"}
    await Response(_CROWDED, 429, headers, "application/json")(scope, receive, send)
