"""The ASGI application of E2B's protocol. Building it reads the key and the stored sandboxes: not on an event loop."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import structlog
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from controller.e2b import errors
from controller.e2b.calls import CALLS, Call
from controller.e2b.control.sandboxes import Control
from controller.e2b.control.snapshots import Snapshots
from controller.e2b.control.templates import Templates
from controller.e2b.directory import Directory
from controller.e2b.envd.file_work import FileWork
from controller.e2b.envd.files import FilesCalls
from controller.e2b.envd.filesystem import FilesystemCalls
from controller.e2b.envd.process import ProcessCalls
from controller.e2b.envd.processes import Processes
from controller.e2b.envd.watch import WatchCalls
from controller.e2b.envd.workplace import Workplace, workplace
from controller.e2b.envs import Variables
from controller.e2b.fields import Fields
from controller.e2b.frames import END, MESSAGE_BYTES, FrameReader, frame, only_message, parsed
from controller.e2b.identity import (
    Destination,
    Identity,
    Target,
    check_host,
    check_user,
    credentials_in,
    named_by,
    user_of,
)
from controller.e2b.interpreter import InterpreterCalls
from controller.e2b.parts import ENVD_PORT, INTERPRETER_PORT, Parts, Stream, load_key, on_thread
from controller.e2b.signature import AccessTokens
from controller.kinds.access.access import Caller
from controller.kinds.meta import StoredObject
from controller.kinds.runtime.agent import PORT as AGENT_PORT
from controller.kinds.runtime.models import PORT as MODELS_PORT
from controller.processes.keeper import Periodic
from controller.service.access.access import acting
from controller.service.errors import (
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    ServiceError,
    TooLarge,
    TooManyRequests,
)
from controller.service.parsing import SMALL_BYTES, Parsing

# In the state of a request: its caller and sandbox, the queue of large texts, and the port (0: the control plane).
_TARGET, _PARSING, _PORT = "paddock.e2b", "paddock.e2b.parsing", "paddock.e2b.port"
_STREAM_TYPE, _UNARY_TYPE = "application/connect+json", "application/json"
_KEEPALIVE_SECONDS = 90.0
_MOST_SECONDS = 1e7
_SWEEP_SECONDS = 3600.0
_NOT_FOR_CALLERS = (AGENT_PORT, MODELS_PORT)
_log = structlog.get_logger("paddock.e2b")
Handler = Callable[[Request], Awaitable[Response]]
Ports = Callable[[int, StoredObject, Scope, Receive, Send], Awaitable[None]]
Wrap = Callable[..., ASGIApp]  # of an application; `streams`: its bodies are passed on piece by piece


class E2BApp:
    """Identifies the caller of each request, and passes it on to the control plane, envd or the interpreter."""

    def __init__(self, parts: Parts, ports: Ports, wrap: Wrap = lambda app, **_: app) -> None:
        """`ports` passes a request on to a program; `wrap` adds the limits of the other listeners, for the caller."""
        self._parts, self._ports = parts, ports
        directory = Directory(parts.services.objects)
        self._identity = Identity(parts, AccessTokens(load_key(parts.rules.folder)), directory)
        variables = Variables(parts.rules.folder / "envs")
        sweep = partial(variables.keep_only, directory.stored_uids)
        sweep()
        # Of sandboxes that have ended: nobody says so.
        self._sweep = Periodic("e2b-sweep", "paddock.e2b", _SWEEP_SECONDS, sweep, postponing=(ServiceError, OSError))
        self._sweep.start()
        files = FileWork(parts)
        rules = parts.services.sandbox_streams.rules
        self._control = Control(parts, self._identity, variables)
        self._snapshot_calls = Snapshots(parts, self._control, variables)
        self._template_catalog = Templates(parts)
        self._process = ProcessCalls(parts, Processes(rules.pause_seconds), variables)
        self._filesystem, self._files = FilesystemCalls(files), FilesCalls(files)
        self._interpreter = InterpreterCalls(parts, variables)
        self._watch = WatchCalls(self._filesystem, parts.services.folder_watches)
        self._by_port = {
            0: wrap(self._router("control")),
            ENVD_PORT: wrap(self._router("envd")),
            INTERPRETER_PORT: wrap(self._router("interpreter")),
        }
        self._programs = wrap(self._program, streams=True)

    def close(self) -> None:
        """End what it does by itself."""
        self._sweep.stop()

    def _router(self, place: str) -> ASGIApp:
        routes = [Route(call.path, self._guarded(call), methods=[call.method]) for call in CALLS if call.place == place]
        return Router(routes, redirect_slashes=False, default=_unknown)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, source = Headers(scope=scope), f"tcp {scope['client'][0]}" if scope.get("client") else ""
        try:
            destination = named_by(headers, scope["path"], self._parts.rules.domain)
            query = QueryParams(scope.get("query_string", b""))
            authenticated = credentials_in(headers, list(query.keys()))
            check_host(headers, domain=self._parts.rules.domain, authenticated=authenticated)
            caller, target = await self._identified(scope, headers, destination, source)
        except ServiceError as error:
            if error.code == 401:
                await on_thread(self._parts.services.recorder.record_unknown, source, str(error))
            await refuse(error, scope, receive, send)
            return
        port = destination.port if destination else 0
        state = {_TARGET: target, _PARSING: self._parts.services.parsing, _PORT: port}
        scope.setdefault("state", {}).update(state)
        app = self._by_port.get(port, self._programs)
        if scope["type"] == "websocket" and port in self._by_port:
            app = _no_websocket
        with acting(caller) as refusals:
            try:
                await app(scope, receive, send)
            finally:
                for ask, why in refusals:
                    await on_thread(self._parts.services.recorder.record_refusal, ask, why)

    async def _identified(
        self, scope: Scope, headers: Headers, destination: Destination | None, source: str
    ) -> tuple[Caller, Target | None]:
        if destination is None:
            return await on_thread(self._identity.caller, headers, source), None
        target = await on_thread(partial(self._identity.target, scope, headers, destination, source))
        return target.caller, target

    async def _program(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to a program in the sandbox."""
        target: Target = scope["state"][_TARGET]
        port: int = scope["state"][_PORT]
        place, use = target.obj, partial(self._parts.use, target.obj.namespace, target.obj.name, "proxy", port=port)
        try:
            if port in _NOT_FOR_CALLERS:
                raise Forbidden(f"port {port} is Paddock's own, and not passed on; choose a port of your program")
            await on_thread(workplace, self._parts, place)
            await on_thread(use)
        except ServiceError as error:
            await refuse(error, scope, receive, send)
            return
        await self._ports(port, place, scope, receive, send)

    def _guarded(self, call: Call) -> Handler:
        """Return the handler of a call, whose ServiceErrors are answers in the form that its clients read."""
        handle: Callable[[Call, Request], Awaitable[Response]] = getattr(self, f"_{call.form}")
        to_answer = errors.unary if call.form in ("unary", "stream") else errors.answer

        async def handler(request: Request) -> Response:
            request.scope["route"] = call  # the metrics' label is its path
            try:
                if request.scope["state"].get(_TARGET) is not None:
                    check_user(user_of(request.headers))
                return await handle(call, request)
            except ServiceError as error:
                return to_answer(error)
            except HTTPException as error:  # of the limits on bodies
                return to_answer(_of_status(error.status_code, str(error.detail)))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:
                _log.exception("call failed", call=call.path)
                return JSONResponse({"code": 500, "message": "internal error; the daemon's log has the details"}, 500)

        return handler

    async def _place(self, request: Request) -> Workplace:
        target: Target = request.scope["state"][_TARGET]
        wakes = request.url.path != "/health" and "signature" not in request.query_params
        obj = await self._control.resume(target.obj) if wakes else target.obj
        return await on_thread(workplace, self._parts, obj)

    def _service(self, call: Call) -> ProcessCalls | FilesystemCalls | WatchCalls:
        if call.path.startswith("/process."):
            return self._process
        return self._watch if "atch" in call.name else self._filesystem

    async def _unary(self, call: Call, request: Request) -> Response:
        _check_type(request, _UNARY_TYPE)
        place, message = await self._place(request), await _large(request, parsed, await _body(request))
        return JSONResponse(await getattr(self._service(call), call.name)(place, message))

    async def _stream(self, call: Call, request: Request) -> Response:
        _check_type(request, _STREAM_TYPE)
        place, message = await self._place(request), await _large(request, only_message, await _body(request))
        keepalive = _seconds(request, "keepalive-ping-interval", 1.0) or _KEEPALIVE_SECONDS
        limit = _seconds(request, "connect-timeout-ms", 0.001)
        try:
            frames = await getattr(self._service(call), call.name)(place, message, keepalive, limit)
        except errors.SandboxGone:
            raise
        except ServiceError as error:  # a stream's errors are in its last message
            return Response(errors.last_frame(error), media_type=_STREAM_TYPE)
        return Stream(_with_errors(frames), media_type=_STREAM_TYPE)

    async def _input(self, call: Call, request: Request) -> Response:
        del call
        _check_type(request, _STREAM_TYPE)
        place = await self._place(request)
        try:
            answer = await self._process.stream_input(place, _messages(request))
        except ServiceError as error:
            return Response(errors.last_frame(error), media_type=_STREAM_TYPE)
        return Response(frame(answer) + frame({}, END), media_type=_STREAM_TYPE)

    async def _download(self, call: Call, request: Request) -> Response:
        del call
        return await self._files.read(await self._place(request), request)

    async def _upload(self, call: Call, request: Request) -> Response:
        del call
        return await self._files.write(await self._place(request), request)

    async def _health(self, call: Call, request: Request) -> Response:
        del call
        await self._place(request)
        return Response(status_code=204)

    async def _execute(self, call: Call, request: Request) -> Response:
        del call
        place = await self._place(request)
        return await self._interpreter.execute(place, await _fields(request))

    async def _contexts(self, call: Call, request: Request) -> Response:
        del call
        return JSONResponse(await self._interpreter.list_contexts(await self._place(request)))

    async def _new_context(self, call: Call, request: Request) -> Response:
        del call
        place = await self._place(request)
        return JSONResponse(await self._interpreter.create_context(place, await _fields(request)))

    async def _context(self, call: Call, request: Request) -> Response:
        place = await self._place(request)
        await getattr(self._interpreter, call.name)(place, request.path_params["id"])
        return JSONResponse(None)

    async def _create(self, call: Call, request: Request) -> Response:
        del call
        key = request.headers.get("idempotency-key", "")[:256]
        return JSONResponse(await self._control.create(await _fields(request), key), 201)

    async def _list(self, call: Call, request: Request) -> Response:
        del call
        query = request.query_params
        items, token = await self._control.list({name: query.getlist(name) for name in query})
        return JSONResponse(items, headers={"x-next-token": token} if token else None)

    async def _get(self, call: Call, request: Request) -> Response:
        del call
        return JSONResponse(await self._control.detail(request.path_params["id"]))

    async def _kill(self, call: Call, request: Request) -> Response:
        del call
        await self._control.kill(request.path_params["id"])
        return Response(status_code=204)

    async def _timeout(self, call: Call, request: Request) -> Response:
        shorten = call.name != "refresh"
        await self._control.set_timeout(request.path_params["id"], await _fields(request), shorten=shorten)
        return Response(status_code=204)

    async def _pause(self, call: Call, request: Request) -> Response:
        del call
        body = await _fields(request)
        await self._control.pause(request.path_params["id"], memory=body.flag("memory", True))
        return Response(status_code=204)

    async def _connect(self, call: Call, request: Request) -> Response:
        del call
        sandbox, was_paused = await self._control.connect(request.path_params["id"], await _fields(request))
        return JSONResponse(sandbox, 201 if was_paused else 200)

    async def _network(self, call: Call, request: Request) -> Response:
        del call
        await self._control.update_network(request.path_params["id"], await _fields(request))
        return Response(status_code=204)

    async def _metrics(self, call: Call, request: Request) -> Response:
        del call
        since, until = (_time(request, name, default) for name, default in (("start", 0.0), ("end", math.inf)))
        return JSONResponse(await self._control.metrics(request.path_params["id"], since, until))

    async def _templates(self, call: Call, request: Request) -> Response:
        del request
        return JSONResponse(await on_thread(getattr(self._template_catalog, call.name)))

    async def _template(self, call: Call, request: Request) -> Response:
        return JSONResponse(await on_thread(getattr(self._template_catalog, call.name), request.path_params["id"]))

    async def _delete_template(self, call: Call, request: Request) -> Response:
        del call
        await on_thread(self._snapshot_calls.delete, request.path_params["id"])
        return Response(status_code=204)

    async def _fork(self, call: Call, request: Request) -> Response:
        del call
        return JSONResponse(await self._snapshot_calls.fork(request.path_params["id"], await _fields(request)), 201)

    async def _snapshot(self, call: Call, request: Request) -> Response:
        del call
        return JSONResponse(await self._snapshot_calls.create(request.path_params["id"], await _fields(request)), 201)

    async def _snapshots(self, call: Call, request: Request) -> Response:
        del call
        query = request.query_params
        items, token = await self._snapshot_calls.list(lambda name: query.get(name, ""))
        return JSONResponse(items, headers={"x-next-token": token} if token else None)

    async def _refusal(self, call: Call, request: Request) -> Response:
        del request
        raise errors.NotOffered(call.difference)


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    error: ServiceError = NotFound(f"{scope['method']} {scope['path'][:200]} is not a call of this version of Paddock")
    if any(call.path == scope["path"] for call in CALLS):
        error = MethodNotAllowed(f"{scope['path']}: {scope['method']} is not a method of this call")
    await errors.answer(error)(scope, receive, send)


async def _no_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    await refuse(NotFound("this port has no WebSockets; use one of your program"), scope, receive, send)


async def refuse(error: ServiceError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request or a WebSocket with an error."""
    answer = errors.answer(error)
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(answer)
    else:
        await answer(scope, receive, send)


async def _with_errors(frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the frames; an error becomes the last one."""
    try:
        async for data in frames:
            yield data
    except ServiceError as error:
        yield errors.last_frame(error)


async def _messages(request: Request) -> AsyncIterator[Mapping[str, Any]]:
    reader = FrameReader()
    async for piece in request.stream():
        for message in reader.add(piece):
            yield message
    reader.end()


async def _body(request: Request) -> bytes:
    """Return the whole body. Raises TooLarge."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MESSAGE_BYTES + 5:
            raise TooLarge(f"the request is larger than {MESSAGE_BYTES >> 20} MiB; send it in parts")
    return bytes(data)


async def _fields(request: Request) -> Fields:
    return await _large(request, parsed, await _body(request))


async def _large(request: Request, parse: Callable[[bytes], dict[str, Any]], body: bytes) -> Fields:
    """Parse a body; a large one in the queue of all callers. Raises BadRequest; TooManyRequests."""
    if len(body) <= SMALL_BYTES:
        return Fields(parse(body))
    parsing: Parsing = request.scope["state"][_PARSING]
    return Fields(await parsing.run(len(body), parse, body))


def _of_status(code: int, message: str) -> ServiceError:
    if code == 413:
        return TooLarge(message)
    return TooManyRequests(message, retry_after_seconds=1) if code == 429 else Forbidden(message)


def _check_type(request: Request, required: str) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != required:
        raise BadRequest(f"Content-Type: `{media_type[:60]}` is not served here; send `{required}`")


def _time(request: Request, name: str, default: float) -> float:
    """Return a time of the query, in Unix seconds. Raises BadRequest."""
    text = request.query_params.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest(f"{name}: `{text[:40]}` is not a time in Unix seconds")
    return float(text) if text else default


def _seconds(request: Request, name: str, unit: float) -> float | None:
    """Return a time in a header, in seconds; None: there is none. Raises BadRequest."""
    text = request.headers.get(name, "")
    if not text:
        return None
    try:
        seconds = float(text) * unit
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise BadRequest(f"{name}: `{text[:40]}` is not a time above 0")
    return seconds
