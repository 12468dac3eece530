"""Around every request of a known caller: how many there may be, of one caller and of all. Too many are told 429.

Nothing has been done for a request that is refused here, so that whoever asked can ask again after `Retry-After`.
Of all that callers have together, one may hold a share only: so nobody keeps the others out. Streams and work in boxes
may last; what all callers together have of those is bounded where they are served.
"""

import math
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from controller.api.common.models import PREFIX
from controller.api.server.request_deadline import MOST_CONNECTIONS
from controller.service.access import access
from controller.service.access.rate_limit import Rates
from controller.service.objects import serialize
from controller.service.watch.hub import MOST_WATCHES

REQUESTS: Final = "requests"
_LASTING = re.compile(PREFIX + r"/namespaces/[^/]+/[^/]+/[^/]+/(exec|logs|files|portforward)(/.*)?")
_LASTING_WORDS = {
    "exec": "commands",
    "logs": "logs",
    "files": "file operations",
    "portforward": "connections to ports",
    "watch": "watches",
}
_TRUE = frozenset(("1", "true", "on", "yes", "t", "y"))


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Requests a second of one caller (0: no bound), and requests under way of all callers together.

    `lasting` is how many watches, commands, logs, file operations and connections to ports all callers may have; one
    may hold `share` of each of them, and of the requests under way.
    """

    per_second: float = 0.0
    in_flight: int = 400
    share: float = 1.0
    lasting: Mapping[str, int] = field(default_factory=dict)

    def with_lasting(self, *, transfers: int, ports: int) -> "LoadLimits":
        """With bounds of what may last; what has none of its own is bounded by the connections that a door takes."""
        bounds = {"files": transfers, "portforward": ports, "watch": MOST_WATCHES}
        lasting = {words: bounds.get(what, MOST_CONNECTIONS) for what, words in _LASTING_WORDS.items()}
        return replace(self, lasting=lasting)

    def of_one(self, what: str) -> int | None:
        """How many of these one caller may have; None: no bound."""
        total = self.in_flight if what == REQUESTS else self.lasting.get(what)
        return None if total is None else max(1, int(total * self.share))


class LoadLimit:
    """Paddock itself (no caller) is not bounded."""

    def __init__(self, app: ASGIApp, limits: LoadLimits) -> None:
        self._app, self._limits = app, limits
        self._rates, self._lock = Rates(limits.per_second), threading.Lock()
        self._in_flight, self._held = 0, Counter[tuple[str, str]]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asking = access.caller()
        if asking is None:
            await self._app(scope, receive, send)
            return
        if wait := self._rates.take(asking.name):
            words = f"{asking.name} asks more than {self._limits.per_second:g} times a second (requests_per_second)"
            await _refuse(words, math.ceil(wait), scope, receive, send)
            return
        what = _what(scope)
        if words := self._enter(asking.name, what):
            await _refuse(words, 1, scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._leave(asking.name, what)

    def _enter(self, name: str, what: str) -> str:
        """One more; else why not."""
        most = self._limits.of_one(what)
        with self._lock:  # each door has a thread of its own
            if most is not None and self._held[name, what] >= most:
                share = f"the most that one caller may have at a time (caller_share is {self._limits.share:g})"
                return f"{name} has {most} {what} under way, {share}"
            if what == REQUESTS and self._in_flight >= self._limits.in_flight:
                return f"{self._in_flight} requests are under way, the most there may be (requests_in_flight)"
            self._in_flight += what == REQUESTS
            self._held[name, what] += 1
        return ""

    def _leave(self, name: str, what: str) -> None:
        with self._lock:
            self._in_flight -= what == REQUESTS
            self._held[name, what] -= 1
            if not self._held[name, what]:
                del self._held[name, what]


def _what(scope: Scope) -> str:
    """What a request is one of."""
    if found := _LASTING.fullmatch(scope["path"]):
        return _LASTING_WORDS[found[1]]
    watch = QueryParams(scope.get("query_string", b"")).get("watch", "")
    return _LASTING_WORDS["watch"] if watch.lower() in _TRUE else REQUESTS


async def _refuse(words: str, seconds: int, scope: Scope, receive: Receive, send: Send) -> None:
    told = serialize.status("TooManyRequests", 429, f"{words}; nothing was done, ask again in {seconds} s")
    told["details"] = {**told.get("details", {}), "retryAfterSeconds": seconds}
    answer = JSONResponse(told, 429, {"Retry-After": str(seconds)})
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(answer)
    else:
        await answer(scope, receive, send)
