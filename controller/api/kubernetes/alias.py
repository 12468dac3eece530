"""The log and the commands of a pod are those of the sandbox of its name: the request is passed on as one for that.

So it is authorised, audited, limited and forwarded in a fleet as any other.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlencode

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from controller.api.common.models import PREFIX
from controller.service.listing import serialize

_OF_POD = re.compile(
    r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)/(?P<sub>log|exec|attach|portforward)"
)
_NO_WEBSOCKET = (
    "commands are streamed over a WebSocket, which kubectl opens since version 1.30; "
    "use a newer one, or `paddock exec NAME -- COMMAND`"
)
_INSTEAD = {
    "attach": "main processes are not attached to; write `paddock logs -f NAME`, or `paddock exec -it NAME -- sh`",
    "portforward": "ports are forwarded by `paddock port-forward NAME PORT`",
}
_SUBRESOURCES = {"log": "logs", "exec": "exec"}
# What a pod's request says that a sandbox's has no choice of: there is one container, and all of its streams come.
_IDLE = ("container", "insecureSkipTLSVerifyBackend", "limitBytes", "stderr", "stdout", "stream", "timeout")


class PodAlias:
    """Middleware that rewrites the path and the query of such a request."""

    def __init__(self, app: ASGIApp, now: Callable[[], float] = time.time) -> None:
        """`now` is Unix seconds."""
        self._app, self._now = app, now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (match := _OF_POD.fullmatch(scope["path"])):
            if message := _refusal(scope["type"], match["sub"], match["name"]):
                await _refuse(message, scope, receive, send)
                return
            path = f"{PREFIX}/namespaces/{match['namespace']}/sandboxes/{match['name']}/{_SUBRESOURCES[match['sub']]}"
            pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
            query = urlencode(list(_query(pairs, self._now())), errors="surrogateescape")
            scope = {**scope, "path": path, "raw_path": quote(path).encode(), "query_string": query.encode("latin-1")}
        await self._app(scope, receive, send)


def _refusal(type_: str, sub: str, name: str) -> str:
    """Return what to write in place of a request that is not served; "" for one that is."""
    if sub == "exec":
        return _NO_WEBSOCKET if type_ == "http" else ""
    return _INSTEAD.get(sub, "").replace("NAME", name)


async def _refuse(message: str, scope: Scope, receive: Receive, send: Send) -> None:
    answer = JSONResponse(serialize.status("BadRequest", 400, message), 400)
    if scope["type"] == "http":
        await answer(scope, receive, send)
    else:
        await WebSocket(scope, receive, send).send_denial_response(answer)


def _query(pairs: Iterable[tuple[str, str]], now: float) -> Iterator[tuple[str, str]]:
    """Yield the parameters that a sandbox's route knows; a time that can't be read stays, and is refused there."""
    for name, value in pairs:
        if name == "sinceTime":
            with contextlib.suppress(ValueError):
                at = datetime.fromisoformat(value).timestamp()
                yield "sinceSeconds", f"{max(0.001, now - at):.3f}"
                continue
        if name not in _IDLE:
            yield name, value
