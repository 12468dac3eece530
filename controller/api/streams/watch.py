"""Responses of watches: JSON lines until the client disconnects, the timeout, or the watch's end.

Calls that block on the store have a few threads of their own, so that watches take none from other requests. Waiting
for changes takes no thread.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Annotated, Any

import anyio
from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from controller.kinds.registry import Kind
from controller.service.errors import ServiceError
from controller.service.listing import serialize
from controller.service.listing.table import table
from controller.service.turns import turns
from controller.service.watch.hub import Watches
from controller.service.watch.watcher import Watch, WatchEvent
from controller.version import API_VERSION

MEDIA_TYPE = "application/json;stream=watch"
LONGEST_SECONDS = 3600  # then the client resumes; so no dead watch is kept for ever
_CUT_SECONDS = 1.0  # how long a cut client may take to read the error
_THREADS = 4
_OPEN = b'{"type":"%s","object":'

Encode = Callable[[WatchEvent], bytes]


class WatchStreams:
    """Factory of the responses of all watches of one application."""

    def __init__(self, watches: Watches, *, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._watches, self._longest_seconds = watches, longest_seconds
        self._limiter: anyio.CapacityLimiter | None = None

    async def answer(self, open_: Callable[..., Watch], encode: Encode, seconds: float | None) -> "WatchResponse":
        """Return the response for the watch that `open_(wake=...)` opens. Raises its errors."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_THREADS)
        signal = _Signal()
        watch = await anyio.to_thread.run_sync(partial(open_, wake=signal.wake), limiter=self._limiter)
        signal.watch = watch
        lasts = min(self._longest_seconds, seconds or self._longest_seconds)
        earlier = partial(anyio.to_thread.run_sync, self._watches.earlier, watch, limiter=self._limiter)
        lines = _Lines(
            watch,
            signal,
            encode=encode,
            earlier=earlier,
            bookmark=partial(self._watches.bookmark, watch),
            seconds=lasts,
        )
        return WatchResponse(lines.read(), signal, watch)


async def _watch_streams(connection: HTTPConnection) -> WatchStreams:
    streams: WatchStreams = connection.app.state.watch_streams
    return streams


RequestWatches = Annotated[WatchStreams, Depends(_watch_streams)]  # a coroutine: others run on a thread


class _Signal:
    """Bridge from the hub's `wake` to the event loop. `cut` is set once the watch has ended with an error."""

    def __init__(self) -> None:
        self._turns, self._is_due = turns(), False
        self.ready, self.cut = asyncio.Event(), asyncio.Event()
        self.watch: Watch | None = None

    def wake(self) -> None:
        """Wake the response. May be called from any thread."""
        if not self._is_due:
            self._is_due = True
            self._turns.add(self._set)

    def _set(self) -> None:
        self._is_due = False  # before the events are taken: what comes from now on wakes it again
        self.ready.set()
        if self.watch is not None and self.watch.end_state:
            self.cut.set()


class _Lines:
    """The lines of one watch, batched as available."""

    def __init__(
        self,
        watch: Watch,
        signal: _Signal,
        encode: Encode,
        earlier: Callable[[], Any],
        bookmark: Callable[[], None],
        seconds: float,
    ) -> None:
        self._watch, self._signal, self._encode = watch, signal, encode
        self._earlier = earlier
        self._bookmark = bookmark
        self._deadline = time.monotonic() + seconds

    async def read(self) -> AsyncIterator[bytes]:
        try:
            async for lines in self._lines():
                yield lines
        except ServiceError as error:
            yield _error(error)

    def _encode_all(self, events: Sequence[WatchEvent] | None) -> bytes | None:
        """Return the lines of events: a client that reads nothing holds these, and no object."""
        return None if events is None else b"".join(map(self._encode, events))

    async def _lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of all events in order. Raises the ServiceError that ends the watch."""
        while not self._watch.end_state and (lines := self._encode_all(await self._earlier())) is not None:
            if lines:
                yield lines
        while True:
            self._signal.ready.clear()
            over = time.monotonic() >= self._deadline
            if over:
                self._bookmark()
            watch_end = self._watch.end_state  # read first: buffered events are sent before the end
            while lines := self._encode_all(self._watch.take()):
                yield lines
            if isinstance(watch_end, ServiceError):
                raise watch_end
            if watch_end or over:
                return
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`: in Python 3.11 it loses a cancellation that meets the result.
                async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                    await self._signal.ready.wait()


class WatchResponse(StreamingResponse):
    """A response that ends on disconnect, and shortly after the watch was cut, even if the client reads nothing."""

    def __init__(self, lines: AsyncIterator[bytes], signal: _Signal, watch: Watch) -> None:
        super().__init__(lines, media_type=MEDIA_TYPE)
        self._signal, self._watch = signal, watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_disconnect, receive, tasks.cancel_scope)
                tasks.start_soon(self._until_cut, tasks.cancel_scope)
                await self.stream_response(send)
                tasks.cancel_scope.cancel()
        finally:
            self._watch.close()

    async def _until_disconnect(self, receive: Receive, scope: anyio.CancelScope) -> None:
        await self.listen_for_disconnect(receive)
        scope.cancel()

    async def _until_cut(self, scope: anyio.CancelScope) -> None:
        await self._signal.cut.wait()
        await anyio.sleep(_CUT_SECONDS)
        scope.cancel()


def as_objects(kind: Kind) -> Encode:
    """Encode events with whole objects."""

    def encode(event: WatchEvent) -> bytes:
        if event.serialized is None:
            bookmark = {
                "apiVersion": API_VERSION,
                "kind": kind.name,
                "metadata": {"resourceVersion": str(event.revision)},
            }
            return _line(event.type, bookmark)
        return _OPEN % event.type.encode() + event.serialized.json + b"}\n"

    return encode


def as_tables(kind: Kind, now: Callable[[], float], version: str) -> Encode:
    """Encode events with a Table of one row and that version, none for a bookmark."""

    def encode(event: WatchEvent) -> bytes:
        if event.serialized is None:
            return _line(event.type, table(kind, [], now(), event.revision, version))
        return _OPEN % event.type.encode() + event.serialized.table(kind, event.revision, now(), version) + b"}\n"

    return encode


def _error(error: ServiceError) -> bytes:
    return _line("ERROR", serialize.failure(error))


def _line(type_: str, obj: Any) -> bytes:
    return json.dumps({"type": type_, "object": obj}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
