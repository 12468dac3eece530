"""Around every request of a token: once the token has ended, the request ends, as if its client had left.

Every stream heeds a client that leaves, so none has to know of tokens. What is told instead of the rest: 401 where no
answer has begun, the close code 1008 over a WebSocket; an answer that has begun is broken off.
"""

import asyncio
import contextlib
from functools import partial
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.api.middleware.authenticate import refuse
from controller.kinds.access.access import Caller
from controller.service.access import access
from controller.service.access.token_expiry import Lifetimes
from controller.service.errors import Unauthorized

_LOOK_SECONDS = 1.0  # how late the end of its time is noticed; that it was revoked is told at once
_POLICY_VIOLATION = 1008
_BEGINNINGS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
_GONE: dict[str, Message] = {
    "http": {"type": "http.disconnect"},
    "websocket": {"type": "websocket.disconnect", "code": _POLICY_VIOLATION},
}


class Ending:
    """Ends what a token opened together with the token."""

    def __init__(self, app: ASGIApp, lifetimes: Lifetimes) -> None:
        self._app, self._lifetimes = app, lifetimes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asking = access.caller()
        if asking is None or not asking.token_id:
            await self._app(scope, receive, send)
            return
        changed = asyncio.Event()
        wake = partial(_from_any_thread, asyncio.get_running_loop(), changed)
        leave = self._lifetimes.follow(asking.token_id, wake)
        over = asyncio.create_task(self._over(asking, changed))
        try:
            await _Ended(scope, receive, send, over).run(self._app)
        finally:
            leave()
            over.cancel()

    async def _over(self, asking: Caller, changed: asyncio.Event) -> str:
        """Wait until the caller may not go on; gives why."""
        while not (why := self._lifetimes.over(asking)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _LOOK_SECONDS)
        return why


def _from_any_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended, and the request with it
        loop.call_soon_threadsafe(event.set)


class _Ended:
    """One request, which is cut when `over` is done."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, over: "asyncio.Task[str]") -> None:
        self._scope, self._receive, self._send, self._over = scope, receive, send, over
        self._begun = self._begun_late = self._closed = False

    async def run(self, app: ASGIApp) -> None:
        await app(self._scope, self._next, self._tell)
        if not self._over.done() or self._closed:
            return
        why = f"{self._over.result()}: what it had opened was ended"
        if not self._begun:
            await refuse(Unauthorized(why), self._scope, self._receive, self._send)
        elif self._scope["type"] == "websocket":
            await self._send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": why[:120]})

    async def _next(self) -> Message:
        """What the client sends next; once it is over, that it has left."""
        if not self._over.done():
            coming = asyncio.ensure_future(self._receive())
            try:
                await asyncio.wait({coming, self._over}, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    return coming.result()
            finally:
                coming.cancel()
        return _GONE[self._scope["type"]]

    async def _tell(self, message: Message) -> None:
        """Pass it on, unless it is over. What was done all the same is told to whoever asked for it."""
        if self._over.done() and not self._begun_late:
            if self._begun or message["type"] != "http.response.start" or message["status"] >= HTTPStatus.BAD_REQUEST:
                return
            self._begun_late = True
        self._begun = self._begun or message["type"] in _BEGINNINGS
        self._closed = self._closed or message["type"] == "websocket.close" or message.get("more_body") is False
        await self._send(message)
