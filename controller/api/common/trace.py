"""Trace ids of requests: from the caller's `traceparent` or new, and returned in a header."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.service.trace import trace_of, tracing

HEADER = "X-Trace-Id"
SCOPE_KEY = "paddock.trace"  # for code outside the middleware: the response to an internal error
_BEGINNINGS = ("http.response.start", "websocket.accept", "websocket.http.response.start")


class Trace:
    """Middleware that binds `trace_id` to the request's log lines, and adds it to the response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        trace = scope[SCOPE_KEY] = trace_of(Headers(scope=scope).getlist("traceparent"))

        async def with_trace(message: Message) -> None:
            if message["type"] in _BEGINNINGS:
                message.setdefault("headers", [])
                MutableHeaders(scope=message)[HEADER] = trace
            await send(message)

        with tracing(trace):
            await self._app(scope, receive, with_trace)
