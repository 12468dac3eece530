"""Limits on request bodies, and metrics of requests."""

import re
import time
from collections import Counter
from http import HTTPStatus

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.api.common.byte_budget import ByteBudget, HeldBytes
from controller.api.common.models import PREFIX
from controller.api.common.paths import KUBERNETES_PROTOBUF, PROXIED, REVIEWS, STREAMED
from controller.kinds.access.access import AccessRequest
from controller.kinds.runtime.agent_call import REQUEST_BYTES
from controller.policy.access import may_write
from controller.ports import Meter
from controller.service.access import access
from controller.service.listing import serialize

MAX_BODY_BYTES = 12 << 20
BODIES_BYTES = 256 << 20  # of all requests together
_TRUE = ("true", "True", "1", "yes", "on")
_REFUSED = {401: "unauthenticated", 403: "forbidden"}
_OF_AGENT = re.compile(PREFIX + r"/namespaces/[^/]+/[^/]+/[^/]+/mcp(/execute)?")
_TOO_LARGE_FOR_AGENT = (
    f"the request is larger than {REQUEST_BYTES >> 20} MiB, the most that the agent takes; write large files by"
    " `paddock cp` or PUT files"
)
_TOO_LARGE_FOR_REVIEW = "a review of access asks about one thing; its body has at most 16 KiB"
MAX_READERS_BODY_BYTES = 16 << 10  # of a caller without any write grant: enough for can-i
_MOST_LETTERS = 256  # of a path, in the audit
_READER = "may write nowhere: a body of this size is refused; ask an admin for the role user in a namespace"
_STRUCTURED = re.compile(r"(application/([a-z0-9.-]+\+)?|text/)(json|yaml|x-yaml)")
# Types that a web page's form can send to another site without a CORS preflight.
_OF_FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
_TOO_LARGE = f"the request is larger than {MAX_BODY_BYTES >> 20} MiB; send it in parts"
_TOO_MANY = "too many large requests are in flight; try again in a second"


class BodyLimit:
    """Refuse bodies over the limit, by announced or received length; over the memory budget answer 429.

    `state.held` of a request is what it holds of the budget, until its answer has been sent.

    File transfers into a sandbox, requests to its ports and contexts of builds are exempt: they have limits of their
    own (routes/sandbox/files.py, proxy.py and snapshots.py, routes/images.py).
    """

    def __init__(
        self, app: ASGIApp, limit_bytes: int = MAX_BODY_BYTES, budget: ByteBudget | None = None, share: float = 1.0
    ) -> None:
        """One caller may hold `share` of the budget; by default there is one of BODIES_BYTES."""
        self._app = app
        self._limit_bytes = limit_bytes
        self._budget = budget or ByteBudget(BODIES_BYTES, share)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or STREAMED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        limit_bytes = self._limit_bytes
        reason = "RequestEntityTooLarge"
        code = 413
        message = _TOO_LARGE
        if _OF_AGENT.fullmatch(scope["path"]):
            limit_bytes, message = REQUEST_BYTES, _TOO_LARGE_FOR_AGENT
        if scope["path"] in REVIEWS:
            limit_bytes, message = MAX_READERS_BODY_BYTES, _TOO_LARGE_FOR_REVIEW
        asking = access.caller()
        if asking is not None and not may_write(asking):
            limit_bytes = MAX_READERS_BODY_BYTES
            reason = "Forbidden"
            code = 403
            message = f"{asking.name} {_READER}"

        def note() -> None:
            if reason == "Forbidden":
                access.note(AccessRequest("admin", sub=scope["path"][:_MOST_LETTERS]), message)

        if announced.isdigit() and int(announced) > limit_bytes:
            note()
            refusal = JSONResponse(serialize.status(reason, code, message), code, {"Connection": "close"})
            await refusal(scope, receive, send)
            return
        received, held_bytes = 0, HeldBytes(self._budget, asking.name if asking else "")
        scope.setdefault("state", {})["held"] = held_bytes

        async def counted() -> Message:
            nonlocal received
            event = await receive()
            size = len(event.get("body", b""))
            if received + size > limit_bytes:
                note()
                raise HTTPException(code, message)
            if not held_bytes.take(size):
                raise HTTPException(429, _TOO_MANY, {"Retry-After": "1"})
            received += size
            return event

        try:
            await self._app(scope, counted, send)
        finally:
            held_bytes.give_back()


class BodyType:
    """Answer 415 to bodies without a type, or of a type that a web page's form can send.

    File transfers into a sandbox and contexts of builds may have any other type. Requests to a sandbox's port may have
    any: those of web pages are refused there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unchecked = scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS")
        if unchecked or PROXIED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not headers.get("content-length", "0").strip("0") and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        content_types = [
            content_type.partition(";")[0].strip().lower() for content_type in headers.getlist("content-type")
        ]
        if scope["path"] in REVIEWS and content_types == [KUBERNETES_PROTOBUF]:
            await self._app(scope, receive, send)
            return
        if STREAMED.fullmatch(scope["path"]):
            accepted, required = (
                not any(content_type in _OF_FORMS for content_type in content_types),
                "application/octet-stream",
            )
        else:
            accepted, required = (
                bool(content_types) and all(map(_STRUCTURED.fullmatch, content_types)),
                "application/json",
            )
        if accepted:
            await self._app(scope, receive, send)
            return
        shown_types = f"`{', '.join(content_types)[:100]}`" if content_types else "none"
        text = f"Content-Type: {shown_types} is not accepted; send the body with the header `Content-Type: {required}`"
        hint = "" if required == "application/octet-stream" else " (YAML: `application/yaml`)"
        refusal = JSONResponse(serialize.status("UnsupportedMediaType", 415, text + hint), 415)
        await refusal(scope, receive, send)


class RequestMetrics:
    """Count requests, and time them until the response starts (a followed log has no end).

    The label `route` is the path's template, so that object names do not become labels.
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
        recorded, stream = False, ""
        self._add_in_flight(1)

        def record(code: int) -> None:
            nonlocal recorded, stream
            if not recorded:
                recorded = True
                self._record(scope, code, time.perf_counter() - started)
                self._add_in_flight(-1)
                stream = _stream(scope) if code < HTTPStatus.BAD_REQUEST else ""
                self._add_stream(stream, 1)

        async def watched(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                record(message["status"])
            elif message["type"] == "websocket.accept":
                record(101)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            record(500)
            self._add_stream(stream, -1)

    def _add_in_flight(self, change: int) -> None:
        self._in_flight += change
        self._meter.gauge("paddock_api_requests_in_flight", self._in_flight)

    def _add_stream(self, kind: str, change: int) -> None:
        if kind:
            self._streams[kind] += change
            self._meter.gauge("paddock_api_streams", self._streams[kind], kind=kind)

    def _record(self, scope: Scope, code: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope.get("method", "WEBSOCKET")
        self._meter.count("paddock_api_requests_total", method=method, route=route, code=str(code))
        self._meter.observe("paddock_api_request_duration_seconds", seconds, method=method, route=route)
        if code in _REFUSED:
            self._meter.count("paddock_api_auth_failures_total", reason=_REFUSED[code])


def _stream(scope: Scope) -> str:
    """Return the kind of stream of a response that has just started; empty for a plain one."""
    route = str(getattr(scope.get("route"), "path", ""))
    query = QueryParams(scope.get("query_string", b""))
    if scope["type"] == "websocket" and route.endswith("/exec"):
        return "exec"
    if scope["type"] == "websocket" and route.endswith("/ssh"):
        return "ssh"
    if route.endswith("/logs") and query.get("follow") in _TRUE:
        return "logs"
    path = str(scope.get("path", ""))
    if STREAMED.fullmatch(path):
        return "" if PROXIED.fullmatch(path) else "cp"
    return "watch" if query.get("watch") in _TRUE else ""
