"""Parsing of large texts of callers: a few at a time, one of each caller, on threads of their own.

Every way in passes this queue: REST, MCP tools, diffs and dry runs. `check_turn` proves it: the use-cases that read
documents refuse a large text of a caller that came by another way.
"""

import asyncio
import json
import re
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import anyio

from controller.service.access import access
from controller.service.errors import BadRequest, TooManyRequests

SMALL_BYTES = 32 << 10
AT_ONCE = 2
MOST_WAITING = 8  # of one caller
MAX_VALUES = 50_000  # of a JSON text; documents in it are texts of their own there, with a bound of their own
_LARGE_BYTES = 4 * SMALL_BYTES  # a text may be longer than the body that it was sent in, but not that much
_TOO_MANY = f"the body has more than {MAX_VALUES:,} JSON values; send it in parts"
# Parts of a JSON text: a string, the beginning of an array or object (or all of an empty one), a comma, and what is
# between them. A part before a member has a group. No part of the text is read twice: a string without an end goes to
# the end of the text.
_PART = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{][ \t\n\r]*+(?:[\]}]|())|(,)|[^",\[{]++', re.DOTALL)
_PARTS_OF_A_VALUE = 6  # at most: key, value, what is before it, and what is between each two of them
_HAS_TURN = ContextVar("paddock_parsing", default=False)
_Result = TypeVar("_Result")


class Parsing:
    """Queue of large texts of all listeners, in order for each caller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._running: set[str] = set()

    async def run(self, size_bytes: int, do: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        """Parse a text of that size and return the result. Raises TooManyRequests when the caller has too many."""
        return await self._run(size_bytes, partial(do, *arguments, **options), started=False)

    async def resume(self, size_bytes: int, do: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        """Process a text whose JSON was parsed by `run`: it is next in its caller's queue, and never refused."""
        return await self._run(size_bytes, partial(do, *arguments, **options), started=True)

    async def _run(self, size_bytes: int, call: Callable[[], _Result], *, started: bool) -> _Result:
        if size_bytes <= SMALL_BYTES:
            return await anyio.to_thread.run_sync(call)
        result: Future[_Result] = Future()
        caller, context = access.caller(), copy_context()
        context.run(_HAS_TURN.set, True)
        job = partial(_carry_out, result, partial(context.run, call))
        self._enter(caller.name if caller else "", job, started=started)
        return await asyncio.wrap_future(result)

    def _enter(self, name: str, job: Callable[[], None], *, started: bool) -> None:
        with self._lock:
            queue = self._waiting.setdefault(name, deque())
            if started:
                queue.appendleft(job)
            elif len(queue) >= MOST_WAITING:
                message = f"{name} has {MOST_WAITING} large requests waiting, the limit of one caller"
                raise TooManyRequests(f"{message}; nothing was done, try again in a second", retry_after_seconds=1)
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


def _carry_out(result: "Future[_Result]", call: Callable[[], _Result]) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(call())
    except BaseException as error:  # its waiter raises it
        result.set_exception(error)


def check_turn(*texts: str) -> None:
    """Refuse to parse large texts of a caller outside of the queue: that is a bug of a way in. Raises RuntimeError."""
    if access.caller() is not None and not _HAS_TURN.get() and sum(map(len, texts)) > _LARGE_BYTES:
        raise RuntimeError("a large text of a caller is parsed outside of Parsing")


def loads(data: bytes | str, *, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON with a limit on its values. Raises json.JSONDecodeError; BadRequest over the limit, or too deep."""
    if len(data) > SMALL_BYTES:  # not more values than bytes
        data = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
        _check_count(data)
    try:
        return json.loads(data, parse_constant=parse_constant)
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply; send flatter JSON") from error


def _check_count(text: str) -> None:
    """Refuse a text with too many values before memory is taken for them. Raises BadRequest.

    One step a part, each about as quick as json's own reading of it, so that other threads run meanwhile. A text of
    more parts than its values can have is no JSON.
    """
    parts = islice(_PART.finditer(text), _PARTS_OF_A_VALUE * (MAX_VALUES + 2))
    members = (part for part in parts if part.lastindex)
    if next(islice(members, MAX_VALUES, None), None) is not None:
        raise BadRequest(_TOO_MANY)
