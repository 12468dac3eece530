"""Whole trees into a box and out of it for clients on this host: their bytes stay within the kernel (see tunnel.py).

Behind the handshake each piece goes behind its length, four bytes (big-endian). Into a box the client sends pieces of a
tar stream and the length 0, and gets one piece: the result in JSON, or a Status that says why there is none. Out of a
box it gets pieces of a tar stream, and the length 0 once all of it has come; what ends before that broke off.
"""

import asyncio
import contextlib
import errno
import json
import os
import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import structlog
from fastapi import WebSocket

from controller.api.streams.local_caller import gone, take_over
from controller.api.streams.stalled_clients import Link
from controller.api.streams.transfer import Threads, silent
from controller.api.streams.tunnel import FromClient, ToClient
from controller.service.errors import ServiceError
from controller.service.objects import serialize
from controller.service.sandbox.files import BoxFiles, Work

PROTOCOL = "raw.files.paddock"
_LENGTH = struct.Struct(">I")
_SENDING_BYTES = 1 << 20  # under way to the client; the system gives less if it is set to
_log = structlog.get_logger("paddock.api")


class _In(FromClient):
    """From the client to the work, lengths and all. `announced` bytes of data are on their way, or have come."""

    announced = most = 0

    def _begin(self) -> None:
        self.announced += self._left
        if self.announced > self.most:
            raise OSError(errno.EFBIG, "that is more than a transfer may have")
        self.held += os.write(self._in, _LENGTH.pack(self._left))


class _Out(ToClient):
    """From the work to the client. That it was all, others tell."""

    _tells_end = False


class Haul:
    """One way between a client's socket and a work. Close it. It is a Carrier: see stalls.py."""

    def __init__(self, link: Link, work: Work, *, into: bool) -> None:
        """Raises OSError where there are no more handles, ServiceError."""
        self.over: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        self._into = into
        with contextlib.ExitStack() as held:
            # A handle of our own: the event loop does not let anybody watch one that is a transport's.
            mine = held.enter_context(socket.socket(fileno=os.dup(link.get_extra_info("socket").fileno())))
            taking, giving = work.ends()
            box = held.enter_context(os.fdopen(taking, "wb", 0)), held.enter_context(os.fdopen(giving, "rb", 0))
            for each in box:
                os.set_blocking(each.fileno(), False)
            self.way: _In | _Out = _In(mine, box[0], self._is_over) if into else _Out(box[1], mine, self._is_over)
            held.callback(self.way.close)
            if not into:
                mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENDING_BYTES)
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._held.close()
        self.over.cancel()

    @property
    def came(self) -> int:
        """Bytes that came for the client."""
        return 0 if self._into else self.way.came

    @property
    def waiting(self) -> int:
        """Of these, the ones that its socket has not taken yet."""
        return self.way.waiting if isinstance(self.way, _Out) else 0

    def _is_over(self, error: OSError | None) -> None:
        if not self.over.done():
            self.over.set_result(error)


async def bring_in(websocket: WebSocket, link: Link, work: Work, threads: Threads, files: BoxFiles) -> None:
    """The client's tar stream into the work, and its result to the client. Before it begins: ServiceError, OSError."""
    with Haul(link, work, into=True) as haul:
        assert isinstance(haul.way, _In)
        haul.way.most = files.limits.max_bytes
        if not await take_over(websocket, link, PROTOCOL, haul):
            return
        leaving = asyncio.create_task(gone(websocket))
        result = asyncio.create_task(threads.run(work.result))
        try:
            haul.way.go_on()
            if (told := await _outcome(haul, haul.way, result, leaving, files)) is not None:
                await _end(link, leaving, json.dumps(told).encode())
        finally:
            await _over(link, leaving, result)


async def bring_out(
    websocket: WebSocket, link: Link, work: Work, threads: Threads, headers: Iterable[tuple[bytes, bytes]]
) -> None:
    """The work's tar stream to the client. Before it has begun: ServiceError, OSError."""
    with Haul(link, work, into=False) as haul:
        if not await take_over(websocket, link, PROTOCOL, haul, headers):
            return
        leaving = asyncio.create_task(gone(websocket))
        try:
            haul.way.go_on()
            either: set[asyncio.Future[Any]] = {haul.over, leaving}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done() and haul.over.result() is None:
                await threads.run(work.result)
                await _end(link, leaving, b"")
        except ServiceError as error:
            # That it is never finished is how the client learns of it.
            _log.info("a transfer broke off", error=str(error))
        finally:
            await _over(link, leaving)


async def _outcome(
    haul: Haul, way: _In, result: "asyncio.Task[dict[str, Any]]", leaving: "asyncio.Task[None]", files: BoxFiles
) -> serialize.Json | None:
    """What the client is told in the end; None: it has gone, or must not be told."""
    each: set[asyncio.Future[Any]] = {result, leaving, haul.over}
    try:
        while not any(it.done() for it in each):
            before = way.came
            await asyncio.wait(each, timeout=files.limits.stall_seconds, return_when=asyncio.FIRST_COMPLETED)
            if way.came == before and not way.ended and not way.held and not any(it.done() for it in each):
                raise silent(files)
        error = haul.over.result() if haul.over.done() else None
        if error is not None and error.errno == errno.EFBIG:
            files.refuse_larger(way.announced)
        if leaving.done() or not (error is None or isinstance(error, BrokenPipeError)):
            return None
        return await result  # where its pipe is broken, it has ended and says why
    except ServiceError as error:
        return serialize.failure(error)


async def _end(link: Link, leaving: "asyncio.Task[None]", words: bytes) -> None:
    """Tell the client a last piece, and wait until it has taken it: one that does not is cut off, see stalls.py."""
    link.tunnel = None
    link.write(_LENGTH.pack(len(words)) + words)
    link.close()
    await leaving


async def _over(link: Link, *tasks: "asyncio.Task[Any]") -> None:
    link.abort()
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
