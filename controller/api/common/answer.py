"""Limits on answers in memory: an answer that its client does not read costs a bounded part of one budget.

An answer over 64 KiB counts until its client has taken it, and is handed to the connection in pieces. A caller whose
unread answers fill their share waits, then gets 429; others are served. An answer that is made in parts reserves the
room for each before it is made. Transfers of files are exempt: they never hold more than a piece.
"""

import asyncio

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.api.common.byte_budget import ByteBudget
from controller.api.common.paths import STREAMED
from controller.service.access import access
from controller.service.listing import serialize

PIECE_BYTES = 64 << 10
MOST_BYTES = 192 << 20
WAIT_SECONDS = 20.0  # for the caller's other answers to be read, or for their connections to be cut
_log = structlog.get_logger("paddock.api")


_TOO_MANY = (
    "the answers that wait for their clients to read them fill the memory for answers; nothing was changed by a read:"
    " try again in a second, and read answers as they come"
)


class Unread(Exception):
    """No room came for the next part of an answer that has begun; its connection is cut."""


class Answer:
    """One answer, and what it holds of the budget."""

    def __init__(self, budget: ByteBudget, name: str, wait_seconds: float, scope: Scope, send: Send) -> None:
        self._budget, self.name, self._wait_seconds, self._scope, self._send = budget, name, wait_seconds, scope, send
        self._held, self._refused = 0, False

    async def room(self, count: int) -> None:
        """Wait until the next part may have so many bytes. Only for an answer that has begun: it is cut in vain."""
        if not await self._reserve(count):
            raise Unread

    async def send(self, message: Message) -> None:
        """As the server's."""
        if self._refused:
            return
        if message["type"] == "http.response.start":
            length = Headers(raw=message["headers"]).get("content-length", "")
            count = int(length) if length.isascii() and length.isdigit() else 0
            if count > PIECE_BYTES and not await self._reserve(count):
                self._refused = True
                await self._refuse()
                return
            await self._send(message)
        elif len(message.get("body", b"")) <= PIECE_BYTES:
            await self._send(message)
        else:
            await self._send_pieces(message["body"], has_more=message.get("more_body", False))

    def give_back(self) -> None:
        """Release what it holds."""
        held_bytes, self._held = self._held, 0
        if held_bytes:
            self._budget.give_back(self.name, held_bytes)

    async def _reserve(self, count: int) -> bool:
        """Hold so many bytes in all; of an answer over its caller's share, the share."""
        missing = min(count, self._budget.most_of_one) - self._held
        if missing <= 0:
            return True
        if not await self._budget.wait(self.name, missing, self._wait_seconds):
            return False
        self._held += missing
        return True

    async def _send_pieces(self, body: bytes, *, has_more: bool) -> None:
        """Hand over a large body in pieces: each waits until the connection has sent the one before."""
        await self.room(len(body))
        for at in range(0, len(body), PIECE_BYTES):
            is_last = at + PIECE_BYTES >= len(body)
            piece = body[at : at + PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": has_more or not is_last})
            await asyncio.sleep(0)  # a fast reader must not keep the event loop from others
        self.give_back()

    async def _refuse(self) -> None:
        body = serialize.status("TooManyRequests", 429, _TOO_MANY)
        refusal = JSONResponse(body, 429, {"Retry-After": "1"})
        await self._send({"type": "http.response.start", "status": 429, "headers": refusal.raw_headers})
        await self._send({"type": "http.response.body", "body": refusal.body})


class AnswerLimit:
    """Middleware that enforces the limits. `state.answer` of a request is its Answer."""

    def __init__(
        self, app: ASGIApp, share: float = 1.0, most_bytes: int = MOST_BYTES, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._app = app
        self._budget = ByteBudget(most_bytes, share)
        self._wait_seconds = wait_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or STREAMED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        caller = access.caller()
        answer = Answer(self._budget, caller.name if caller else "", self._wait_seconds, scope, send)
        scope.setdefault("state", {})["answer"] = answer
        try:
            await self._app(scope, receive, answer.send)
        except* Unread:
            _log.info("unread answer cut off", path=scope["path"], caller=answer.name)
        finally:
            answer.give_back()
