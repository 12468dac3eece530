"""The ASGI application of other people's servers. It loads the SDK at the first request."""

import asyncio
import json
import re
import secrets
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import anyio
from starlette.datastructures import Headers, QueryParams
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from controller.mcp import sdk
from controller.mcp.calls import OPTIONS_KEY
from controller.mcp.json_rpc import body_of, refusal_of, replayed
from controller.mcp.servers.notices import Place
from controller.mcp.servers.sessions import Sessions
from controller.mcp.servers.target import CONNECTION_HEADER, SESSION_HEADER, UNSANDBOXED_HEADER, Target, use_of
from controller.ports import Meter
from controller.service.access import access
from controller.service.errors import BadRequest, Conflict, MethodNotAllowed, NotFound, ServiceError
from controller.service.listing import serialize
from controller.service.services import Services

if TYPE_CHECKING:
    from controller.mcp.servers.gateway import Gateway

_CONNECTION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEEP_ALIVE_SECONDS = 15.0
_MOST_ENDED = 1000  # sessions that clients ended, and whose names are remembered
_MOST_PEEKED_BYTES = 64 << 10


class ServersEndpoint:
    """Serves other people's servers. Each event loop has a gateway of its own; the sessions are shared.

    A connection is named by the bridge, or by the session that `initialize` began. It lasts while its client holds a
    GET; notifications come on that.
    """

    def __init__(self, services: Services, sessions: Sessions, meter: Meter) -> None:
        self._services, self._sessions, self._meter = services, sessions, meter
        self._loading, self._lock = threading.Lock(), threading.Lock()
        self._gateways: WeakKeyDictionary[asyncio.AbstractEventLoop, Gateway] = WeakKeyDictionary()
        self._held: Counter[Place] = Counter()
        self._ended: deque[Place] = deque(maxlen=_MOST_ENDED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, hosts: Sequence[str]) -> None:
        try:
            target = target_of(scope)
            is_call = scope["method"] == "POST"
            if not is_call and not target.connection:
                remedy = f"a connection needs the header {SESSION_HEADER} or {CONNECTION_HEADER}; use POST"
                raise MethodNotAllowed(remedy)
            if is_call and target.connection and _place(target) in self._ended:
                raise NotFound(f"session `{target.connection}` was ended; begin another with `initialize`")
            if target.name:
                target = await anyio.to_thread.run_sync(self._record_use, target, scope["state"]["record"], is_call)
            if not is_call:
                await (self._hold if scope["method"] == "GET" else self._end)(target, scope, receive, send)
                return
        except ServiceError as error:
            await JSONResponse(serialize.failure(error), error.code)(scope, receive, send)
            return
        gateway, body = await self._gateway(), await body_of(receive)
        if (refusal := refusal_of(body)) is not None:
            await JSONResponse(refusal, 400)(scope, receive, send)
            return
        message = _small_message(body)
        if message.get("method") == "notifications/cancelled" and target.connection:
            params = message.get("params")
            gateway.cancel(target, params.get("requestId") if isinstance(params, dict) else None)
        if message.get("method") == "initialize" and not target.connection:
            send = _with_session(send)
        await gateway.serve({**scope, OPTIONS_KEY: target}, replayed(body, receive), send, hosts)

    def _record_use(self, target: Target, record: Callable[[], None], is_call: bool) -> Target:
        """Record the request in the audit log; return the target, of a call with its server. Raises ServiceError."""
        record()
        if not is_call:
            return target
        return replace(target, server=self._services.mcp_servers.get(target.namespace, target.name))

    async def _gateway(self) -> "Gateway":
        loop = asyncio.get_running_loop()
        gateway = self._gateways.get(loop)
        if gateway is None:
            new_gateway = await anyio.to_thread.run_sync(self._make)
            gateway = self._gateways.setdefault(loop, new_gateway)
        return gateway

    def _make(self) -> "Gateway":
        with self._loading:
            module = sdk.load("controller.mcp.servers.gateway")
            gateway: Gateway = module.Gateway(self._services, self._sessions, self._meter)
            return gateway

    async def _end(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        self._ended.append(_place(target))
        await anyio.to_thread.run_sync(self._sessions.end, *_place(target))
        await Response(status_code=204)(scope, receive, send)

    async def _hold(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep the response open as long as the client does, with notifications; then its sessions end.

        A daemon that stops ends it.
        """
        place, undo = _place(target), ExitStack()
        if UNSANDBOXED_HEADER.lower().encode() in dict(scope["headers"]):
            await anyio.to_thread.run_sync(self._note_unsandboxed, target, undo)
        gateway = await self._gateway()
        with self._lock:
            self._held[place] += 1
        try:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            async with anyio.create_task_group() as group:
                group.start_soon(_keep_alive, send)
                group.start_soon(_until_gone, receive, group.cancel_scope.cancel)
                await _notify(gateway.stream(target), send)
                group.cancel_scope.cancel()
            await send({"type": "http.response.body", "body": b""})
        except* OSError:  # it is gone
            pass
        finally:
            with self._lock:
                self._held[place] -= 1
                is_last = self._held[place] <= 0
                if is_last:
                    del self._held[place]
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(undo.close)
                if is_last:
                    await anyio.to_thread.run_sync(self._sessions.end, *place)

    def _note_unsandboxed(self, target: Target, undo: ExitStack) -> None:
        """Note that the connection is that of a server which runs as its client's own process. Raises ServiceError."""
        server = self._services.mcp_servers.get(target.namespace, target.name)
        access.require(use_of(server), self._services.registry)  # not with a grant for some tools alone
        if server.spec.sandbox != "Preferred" or server.spec.trust != "verified":
            raise Conflict(f"{server} runs in a sandbox only; connect without --allow-unsandboxed")
        undo.enter_context(self._sessions.unsandboxed(server))


async def _keep_alive(send: Send) -> None:
    while True:
        await send({"type": "http.response.body", "body": b": connected\n\n", "more_body": True})
        await anyio.sleep(_KEEP_ALIVE_SECONDS)


async def _until_gone(receive: Receive, on_disconnect: Callable[[], None]) -> None:
    while (await receive()).get("type") != "http.disconnect":
        pass
    on_disconnect()


async def _notify(messages: AsyncIterator[Sequence[Mapping[str, Any]]], send: Send) -> None:
    async for several in messages:
        for message in several:
            body = f"event: message\ndata: {json.dumps(message)}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})


def _small_message(body: Sequence[Message]) -> Mapping[str, Any]:
    """Return the message of a body; empty for a large one: those are no notifications, and begin no session."""
    if sum(len(event.get("body", b"")) for event in body) > _MOST_PEEKED_BYTES:
        return {}
    try:
        message = json.loads(b"".join(event.get("body", b"") for event in body))
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _with_session(send: Send) -> Send:
    """Return a `send` that gives the client the name of a new session."""
    name = secrets.token_hex(16).encode()

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message = {**message, "headers": [*message.get("headers", ()), (SESSION_HEADER.lower().encode(), name)]}
        await send(message)

    return sending


def _place(target: Target) -> Place:
    asking = access.caller()
    return asking.name if asking is not None else "", target.connection


def target_of(scope: Scope) -> Target:
    """Return the target of a request. Raises BadRequest."""
    path_params, query = scope.get("path_params", {}), QueryParams(scope["query_string"])
    headers = Headers(scope=scope)
    connection = headers.get(CONNECTION_HEADER, "") or headers.get(SESSION_HEADER, "")
    if connection and not _CONNECTION.fullmatch(connection):
        raise BadRequest(f"{CONNECTION_HEADER}, {SESSION_HEADER}: must be 1 to 64 letters, digits, `-` and `_`")
    known_parameters = () if "name" in path_params else ("namespace",)
    wrong = [f"`{parameter[:60]}` is not a parameter here" for parameter in query if parameter not in known_parameters]
    if wrong:
        raise BadRequest(f"{'; '.join(wrong)}; known: {', '.join(known_parameters) or 'none'}")
    if "name" in path_params:
        return Target(path_params["namespace"], path_params["name"], connection)
    return Target(query.get("namespace") or "default", "", connection)
