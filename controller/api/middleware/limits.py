"""Around every request: how large it may be, and what is counted of it."""

import re
import threading
import time
from collections import Counter
from http import HTTPStatus

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.api.common.models import PREFIX
from controller.kinds.access.access import Ask
from controller.policy.access import may_write
from controller.ports import Meter
from controller.service.access import access
from controller.service.objects import serialize

MAX_BODY_BYTES = 12 << 20
_TRUE = ("true", "True", "1", "yes", "on")
_REFUSED = {401: "unauthenticated", 403: "forbidden"}
STREAMED = re.compile(PREFIX + r"/namespaces/[^/]+/[^/]+/[^/]+/files(/archive)?")
MAX_READERS_BODY_BYTES = 16 << 10  # of a caller who may write nowhere: a question, such as can-i
_MOST_LETTERS = 256  # of a path, in the audit
_READER = "may write nowhere: a body of this size is not read for them; ask an admin for the role user in a namespace"
_STRUCTURED = re.compile(r"(application/([a-z0-9.-]+\+)?|text/)(json|yaml|x-yaml)")
# What a page's form can send to another site without asking it first; of no type at all, too, but as no PUT.
_OF_FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
_TOO_LARGE = f"the request is larger than {MAX_BODY_BYTES >> 20} MiB; send it in parts"
_TOO_MANY = "too many large requests are under way; ask again in a second"


class BodyBudget:
    """So many bytes of bodies in memory at a time, of all requests together."""

    def __init__(self, most_bytes: int = 256 << 20) -> None:
        self._left_bytes, self._lock = most_bytes, threading.Lock()

    def take(self, count: int) -> bool:
        """So many more; False when there is no room."""
        with self._lock:
            room = count <= self._left_bytes
            self._left_bytes -= count * room
            return room

    def give_back(self, count: int) -> None:
        with self._lock:
            self._left_bytes += count


class BodyLimit:
    """Refuses bodies over the limit, by what they announce or by what has come.

    Many large ones at a time are told to come again. What is streamed into a box is left alone: it has limits of its
    own (routes/files.py).
    """

    def __init__(self, app: ASGIApp, limit_bytes: int = MAX_BODY_BYTES, budget: BodyBudget | None = None) -> None:
        self._app, self._limit_bytes, self._budget = app, limit_bytes, budget or BodyBudget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or STREAMED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        limit_bytes, reason, code, words = self._limit_bytes, "RequestEntityTooLarge", 413, _TOO_LARGE
        asking = access.caller()
        if asking is not None and not may_write(asking):
            limit_bytes, reason, code, words = MAX_READERS_BODY_BYTES, "Forbidden", 403, f"{asking.name} {_READER}"

        def note() -> None:
            if reason == "Forbidden":
                access.note(Ask("admin", sub=scope["path"][:_MOST_LETTERS]), words)

        if announced.isdigit() and int(announced) > limit_bytes:
            note()
            refusal = JSONResponse(serialize.status(reason, code, words), code, {"Connection": "close"})
            await refusal(scope, receive, send)
            return
        come = 0

        async def counted() -> Message:
            nonlocal come
            message = await receive()
            size = len(message.get("body", b""))
            if come + size > limit_bytes:
                note()
                raise HTTPException(code, words)
            if not self._budget.take(size):
                raise HTTPException(429, _TOO_MANY, {"Retry-After": "1"})
            come += size
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._budget.give_back(come)


class BodyType:
    """Refuses bodies that a web page's form could have sent, or whose type is not told: 415, with what to send.

    What is streamed into a sandbox may be of any type that no form sends.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not headers.get("content-length", "0").strip("0") and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        given = [each.partition(";")[0].strip().lower() for each in headers.getlist("content-type")]
        if STREAMED.fullmatch(scope["path"]):
            taken, wanted = not any(each in _OF_FORMS for each in given), "application/octet-stream"
        else:
            taken, wanted = bool(given) and all(map(_STRUCTURED.fullmatch, given)), "application/json"
        if taken:
            await self._app(scope, receive, send)
            return
        shown = f"`{', '.join(given)[:100]}`" if given else "none"
        words = f"Content-Type: {shown} is not taken here; send the body with the header `Content-Type: {wanted}`"
        more = "" if wanted == "application/octet-stream" else " (YAML: `application/yaml`)"
        refusal = JSONResponse(serialize.status("UnsupportedMediaType", 415, words + more), 415)
        await refusal(scope, receive, send)


class RequestMetrics:
    """Counts requests and times them until the answer begins (a log that is followed has no end to time).

    `route` is the template of the path, so that names of objects do not become labels.
    """

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app, self._meter = app, meter
        self._in_flight = 0
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        told, stream = False, ""
        self._add_in_flight(1)

        def tell(code: int) -> None:
            nonlocal told, stream
            if not told:
                told = True
                self._tell(scope, code, time.perf_counter() - started)
                self._add_in_flight(-1)
                stream = _stream(scope) if code < HTTPStatus.BAD_REQUEST else ""
                self._add_stream(stream, 1)

        async def watched(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                tell(message["status"])
            elif message["type"] == "websocket.accept":
                tell(101)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            tell(500)
            self._add_stream(stream, -1)

    def _add_in_flight(self, change: int) -> None:
        self._in_flight += change
        self._meter.gauge("paddock_api_requests_in_flight", self._in_flight)

    def _add_stream(self, kind: str, change: int) -> None:
        if kind:
            self._streams[kind] += change
            self._meter.gauge("paddock_api_streams", self._streams[kind], kind=kind)

    def _tell(self, scope: Scope, code: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope.get("method", "WEBSOCKET")
        self._meter.count("paddock_api_requests_total", method=method, route=route, code=str(code))
        self._meter.observe("paddock_api_request_duration_seconds", seconds, method=method, route=route)
        if code in _REFUSED:
            self._meter.count("paddock_api_auth_failures_total", reason=_REFUSED[code])


def _stream(scope: Scope) -> str:
    """Which kind of stream an answer that has just begun is; empty when it is none."""
    route = str(getattr(scope.get("route"), "path", ""))
    query = QueryParams(scope.get("query_string", b""))
    if scope["type"] == "websocket" and route.endswith("/exec"):
        return "exec"
    if route.endswith("/logs") and query.get("follow") in _TRUE:
        return "logs"
    if STREAMED.fullmatch(str(scope.get("path", ""))):
        return "cp"
    return "watch" if query.get("watch") in _TRUE else ""
