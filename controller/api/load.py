"""Around every request of a known caller: how many there may be, of one caller and of all. Too many are told 429.

Nothing has been done for a request that is refused here, so that whoever asked can ask again after `Retry-After`.
Streams and work in boxes are not counted among those under way: they have bounds of their own, and may last.
"""

import math
import re
import threading
from dataclasses import dataclass

from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from controller.api.paths import PREFIX
from controller.service import access, wire
from controller.service.rates import Rates

_LASTING = re.compile(PREFIX + r"/namespaces/[^/]+/[^/]+/[^/]+/(exec|logs|files|portforward)(/.*)?")


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Requests a second of one caller (0: no bound), and requests under way of all callers together."""

    per_second: float = 0.0
    in_flight: int = 400


class LoadLimit:
    """Paddock itself (no caller) is not bounded."""

    def __init__(self, app: ASGIApp, limits: LoadLimits) -> None:
        self._app, self._limits = app, limits
        self._rates, self._lock, self._in_flight = Rates(limits.per_second), threading.Lock(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asking = access.caller()
        if asking is None:
            await self._app(scope, receive, send)
            return
        if wait := self._rates.take(asking.name):
            words = f"{asking.name} asks more than {self._limits.per_second:g} times a second (requests_per_second)"
            await _refuse(words, math.ceil(wait), scope, receive, send)
            return
        if _lasts(scope):
            await self._app(scope, receive, send)
            return
        if not self._enter():
            words = f"{self._limits.in_flight} requests are under way, the most there may be (requests_in_flight)"
            await _refuse(words, 1, scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._leave()

    def _enter(self) -> bool:
        with self._lock:  # each door has a thread of its own
            room = self._in_flight < self._limits.in_flight
            self._in_flight += room
            return room

    def _leave(self) -> None:
        with self._lock:
            self._in_flight -= 1


def _lasts(scope: Scope) -> bool:
    watch = QueryParams(scope.get("query_string", b"")).get("watch")
    return scope["type"] == "websocket" or bool(watch) or _LASTING.fullmatch(scope["path"]) is not None


async def _refuse(words: str, seconds: int, scope: Scope, receive: Receive, send: Send) -> None:
    told = wire.status("TooManyRequests", 429, f"{words}; nothing was done, ask again in {seconds} s")
    told["details"] = {**told.get("details", {}), "retryAfterSeconds": seconds}
    answer = JSONResponse(told, 429, {"Retry-After": str(seconds)})
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(answer)
    else:
        await answer(scope, receive, send)
