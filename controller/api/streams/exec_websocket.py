"""A command over a WebSocket, in the frames of Kubernetes' v5.channel.k8s.io.

Binary frames; the first byte is the channel: 0 stdin, 1 stdout, 2 stderr, 3 the end as a Status in JSON (with the
cause ExitCode where it was not 0, and TimedOut where it was killed for that), 4 the size of the terminal as JSON
(`{"Width": 80, "Height": 24}`), 5 (our own) a signal for the command's process group (`{"signal": "INT"}`). The client
sends 255 and a channel number to close its stdin. Disconnecting kills the command. A client that does not read
makes it wait, and is disconnected after `exec_pause_seconds`. Frames of a channel without data mean nothing.
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
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect

from controller.api.common.command import of_query
from controller.api.common.exact_query import exact, exact_values
from controller.kinds.runtime.secret import Environment
from controller.ports import ExecStream, StreamError
from controller.service.errors import BadRequest, ServiceUnavailable, of_stream
from controller.service.exec.collected_output import ENDED_EARLY
from controller.service.exec.relay import Relay
from controller.service.listing import serialize

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, SIGNAL, CLOSE = 0, 1, 2, 3, 4, 5, 255
_CHANNELS = {"stdout": STDOUT, "stderr": STDERR}
_AHEAD = 8  # frames of stdin read ahead of a slow command; then the client waits
_SIGNALS = 16  # queued; the oldest are dropped
_CONTROL_THREADS = 4
_POLL_SECONDS = 0.5  # how often the client is probed while the command does not read its stdin
_log = structlog.get_logger("paddock.api")


class StdinFeed:
    """Queue of stdin frames for the thread that writes them to the command."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._closed = False

    async def put(self, data: bytes | None, seconds: float) -> bool:
        """Add a frame; None ends stdin. Return False if the command did not read within `seconds`; try again."""
        if not self._closed:
            try:
                async with asyncio.timeout(seconds):
                    await self._queue.put(data)
            except TimeoutError:
                return False
            self._closed = data is None
        return True

    def abandon(self) -> None:
        """End the queue and release its reader."""
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


EXEC_NAMES = ("command", "env", "secret", "workingDir", "timeoutSeconds", "stdin", "tty", "rows", "columns")


@dataclass(frozen=True, slots=True)
class ExecQuery:
    """Parameters of the WebSocket's query, which are the EXEC_NAMES."""

    command: tuple[str, ...]
    env: Environment
    working_dir: str
    timeout_seconds: float | None
    stdin: bool
    tty: bool = False
    size: tuple[int, int] | None = None

    @classmethod
    def of(cls, connection: HTTPConnection) -> "ExecQuery":
        """Parse a query. Raises BadRequest."""
        query = connection.query_params
        return cls(
            command=tuple(exact_values(connection, "command")),
            env=of_query(exact_values(connection, "env"), query.getlist("secret")),
            working_dir=exact(connection, "workingDir", query.get("workingDir", "")),
            timeout_seconds=_seconds(query.get("timeoutSeconds")),
            stdin=_flag(query, "stdin"),
            tty=_flag(query, "tty"),
            size=_size(query.get("rows", ""), query.get("columns", "")),
        )

    def feed(self) -> StdinFeed | None:
        """Return a queue for stdin if the client will send any."""
        return StdinFeed() if self.stdin else None


def _flag(query: QueryParams, name: str) -> bool:
    return query.get(name, "false").lower() in ("1", "true")


def _size(rows: str, columns: str) -> tuple[int, int] | None:
    """Return the size that a terminal begins with; None for one that can't be, as later sizes are ignored."""
    numbers = [int(text) for text in (rows, columns) if text.isascii() and text.isdigit() and len(text) <= 5]
    return (numbers[0], numbers[1]) if len(numbers) == 2 and all(0 < number < 1 << 16 for number in numbers) else None


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


class ExecControl:
    """Terminal size and signals: queued at once, applied in the background, where the engine may be slow or fail."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._limiter = relay, anyio.CapacityLimiter(_CONTROL_THREADS)
        self._size: tuple[int, int] | None = None
        self._signals: deque[str] = deque(maxlen=_SIGNALS)
        self._changed = asyncio.Event()

    def resize(self, data: bytes) -> None:
        """`{"Width": 80, "Height": 24}`; the newest wins. Invalid data is ignored."""
        size_message = _object(data)
        rows, columns = size_message.get("Height"), size_message.get("Width")
        if isinstance(rows, int) and isinstance(columns, int) and 0 < rows < 1 << 16 and 0 < columns < 1 << 16:
            self._size = (rows, columns)
            self._changed.set()

    def signal(self, data: bytes) -> None:
        """`{"signal": "INT"}`. Invalid data is ignored."""
        name = _object(data).get("signal")
        if isinstance(name, str):
            self._signals.append(name)
            self._changed.set()

    async def run(self) -> None:
        """Apply frames until cancelled."""
        stream = await self._relay.until_open()
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
        document = json.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


async def serve(websocket: WebSocket, relay: Relay, feed: StdinFeed | None) -> None:
    """Relay one command's streams until it ends or the client disconnects."""
    offered = websocket.scope.get("subprotocols", [])
    tasks: tuple[asyncio.Task[Any], ...] = ()
    try:
        await websocket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        control = ExecControl(relay)
        reader = asyncio.create_task(_read(websocket, relay, feed, control))
        writer = asyncio.create_task(_write(websocket, relay))
        tasks = (reader, writer, asyncio.create_task(control.run()))
        await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
        if writer.done():
            await websocket.send_bytes(bytes((STATUS,)) + writer.result())
            await websocket.close()
    except (
        WebSocketDisconnect,
        RuntimeError,
        OSError,
    ):  # the client disconnected
        _log.debug("exec client disconnected")
    finally:
        relay.stop()
        if feed is not None:
            feed.abandon()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _write(websocket: WebSocket, relay: Relay) -> bytes:
    """Send all output; return the final Status."""
    code, timed_out = None, False
    try:
        if await relay.until_open() is not None:
            await websocket.send_bytes(bytes((STDOUT,)))  # it has started, perhaps after resuming a suspended sandbox
        async for chunk in relay:
            if chunk.stream == "exit":
                code = int(chunk.data)
            elif chunk.stream == "timeout":
                timed_out = True
            elif chunk.stream in _CHANNELS:
                await websocket.send_bytes(bytes((_CHANNELS[chunk.stream],)) + chunk.data)
    except StreamError as error:
        return _json(serialize.failure(of_stream(error)))
    if code is None:
        return _json(serialize.failure(ServiceUnavailable(ENDED_EARLY)))
    return _json(_end_status(code, timed_out=timed_out))


def _end_status(code: int, *, timed_out: bool) -> serialize.Json:
    if code == 0:
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with exit code {code}"
    if timed_out:
        message = "the command was killed: its time limit was reached"
        causes.append({"reason": "TimedOut", "message": message})
    return serialize.status("NonZeroExitCode", 500, message, details={"causes": causes})


def _json(value: serialize.Json) -> bytes:
    return json.dumps(value).encode()


async def _read(websocket: WebSocket, relay: Relay, feed: StdinFeed | None, control: ExecControl) -> None:
    """Receive the client's frames until it disconnects, which ends everything."""
    try:
        while True:
            frame = await websocket.receive_bytes()
            channel = frame[0] if frame else None
            if channel == RESIZE:
                control.resize(frame[1:])
            elif channel == SIGNAL:
                control.signal(frame[1:])
            elif feed is not None and channel in (STDIN, CLOSE):
                # While nothing is read from a client, only a write shows that it disconnected.
                while not await feed.put(None if channel == CLOSE else frame[1:], _POLL_SECONDS):
                    await websocket.send_bytes(bytes((STDOUT,)))
    except (WebSocketDisconnect, RuntimeError, KeyError):  # disconnected, or sent text, which has no channel
        relay.stop()
