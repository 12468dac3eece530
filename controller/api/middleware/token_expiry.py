"""Expiry of tokens: when a token expires or is revoked, its requests end as if the client had disconnected.

Every stream handles a disconnect, so none has to know of tokens. The client gets 401 if no response has started, or
the close code 1008 on a WebSocket. A response that has started is cut off.
"""

import asyncio
import contextlib
from functools import partial
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.api.common.errors import refuse
from controller.kinds.access.access import Caller
from controller.service.access import access
from controller.service.access.token_expiry import TokenExpirations
from controller.service.errors import Unauthorized

_POLL_SECONDS = 1.0  # how late an expiry is noticed; a revocation by this daemon wakes it at once
_POLICY_VIOLATION = 1008
_BEGINNINGS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
_GONE: dict[str, Message] = {
    "http": {"type": "http.disconnect"},
    "websocket": {"type": "websocket.disconnect", "code": _POLICY_VIOLATION},
}


class TokenExpiry:
    """Middleware that ends a token's requests together with the token."""

    def __init__(self, app: ASGIApp, token_expirations: TokenExpirations) -> None:
        self._app, self._lifetimes = app, token_expirations

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
            await _ExpiringRequest(scope, receive, send, over).run(self._app)
        finally:
            leave()
            over.cancel()

    async def _over(self, asking: Caller, changed: asyncio.Event) -> str:
        """Wait until the token has ended; return the reason."""
        while not (reason := self._lifetimes.over(asking)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await changed.wait()
            if self._lifetimes.is_due():
                await run_in_threadpool(self._lifetimes.look)
        return reason


def _from_any_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended, and the request with it
        loop.call_soon_threadsafe(event.set)


class _ExpiringRequest:
    """One request, ended when `over` is done."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, over: "asyncio.Task[str]") -> None:
        self._scope, self._receive, self._send, self._over = scope, receive, send, over
        self._started = self._started_late = self._closed = False

    async def run(self, app: ASGIApp) -> None:
        await app(self._scope, self._next, self._forward)
        if not self._over.done() or self._closed:
            return
        reason = f"{self._over.result()}: its open requests were ended"
        if not self._started:
            await refuse(Unauthorized(reason), self._scope, self._receive, self._send)
        elif self._scope["type"] == "websocket":
            await self._send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": reason[:120]})

    async def _next(self) -> Message:
        """Return the client's next message, or a disconnect once the token has ended."""
        if not self._over.done():
            incoming = asyncio.ensure_future(self._receive())
            try:
                await asyncio.wait({incoming, self._over}, return_when=asyncio.FIRST_COMPLETED)
                if incoming.done():
                    return incoming.result()
            finally:
                incoming.cancel()
        return _GONE[self._scope["type"]]

    async def _forward(self, message: Message) -> None:
        """Pass it on unless the token has ended. A success that was carried out all the same is still reported."""
        if self._over.done() and not self._started_late:
            if self._started or message["type"] != "http.response.start" or message["status"] >= HTTPStatus.BAD_REQUEST:
                return
            self._started_late = True
        self._started = self._started or message["type"] in _BEGINNINGS
        self._closed = self._closed or message["type"] == "websocket.close" or message.get("more_body") is False
        await self._send(message)
