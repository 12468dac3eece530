"""Parsing of large bodies: a few at a time, one of each caller, on threads of their own."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined] # json's own, in Python
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from controller.service.access import access

SMALL_BYTES = 32 << 10
AT_ONCE = 2
MOST_WAITING = 8  # of one caller
MAX_VALUES = 50_000  # of a JSON body; the documents in the body of apply are text here, with a bound of their own
_TOO_MANY = f"the body has more than {MAX_VALUES:,} JSON values; send it in parts"
_Result = TypeVar("_Result")


class Parsing:
    """Queue of large bodies of all listeners, in order for each caller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._running: set[str] = set()

    async def run(self, size_bytes: int, do: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        """Parse a body of that size and return the result. Raises HTTPException (429) when the caller has too many."""
        return await self._run(size_bytes, partial(do, *arguments, **options), started=False)

    async def resume(self, size_bytes: int, do: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        """Process a body whose JSON was parsed by `run`: it is next in its caller's queue, and never refused."""
        return await self._run(size_bytes, partial(do, *arguments, **options), started=True)

    async def _run(self, size_bytes: int, call: Callable[[], _Result], *, started: bool) -> _Result:
        if size_bytes <= SMALL_BYTES:
            return await run_in_threadpool(call)
        found: Future[_Result] = Future()
        asking = access.caller()
        job = partial(_carry_out, found, partial(copy_context().run, call))
        self._enter(asking.name if asking else "", job, started=started)
        return await asyncio.wrap_future(found)

    def _enter(self, name: str, job: Callable[[], None], *, started: bool) -> None:
        with self._lock:
            queue = self._waiting.setdefault(name, deque())
            if started:
                queue.appendleft(job)
            elif len(queue) >= MOST_WAITING:
                message = f"{name} has {MOST_WAITING} large requests waiting, the limit of one caller"
                raise HTTPException(429, f"{message}; nothing was done, try again in a second", {"Retry-After": "1"})
            else:
                queue.append(job)
        self._start()

    def _start(self) -> None:
        """Start jobs up to the limit."""
        with self._lock:
            free = [name for name in self._waiting if name not in self._running][: AT_ONCE - len(self._running)]
            for name in free:
                queue = self._waiting.pop(name)
                job = queue.popleft()
                if queue:
                    self._waiting[name] = queue  # behind the others
                self._running.add(name)
                threading.Thread(target=self._work, args=(name, job), name="parse", daemon=True).start()

    def _work(self, name: str, job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            with self._lock:
                self._running.discard(name)
            self._start()


def _carry_out(found: "Future[_Result]", call: Callable[[], _Result]) -> None:
    if not found.set_running_or_notify_cancel():
        return
    try:
        found.set_result(call())
    except BaseException as error:  # its waiter raises it
        found.set_exception(error)


class BoundedRoute(APIRoute):
    """A route whose JSON body is parsed in Parsing if large, with a limit on its values."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """As the base class."""
        answer = self.bounded_handler()

        async def bounded(request: Request) -> Response:
            return await answer(BoundedRequest(request.scope, request.receive))

        return bounded

    def bounded_handler(self) -> Callable[["BoundedRequest"], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler."""
        return super().get_route_handler()


class BoundedRequest(Request):
    """A request with that limit."""

    async def json(self) -> Any:
        """As the base class. Raises HTTPException over a limit."""
        if not hasattr(self, "_json"):
            data = await self.body()
            parsing: Parsing = self.app.state.parsing
            large = len(data) > SMALL_BYTES
            self._json = await parsing.run(len(data), loads, data) if large else loads(data)
        return self._json


def loads(data: bytes, *, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON with a limit on its values. Raises json.JSONDecodeError; HTTPException over the limit, or too deep."""
    counting = None if len(data) <= SMALL_BYTES else _Counting  # not more values than bytes
    try:
        return json.loads(data, cls=counting, parse_constant=parse_constant)
    except RecursionError as error:
        raise HTTPException(400, "the body is nested too deeply; send flatter JSON") from error


class _Counting(json.JSONDecoder):
    """json's decoder in Python: it counts values, and lets other threads run meanwhile."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._left = MAX_VALUES
        self.parse_object, self.parse_array = self._object, self._array
        self.scan_once = py_make_scanner(self)

    def _object(self, at: Any, strict: bool, scan_once: Callable[..., Any], *more: Any) -> Any:
        return JSONObject(at, strict, self._counted(scan_once), *more)

    def _array(self, at: Any, scan_once: Callable[..., Any]) -> Any:
        return JSONArray(at, self._counted(scan_once))

    def _counted(self, scan_once: Callable[..., Any]) -> Callable[[str, int], Any]:
        def counted(text: str, at: int) -> Any:
            self._left -= 1
            if self._left < 0:
                raise HTTPException(400, _TOO_MANY)
            return scan_once(text, at)

        return counted
