"""A response that another ASGI application gives."""

from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Replayed(Response):
    """The answer of `app`. `read` is the request's body, if it was read already; `options` are added to its scope."""

    def __init__(self, app: ASGIApp, read: bytes | None = None, **options: Any) -> None:
        super().__init__()
        self._app, self._read, self._more = app, read, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def again() -> Message:
            body, self._read = self._read, None
            if body is None:
                return await receive()
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app({**scope, **self._more}, again, send)
