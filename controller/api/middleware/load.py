"""Rate and concurrency limits of callers: requests over them get 429.

A refused request has had no effect: the client may retry after `Retry-After`. One caller may hold a share of the total,
so that no caller locks out the others. Totals of long-lived requests (streams, exec, files) are enforced where they
are served.
"""

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from controller.api.common.models import PREFIX
from controller.api.server.request_deadline import MOST_CONNECTIONS
from controller.service.access import access
from controller.service.listing import serialize
from controller.service.watch.hub import MOST_WATCHES

REQUESTS: Final = "requests"
BURST_SECONDS = 5.0  # unused requests accumulate for so long
_MOST_CALLERS = 10_000
_LASTING = re.compile(PREFIX + r"/namespaces/[^/]+/[^/]+/[^/]+/(exec|mcp|logs|files|portforward|proxy|ssh)(/.*)?")
_LASTING_NAMES = {
    "exec": "commands",
    "logs": "logs",
    "files": "file operations",
    "portforward": "connections to ports",
    "proxy": "connections to ports",
    "ssh": "SSH connections",
    "watch": "watches",
    "mcp": "MCP requests",
}
_MCP = ("/mcp", "/mcp/servers")
_TRUE = frozenset(("1", "true", "on", "yes", "t", "y"))


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Limits: requests a second of one caller (0: no limit), and requests in flight of all callers.

    `lasting` are totals of watches, commands, logs, file operations and forwarded ports. One caller may hold `share`
    of each, and of the requests in flight.
    """

    per_second: float = 0.0
    in_flight: int = 400
    share: float = 1.0
    lasting: Mapping[str, int] = field(default_factory=dict)

    def with_lasting(self, *, transfers: int, ports: int) -> "LoadLimits":
        """Return the limits with totals of long-lived requests; the default is a listener's limit on connections."""
        bounds = {"files": transfers, "portforward": ports, "proxy": ports, "watch": MOST_WATCHES}
        lasting = {name: bounds.get(path, MOST_CONNECTIONS) for path, name in _LASTING_NAMES.items()}
        return replace(self, lasting=lasting)

    def of_one(self, what: str) -> int | None:
        """Return the limit of one caller on these; None: no limit."""
        total = self.in_flight if what == REQUESTS else self.lasting.get(what)
        return None if total is None else max(1, int(total * self.share))


class RateLimiter:
    """Token buckets by the caller's name. Thread-safe. `per_second` 0: no limit.

    `now` is a monotonic clock, in seconds.
    """

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._now = per_second, now
        self._lock = threading.Lock()
        self._full_at: dict[str, float] = {}  # when the bucket will be full again

    def take(self, name: str) -> float:
        """Take one request. Return 0.0, or the seconds to wait if the limit is reached."""
        if not self._per_second:
            return 0.0
        with self._lock:
            now = self._now()
            full_at = max(now, self._full_at.get(name, now)) + 1 / self._per_second
            early = full_at - now - max(BURST_SECONDS, 1 / self._per_second)
            if early > 1e-9:
                return early
            if len(self._full_at) >= _MOST_CALLERS:
                self._full_at = {caller: at for caller, at in self._full_at.items() if at > now}
            self._full_at[name] = full_at
            return 0.0


class LoadLimit:
    """Middleware that enforces the limits. Paddock itself (no caller) has none."""

    def __init__(self, app: ASGIApp, limits: LoadLimits) -> None:
        self._app, self._limits = app, limits
        self._rates, self._lock = RateLimiter(limits.per_second), threading.Lock()
        self._in_flight, self._held = 0, Counter[tuple[str, str]]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asking = access.caller()
        if asking is None:
            await self._app(scope, receive, send)
            return
        if wait := self._rates.take(asking.name):
            message = f"{asking.name} sends over {self._limits.per_second:g} requests a second (requests_per_second)"
            await _refuse(message, math.ceil(wait), scope, receive, send)
            return
        what = _what(scope)
        if message := self._enter(asking.name, what):
            await _refuse(message, 1, scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._leave(asking.name, what)

    def _enter(self, name: str, what: str) -> str:
        """Count one more request; return the refusal if it exceeds a limit, else an empty text."""
        most = self._limits.of_one(what)
        with self._lock:  # each listener has a thread of its own
            if most is not None and self._held[name, what] >= most:
                share = f"the limit of one caller (caller_share is {self._limits.share:g})"
                return f"{name} has {most} {what} in flight, {share}"
            if what == REQUESTS and self._in_flight >= self._limits.in_flight:
                return f"{self._in_flight} requests are in flight, the limit of all callers (requests_in_flight)"
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
    """Return the limited category of a request."""
    if scope["path"] in _MCP:
        return _LASTING_NAMES["mcp"]
    if match := _LASTING.fullmatch(scope["path"]):
        return _LASTING_NAMES[match[1]]
    watch = QueryParams(scope.get("query_string", b"")).get("watch", "")
    return _LASTING_NAMES["watch"] if watch.lower() in _TRUE else REQUESTS


async def _refuse(message: str, seconds: int, scope: Scope, receive: Receive, send: Send) -> None:
    body = serialize.status("TooManyRequests", 429, f"{message}; nothing was done, try again in {seconds} s")
    body["details"] = {**body.get("details", {}), "retryAfterSeconds": seconds}
    answer = JSONResponse(body, 429, {"Retry-After": str(seconds)})
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(answer)
    else:
        await answer(scope, receive, send)
