"""The gateway's HTTP application: a request of a sandbox goes to the source of its model, with the key, as it is."""

import asyncio
import contextlib
import json
import socket
import ssl
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from controller.gateway.budgets import Budgets, BudgetUsed, Reservation
from controller.gateway.config import HOST, REPORTED, RUN, Access, Config, Form, Target, User, choose, is_match
from controller.gateway.request import (
    FREE_ROUTES,
    LOOP_HEADER,
    ROUTES,
    Bodies,
    Refused,
    answer_headers,
    error_event,
    no_such_model,
    parse_request,
    request_headers,
    resolve,
    tokens_needed,
)
from controller.gateway.upstream import Answer, Upstream, UpstreamError
from controller.gateway.usage import Redactor, UsageReader

_PROGRESS_SECONDS = 1.0
_LISTED_SECONDS = 60.0
_LIST_SECONDS = 5.0
_MOST_LISTED_BYTES = 4 << 20
_PROBE_SECONDS = 15.0
_KNOWN_CALLER_SECONDS = 5.0
_MOST_KNOWN = 1024
_OUTCOMES = {401: "unauthorized", 404: "not_found", 413: "refused", 429: "limited"}


class Daemon(Protocol):
    """The daemon, as the application asks it."""

    async def open(self, target: Target) -> tuple[socket.socket, Callable[[], None]]:
        """Connect to a model server, which is started for it. The second result ends the use. Raises UpstreamError."""

    async def authorize(self, token: str, namespace: str) -> str:
        """Return the caller's name. Raises Refused."""

    def state(self, target: str, reason: str, message: str) -> None:
        """Say that the state of a source changed."""


@dataclass(slots=True)
class Use:
    """Use of one source by one user since the last report."""

    outcomes: Counter[str] = field(default_factory=Counter)
    tokens_in: int = 0
    tokens_out: int = 0
    first_bytes: list[float] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Exchange:
    """One request for a model, while it runs."""

    listener: str
    """Listener that it came in by."""
    user: User
    """Sandbox or caller that sent it."""
    target: Target
    """Source of models that answers."""
    route: str
    """Path below the provider's address."""
    model: str
    """Model that it names."""
    reservation: Reservation
    """Tokens that are reserved until their number is known."""
    task: asyncio.Task[None] | None = None
    """Task that answers it; None until it runs."""
    revoked: bool = False
    """Its target or user is allowed no more: it ends."""
    has_begun: bool = False
    """Its answer has begun: no error can be sent."""
    outcome: str = "failed"
    """Outcome, for the metrics."""

    @property
    def form(self) -> Form:
        return ROUTES[self.route]


class Gateway:
    """All listeners of the gateway, in one event loop."""

    def __init__(self, daemon: Daemon, tls: ssl.SSLContext, clock: Callable[[], float] = time.time) -> None:
        self.config = Config()
        self.budgets = Budgets(clock)
        self.uses: dict[tuple[User, str], Use] = {}
        self.due = asyncio.Event()
        self._daemon = daemon
        self._tls = tls
        self._bodies = Bodies()
        self._upstreams: dict[str, Upstream] = {}
        self._running: set[Exchange] = set()
        self._states: dict[str, tuple[str, str]] = {}
        self._listed: dict[str, tuple[float, list[str]]] = {}
        self._callers: dict[tuple[str, str], tuple[float, str]] = {}
        self._background: set[asyncio.Task[None]] = set()

    def configure(self, config: Config) -> None:
        """Serve this from now on. What is revoked by it is cut off; what is new is tried."""
        before, self.config = self.config, config
        for target_id in [
            target_id for target_id in self._upstreams if config.targets.get(target_id) != before.targets.get(target_id)
        ]:
            self._later(self._upstreams.pop(target_id).close())
            self._listed.pop(target_id, None)
        for exchange in self._running:
            if not self._is_allowed(exchange) and exchange.task is not None:
                exchange.revoked = True
                exchange.task.cancel()
        for target in config.targets.values():
            if not target.is_server and not target.broken and before.targets.get(target.id) != target:
                self._states.pop(target.id, None)
                self._later(self._probe(target))

    async def probe_again(self) -> None:
        """Try the providers that failed; those that answer need no trial."""
        failed = [
            target for target in self.config.targets.values() if self._states.get(target.id, ("", ""))[0] not in _WELL
        ]
        await asyncio.gather(*(self._probe(target) for target in failed if not target.is_server and not target.broken))

    def app(self, listener: str, access: Access | None = None) -> ASGIApp:
        """Return the application of one listener: the listener says who asks, unless `access` does."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            try:
                await self._serve(listener, access, scope, receive, send)
            except Refused as error:
                await _respond(send, error.status, error.headers, error.body())

        return serve

    async def _serve(self, listener: str, access: Access | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, after its user and the models that are theirs to use. Raises Refused."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if LOOP_HEADER in headers:
            raise Refused(508, "the request came from a gateway of Paddock; a provider must not be one")
        path: str = scope["path"]
        if listener == HOST:
            user, targets, path = await self._of_host(path, headers)
        else:
            access = access or self.config.listeners.get(listener)
            if access is None:
                raise Refused(403, "this sandbox may use no models any more", code="revoked")
            user, targets = access.user, access.targets
        sources = [self.config.targets[source_id] for source_id in targets if source_id in self.config.targets]
        route = path.removeprefix("/v1") if path.startswith("/v1/") else ""
        if route == "/models" or route.startswith("/models/"):
            await self._models(scope["method"], sources, route.removeprefix("/models").strip("/"), send)
            return
        if route not in ROUTES:
            raise Refused(404, f"there is no `{path[:200]}` here; known are /v1/models, {_routes()}")
        if scope["method"] != "POST":
            raise Refused(405, f"{scope['method']} is not served at /v1{route}; use POST")
        body = await self._bodies.read(headers, receive)
        try:
            await self._exchange(
                listener, user, sources, route=route, headers=headers, body=body, receive=receive, send=send
            )
        finally:
            self._bodies.release(len(body))

    async def _of_host(self, path: str, headers: Mapping[bytes, bytes]) -> tuple[User, tuple[str, ...], str]:
        """Return the user, the sources and the rest of the path of a request on the host. Raises Refused."""
        namespace, _, subpath = path.removeprefix("/").partition("/")
        if not subpath.startswith("v1/"):
            raise Refused(404, "the address here is http://127.0.0.1:PORT/NAMESPACE/v1")
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", b"").decode("latin-1")
        if not token:
            raise Refused(401, "a Paddock token is needed as the API key (`paddock token create`)")
        at, caller = self._callers.get((token, namespace), (0.0, ""))
        if time.monotonic() - at > _KNOWN_CALLER_SECONDS:
            caller = await self._daemon.authorize(token, namespace)
            if len(self._callers) >= _MOST_KNOWN:
                self._callers.clear()
            self._callers[token, namespace] = (time.monotonic(), caller)
        return User(namespace, caller, "Token"), self.config.of_namespace(namespace), f"/{subpath}"

    async def _exchange(
        self,
        listener: str,
        user: User,
        sources: list[Target],
        route: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        """Pass one request on, until its answer ends, its user is gone or it is revoked."""
        try:
            request = await parse_request(body)
            target, model = resolve(sources, route, request["model"])
        except Refused as error:
            self._count(user, "", _OUTCOMES.get(error.status, "refused"))
            raise
        if model != request["model"]:
            body = json.dumps({**request, "model": model}, ensure_ascii=False).encode()
        try:
            reservation = self.budgets.take(target.id, target.limits, tokens_needed(route, request, len(body)))
        except BudgetUsed as error:
            self._count(user, target.id, "limited")
            message = f"{target.subject}: {error}; try again in {error.retry_after} s"
            raise Refused(429, message, retry_after=error.retry_after) from error
        self._report_due(target)
        exchange = Exchange(listener, user, target=target, route=route, model=request["model"], reservation=reservation)
        self._running.add(exchange)
        try:
            work = self._pass_on(exchange, headers, body, send, is_stream=request.get("stream") is True)
            exchange.task = asyncio.create_task(work)
            await _while_there(exchange.task, receive)
        except asyncio.CancelledError:
            exchange.outcome = "revoked" if exchange.revoked else "cancelled"
            if exchange.revoked and not exchange.has_begun:
                raise Refused(403, "this sandbox may not use it any more", code="revoked") from None
        except UpstreamError as error:
            raise Refused(502, str(error), code=error.reason.lower()) from error
        finally:
            self._running.discard(exchange)
            self.budgets.end(reservation)
            self._report_due(target)
            self._count(user, target.id, exchange.outcome)

    async def _pass_on(
        self, exchange: Exchange, headers: Mapping[bytes, bytes], body: bytes, send: Send, *, is_stream: bool
    ) -> None:
        """Pass a request on to the provider, its answer back, and count what both used."""
        target = exchange.target
        meter = UsageReader("", len(body))
        is_complete = False
        is_used = False
        reservation, is_free = exchange.reservation, exchange.route in FREE_ROUTES
        started_at = time.monotonic()
        redactor = Redactor(target.key)
        try:
            async with asyncio.timeout(target.timeouts.total), AsyncExitStack() as stack:
                progress = _Progress(exchange, send) if target.is_server and is_stream else contextlib.nullcontext()
                async with progress:
                    response = self._upstream(target).send("POST", exchange.route, request_headers(headers), body)
                    answer = await stack.enter_async_context(response)
                self._judge(target, answer)
                meter = UsageReader(_content_type(answer), len(body))
                self._use(exchange.user, target.id).first_bytes.append(time.monotonic() - started_at)
                await self._begin(exchange, answer, redactor, send)
                async for chunk in answer.parts:
                    meter.feed(chunk)
                    reservation.spent = 0 if is_free else meter.tokens_so_far()
                    if output := redactor.feed(chunk):
                        async with asyncio.timeout(target.timeouts.idle):
                            await send({"type": "http.response.body", "body": output, "more_body": True})
                if not is_free:  # before the answer's end: its reader's next request finds the budget settled
                    self.budgets.settle(reservation, sum(meter.tokens()))
                await send({"type": "http.response.body", "body": redactor.flush()})
                is_complete, exchange.outcome = True, "ok" if answer.status < 400 else "rejected"
        except (UpstreamError, TimeoutError) as error:
            upstream_error = error if isinstance(error, UpstreamError) else UpstreamError("Stalled", _too_long(target))
            await self._fail(exchange, upstream_error, meter, send)
        except asyncio.CancelledError:
            is_used = not target.is_server  # a provider takes the request for used, though nobody waits for its answer
            raise
        finally:
            tokens = meter.tokens(finished=is_complete) if (exchange.has_begun or is_used) and not is_free else (0, 0)
            use = self._use(exchange.user, target.id)
            use.tokens_in, use.tokens_out = use.tokens_in + tokens[0], use.tokens_out + tokens[1]
            self.budgets.settle(reservation, sum(tokens))

    async def _begin(self, exchange: Exchange, answer: Answer, redactor: Redactor, send: Send) -> None:
        """Send the head of the answer, unless a stream has begun while its server was starting."""
        if not exchange.has_begun:
            headers = answer_headers(answer.headers, redactor.is_in)
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            exchange.has_begun = True
        elif answer.status >= 400:
            raise UpstreamError("Rejected", f"{exchange.target.subject} answered with {answer.status}")

    async def _fail(self, exchange: Exchange, error: UpstreamError, meter: UsageReader, send: Send) -> None:
        """Say why an answer failed: as an error, or as an event of a stream that has begun. Raises UpstreamError."""
        self._report(exchange.target, error.reason, str(error))
        if not exchange.has_begun:
            raise error
        if meter.is_stream or exchange.target.is_server:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    event = error_event(exchange.form, str(error))
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        # The body is left unfinished: its reader must not take it for a whole answer.

    def _judge(self, target: Target, answer: Answer) -> None:
        """Take the provider's state from its answer. Raises Refused for one that is not passed on."""
        if target.is_server:
            return
        if _encoding(answer) not in ("", "identity"):  # in it nobody would see a key, or count tokens
            raise UpstreamError("Unreachable", f"{target.subject} compresses its answers though asked not to")
        if answer.status == 401:
            message = f"{target.subject} refuses the key that the operator set for it"
            raise UpstreamError("Unauthorized", f"{message}; ask the operator")
        if 300 <= answer.status < 400:
            raise UpstreamError("Unreachable", f"{target.subject} redirects ({answer.status}), which is not followed")
        self._report(target, "Answering", "")

    def _report(self, target: Target, reason: str, message: str) -> None:
        """Report the state of a provider, if it changed. A broken answer says nothing about the next one."""
        if target.is_server or reason not in REPORTED or target != self.config.targets.get(target.id):
            return
        if self._states.get(target.id) != (reason, message):
            self._states[target.id] = (reason, message)
            self._daemon.state(target.id, reason, message)

    async def _probe(self, target: Target) -> None:
        """Ask a provider for its models: any answer but a refused key is well."""
        try:
            async with (
                asyncio.timeout(_PROBE_SECONDS),
                self._upstream(target).send("GET", "/models", _LIST, b"") as got,
            ):
                self._judge(target, got)
        except UpstreamError as error:
            self._report(target, error.reason, str(error))
        except TimeoutError:
            self._report(target, "Unreachable", f"{target.subject} did not answer within {_PROBE_SECONDS:g} s")

    async def _models(self, method: str, sources: list[Target], name: str, send: Send) -> None:
        """Answer with the models that may be used, in the form of both APIs."""
        if method not in ("GET", "HEAD"):
            raise Refused(405, f"{method} is not served here; use GET")
        if name:
            target = await self._source_of(sources, name)
            headers = [(b"content-type", b"application/json")]
            await _respond(send, 200, headers, json.dumps(_model(name, target)).encode())
            return
        lists = await asyncio.gather(*(self._names(source) for source in sources))
        source_by_model = {
            model: source for source, models in reversed(list(zip(sources, lists, strict=True))) for model in models
        }
        listed = [_model(model, source_by_model[model]) for model in sorted(source_by_model)]
        ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {}
        answer = {"object": "list", "data": listed, "has_more": False, **ends}
        await _respond(send, 200, [(b"content-type", b"application/json")], json.dumps(answer).encode())

    async def _source_of(self, sources: list[Target], name: str) -> Target:
        """Return the source that a request for this model goes to. Raises Refused where it would be refused, too.

        A provider that lists some models is asked for one that it does not list: aliases are often left out.
        """
        chosen = choose(sources, name)
        if chosen is None:
            raise Refused(404, no_such_model(name), code="model_not_found")
        target, model = chosen
        if target.broken:
            raise Refused(503, f"{target.subject} can't be used: {target.broken}", code="provider_not_ready")
        listed = await self._names(target)
        if target.is_server or model in listed or not listed or await self._has(target, model):
            return target
        raise Refused(404, no_such_model(name), code="model_not_found")

    async def _has(self, target: Target, model: str) -> bool:
        """Return False if the provider says that it has no such model. To ask it is a request of its budget."""
        route = f"/models/{urllib.parse.quote(model, safe='')}"
        try:
            reservation = self.budgets.take(target.id, target.limits, 0)
        except BudgetUsed:
            return True  # not known, as below
        try:
            async with asyncio.timeout(_LIST_SECONDS), self._upstream(target).send("GET", route, _LIST, b"") as got:
                self._judge(target, got)
                return got.status < 400
        except (UpstreamError, TimeoutError):
            return True  # not known, so a request for it would be passed on
        finally:
            self.budgets.end(reservation)

    async def _names(self, target: Target) -> list[str]:
        """Return the names of a source's models. Only a provider with patterns is asked."""
        if not any("*" in pattern for pattern in target.models):
            return list(target.models)
        at, names = self._listed.get(target.id, (0.0, None))
        if names is None or time.monotonic() - at > _LISTED_SECONDS:
            names = await self._fetch_names(target) if not target.broken else []
            self._listed[target.id] = (time.monotonic(), names)
        plain = [pattern for pattern in target.models if "*" not in pattern]
        return [*plain, *(name for name in names if any(is_match(pattern, name) for pattern in target.models))]

    async def _fetch_names(self, target: Target) -> list[str]:
        parts = b""
        try:
            async with (
                asyncio.timeout(_LIST_SECONDS),
                self._upstream(target).send("GET", "/models", _LIST, b"") as answer,
            ):
                self._judge(target, answer)
                async for chunk in answer.parts:
                    parts += chunk
                    if len(parts) > _MOST_LISTED_BYTES:
                        return []
            models = json.loads(parts.decode())["data"]
            names = [model["id"] for model in models if isinstance(model["id"], str)]
        except (UpstreamError, TimeoutError, ValueError, LookupError, TypeError, RecursionError):
            return []
        return [name for name in names if target.key not in name or not target.key]

    def _upstream(self, target: Target) -> Upstream:
        upstream = self._upstreams.get(target.id)
        if upstream is None or upstream.target != target:
            upstream = self._upstreams[target.id] = Upstream(target, self._tls, self._daemon.open)
        return upstream

    def _is_allowed(self, exchange: Exchange) -> bool:
        target = self.config.targets.get(exchange.target.id)
        if target is None or target.broken or choose([target], exchange.model) is None:
            return False
        if exchange.listener in (HOST, RUN):
            return True
        access = self.config.listeners.get(exchange.listener)
        return access is not None and target.id in access.targets

    def _report_due(self, target: Target) -> None:
        """Have the use of a budget of tokens reported at once: an end of this process loses none of it."""
        if target.limits.tokens_per_day is not None:
            self.due.set()

    def _use(self, user: User, target: str) -> Use:
        return self.uses.setdefault((user, target), Use())

    def _count(self, user: User, target: str, outcome: str) -> None:
        self._use(user, target).outcomes[outcome] += 1

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


_WELL = ("Answering", "")
_LIST = [(b"accept", b"application/json"), (b"accept-encoding", b"identity"), (LOOP_HEADER, b"1"),
         (b"anthropic-version", b"2023-06-01")]  # fmt: skip


class _Progress:
    """Comments in a stream while its server starts, which say that the request is not forgotten."""

    def __init__(self, exchange: Exchange, send: Send) -> None:
        self._exchange, self._send = exchange, send
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._report())

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _report(self) -> None:
        started_at = time.monotonic()
        await asyncio.sleep(_PROGRESS_SECONDS)
        head = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        self._exchange.has_begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": head})
        while True:
            text = f": {self._exchange.target.subject} is starting, {time.monotonic() - started_at:.0f} s\n\n"
            await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            await asyncio.sleep(_PROGRESS_SECONDS)


async def _while_there(task: "asyncio.Task[None]", receive: Receive) -> None:
    """Wait for the task; cancel it when its user is gone. Raises what it raises."""

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    disconnect = asyncio.create_task(leave())
    try:
        await asyncio.wait([task, disconnect], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        await task
    finally:
        disconnect.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


async def _respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _model(name: str, target: Target) -> dict[str, Any]:
    """Return one model in the form of both APIs. Its time is not known."""
    openai_fields = {"id": name, "object": "model", "created": 0, "owned_by": target.name}
    return {**openai_fields, "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def _content_type(answer: Answer) -> str:
    return _header(answer, b"content-type")


def _encoding(answer: Answer) -> str:
    return _header(answer, b"content-encoding").strip().lower()


def _header(answer: Answer, name: bytes) -> str:
    text = next((value for header_name, value in answer.headers if header_name.lower() == name), b"")
    return text.decode("latin-1")


def _too_long(target: Target) -> str:
    return f"{target.subject} did not end its answer within {target.timeouts.total:g} s, or nobody read it"


def _routes() -> str:
    return ", ".join(f"/v1{route}" for route in ROUTES)
