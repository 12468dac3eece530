"""A command over a WebSocket, in the frames of Kubernetes' v5.channel.k8s.io.

Binary frames; the first byte is the channel: 0 stdin, 1 stdout, 2 stderr, 3 the end as a Status in JSON (with the
cause ExitCode where it was not 0, and TimedOut where it was killed for that), 4 the size of the terminal as JSON
(`{"Width": 80, "Height": 24}`), 5 (our own) a signal for the command's process group (`{"signal": "INT"}`). The client
sends 255 and a channel number to close its stdin. A client that goes away, or does not read, ends the command. Frames
that bear a channel and nothing else mean nothing.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import structlog
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket, WebSocketDisconnect

from controller.api.common.command import of_query
from controller.api.streams.relay import Pump
from controller.kinds.runtime.secret import Environment
from controller.ports import ExecStream, StreamError
from controller.service.errors import BadRequest, ServiceUnavailable
from controller.service.objects import serialize
from controller.service.sandbox.collected_output import ENDED_EARLY

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, SIGNAL, CLOSE = 0, 1, 2, 3, 4, 5, 255
_CHANNELS = {"stdout": STDOUT, "stderr": STDERR}
_AHEAD = 8  # frames of stdin read ahead of a slow command; then the client waits
_SIGNALS = 16  # more than that at a time are dropped
_CONTROL_THREADS = 4
_LOOK_SECONDS = 0.5  # how often a client is looked for whose input the command does not take
_log = structlog.get_logger("paddock.api")


class StdinFeed:
    """Frames of stdin on their way to the thread that writes them to the command."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._closed = False

    async def put(self, data: bytes | None, seconds: float) -> bool:
        """Add a frame, or None: the client has sent all. False: the command has not read for so long; try again."""
        if not self._closed:
            try:
                await asyncio.wait_for(self._queue.put(data), seconds)
            except TimeoutError:
                return False
            self._closed = data is None
        return True

    def abandon(self) -> None:
        """The stream is over: whoever waits for more is let go."""
        self._closed = True
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                data = asyncio.run_coroutine_threadsafe(self._queue.get(), self._loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the loop has ended
                return
            if data is None:
                return
            yield data


@dataclass(frozen=True, slots=True)
class ExecQuery:
    """What is asked for in the query."""

    command: tuple[str, ...]
    env: Environment
    working_dir: str
    timeout_seconds: float | None
    stdin: bool
    tty: bool = False

    @classmethod
    def of(cls, query: QueryParams) -> "ExecQuery":
        """Read a query; BadRequest says what is wrong with it."""
        return cls(
            command=tuple(query.getlist("command")),
            env=of_query(query.getlist("env"), query.getlist("secret")),
            working_dir=query.get("workingDir", ""),
            timeout_seconds=_seconds(query.get("timeoutSeconds")),
            stdin=_flag(query, "stdin"),
            tty=_flag(query, "tty"),
        )

    def feed(self) -> StdinFeed | None:
        """The way for stdin, if the client will send any."""
        return StdinFeed() if self.stdin else None


def _flag(query: QueryParams, name: str) -> bool:
    return query.get(name, "false").lower() in ("1", "true")


def _seconds(text: str | None) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e7:
        raise BadRequest(f"timeoutSeconds must be a number of seconds, or 0 for no limit, not `{text}`")
    return seconds


class Steering:
    """Takes frames at once, and passes them on in the background: the engine may take its time, and fail."""

    def __init__(self, pump: Pump) -> None:
        self._pump, self._limiter = pump, anyio.CapacityLimiter(_CONTROL_THREADS)
        self._size: tuple[int, int] | None = None
        self._signals: deque[str] = deque(maxlen=_SIGNALS)
        self._changed = asyncio.Event()

    def resize(self, data: bytes) -> None:
        """`{"Width": 80, "Height": 24}`; only the newest counts. Anything else is passed over."""
        found = _object(data)
        rows, columns = found.get("Height"), found.get("Width")
        if isinstance(rows, int) and isinstance(columns, int) and 0 < rows < 1 << 16 and 0 < columns < 1 << 16:
            self._size = (rows, columns)
            self._changed.set()

    def signal(self, data: bytes) -> None:
        """`{"signal": "INT"}`. Anything else is passed over."""
        name = _object(data).get("signal")
        if isinstance(name, str):
            self._signals.append(name)
            self._changed.set()

    async def run(self) -> None:
        """Pass on what comes, until cancelled."""
        stream = await self._pump.opened()
        while isinstance(stream, ExecStream):
            await self._changed.wait()
            self._changed.clear()
            size, self._size = self._size, None
            with contextlib.suppress(StreamError):
                if size is not None:
                    await self._on_a_thread(partial(stream.resize, *size))
                while self._signals:
                    await self._on_a_thread(partial(stream.signal, self._signals.popleft()))

    async def _on_a_thread(self, do: Any) -> None:
        await anyio.to_thread.run_sync(do, limiter=self._limiter, abandon_on_cancel=True)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def serve(websocket: WebSocket, pump: Pump, feed: StdinFeed | None) -> None:
    """Carry one command's streams until it ends or the client goes."""
    offered = websocket.scope.get("subprotocols", [])
    tasks: tuple[asyncio.Task[Any], ...] = ()
    try:
        await websocket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        steering = Steering(pump)
        reader = asyncio.create_task(_read(websocket, pump, feed, steering))
        writer = asyncio.create_task(_write(websocket, pump))
        tasks = (reader, writer, asyncio.create_task(steering.run()))
        await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        if writer.done():
            await websocket.send_bytes(bytes((STATUS,)) + writer.result())
            await websocket.close()
    except (WebSocketDisconnect, RuntimeError, OSError):  # the client left; one of these, by the moment it did
        _log.debug("the client of an exec has left")
    finally:
        pump.stop()
        if feed is not None:
            feed.abandon()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _write(websocket: WebSocket, pump: Pump) -> bytes:
    """Send all output; gives the Status to end with."""
    code, timed_out = None, False
    try:
        if await pump.opened() is not None:
            await websocket.send_bytes(bytes((STDOUT,)))  # it has begun: a box that slept may have been woken for it
        async for chunk in pump:
            if chunk.stream == "exit":
                code = int(chunk.data)
            elif chunk.stream == "timeout":
                timed_out = True
            elif chunk.stream in _CHANNELS:
                await websocket.send_bytes(bytes((_CHANNELS[chunk.stream],)) + chunk.data)
    except StreamError as error:
        return _json(serialize.failure(ServiceUnavailable(str(error))))
    if code is None:
        return _json(serialize.failure(ServiceUnavailable(ENDED_EARLY)))
    return _json(_ended(code, timed_out=timed_out))


def _ended(code: int, *, timed_out: bool) -> serialize.Json:
    if code == 0:
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with exit code {code}"
    if timed_out:
        message = "the command was killed: its time was over"
        causes.append({"reason": "TimedOut", "message": message})
    return serialize.status("NonZeroExitCode", 500, message, details={"causes": causes})


def _json(value: serialize.Json) -> bytes:
    return json.dumps(value).encode()


async def _read(websocket: WebSocket, pump: Pump, feed: StdinFeed | None, steering: Steering) -> None:
    """Take what the client sends, until it goes: then everything ends."""
    try:
        while True:
            frame = await websocket.receive_bytes()
            channel = frame[0] if frame else None
            if channel == RESIZE:
                steering.resize(frame[1:])
            elif channel == SIGNAL:
                steering.signal(frame[1:])
            elif feed is not None and channel in (STDIN, CLOSE):
                # While nothing is read from a client, only writing to it shows that it is gone.
                while not await feed.put(None if channel == CLOSE else frame[1:], _LOOK_SECONDS):
                    await websocket.send_bytes(bytes((STDOUT,)))
    except (WebSocketDisconnect, RuntimeError, KeyError):  # gone, or it sent text, which has no channel
        pump.stop()
