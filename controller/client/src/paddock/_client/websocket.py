"""WebSocket client for exec streams."""

import asyncio
import json
import os
import socket
import threading
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConcurrencyError,
    ConnectionClosed,
    ConnectionClosedError,
    InvalidHandshake,
    InvalidStatus,
)
from websockets.typing import Subprotocol

from paddock._client.connection import full_path
from paddock._client.credentials import authorization, trusted
from paddock._client.errors import ClientError, refusal
from paddock._client.handshake import HANDSHAKE_SECONDS
from paddock._client.request_log import logged
from paddock._client.server import Server, dial, unreachable

_CLOSE_SECONDS = 2.0
# Read-ahead for a slow reader. It is small: the daemon disconnects stalled clients.
_READ_BYTES = 1 << 16
_AHEAD = (2, 1)  # frames: high and low watermark of the receive queue
_T = TypeVar("_T")


class WebSocket:
    """Connection on which one thread may send while another receives.

    The library's threaded client is not used: it sends under the lock that receiving needs, which deadlocks once both
    sides have filled their buffers (`cat` of a large file).
    """

    def __init__(self, opening: Coroutine[Any, Any, ClientConnection]) -> None:
        """Raises what `opening` raises."""
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="websocket", daemon=True)
        self._thread.start()
        self._closing, self._calling = threading.Lock(), threading.Lock()
        self._closed = False
        self._unread: deque[bytes | str] = deque()  # frames that had arrived when it was closed
        try:
            self._connection = self._do(opening)
        except BaseException:
            self._end()
            raise

    def send(self, data: bytes) -> bool:
        """Send one frame; block while the other side does not read. False: the connection is closed."""
        try:
            self._do(self._connection.send(data))
        except ConnectionClosed:
            return False
        return True

    def receive(self) -> bytes | str:
        """Receive the next frame. Raises ClientError after the last one that arrived."""
        try:
            return self._do(self._connection.recv())
        except ConnectionClosed as error:
            if self._unread:
                return self._unread.popleft()
            raise broken(error) from error

    def close(self) -> None:
        """Close it from any thread; blocked senders and receivers wake up. A child after a fork leaves it open."""
        if self._pid != os.getpid():
            return
        with self._closing:
            if not self._closed:
                self._do(self._connection.close())
                self._do(_drain(self._connection, self._unread))
                self._end()

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._pid != os.getpid():
            work.close()
            raise ClientError("the stream belongs to the process that opened it; open another one after a fork")
        with self._calling:
            if self._closed:
                work.close()
                raise ConnectionClosedError(None, None)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ConnectionClosedError(None, None) from None
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        with self._calling:
            self._closed = True
            future = asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop)
        future.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def broken(error: ConnectionClosed) -> ClientError:
    """Return the error of a command whose connection ended before its exit code came."""
    return ClientError(f"the connection broke: {error}; the command may still run")


async def _drain(connection: ClientConnection, unread: deque[bytes | str]) -> None:
    """Move the frames of a closed connection; a receiver that waits gets them itself."""
    with suppress(ConnectionClosed, ConcurrencyError):
        while True:
            unread.append(await connection.recv())


async def _cancel_all() -> None:
    """Cancel all other tasks of this loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def open_websocket(
    server: Server, path: str, query: Sequence[tuple[str, str]] | Mapping[str, str], *, protocol: str
) -> WebSocket:
    """Open a WebSocket at `path` (relative to the API version). Raises Unreachable and Refused."""
    url, sock, options = _websocket_options(server, path, query, protocol)
    with _translated(server, path):
        return WebSocket(_opened(url, sock=sock, proxy=None, **options))


async def connect_websocket(
    server: Server, path: str, query: Sequence[tuple[str, str]] | Mapping[str, str], *, protocol: str
) -> ClientConnection:
    """Open a WebSocket in the running event loop. Raises Unreachable and Refused."""
    url, sock, options = _websocket_options(server, path, query, protocol)
    with _translated(server, path):
        return await _opened(url, sock=sock, proxy=None, **options)


@contextmanager
def _translated(server: Server, path: str) -> Iterator[None]:
    with logged("WebSocket", full_path(path)) as log_entry:  # without its query, which has values of variables
        try:
            yield
            log_entry.status = 101
        except InvalidStatus as error:
            log_entry.status = error.response.status_code
            raise refusal(json_or_none(error.response.body), log_entry.status) from error
        except (OSError, InvalidHandshake) as error:
            raise unreachable(server, str(error)) from error


def _websocket_options(
    server: Server, path: str, query: Sequence[tuple[str, str]] | Mapping[str, str], protocol: str
) -> tuple[str, socket.socket | None, dict[str, Any]]:
    """Return address, socket and options of a WebSocket."""
    url = f"{server.url.replace('http', 'ws', 1)}{full_path(path)}?{urlencode(query, errors='surrogateescape')}"
    sock = dial(server) if server.socket else None
    options: dict[str, Any] = {"subprotocols": [Subprotocol(protocol)], "max_size": None, "compression": None}
    options["additional_headers"] = authorization(server)
    options["max_queue"] = _AHEAD
    if url.startswith("wss"):
        options["ssl"] = trusted(server)
    # No pings: a side blocked by its slow reader does not answer them.
    options |= {"ping_interval": None, "open_timeout": HANDSHAKE_SECONDS, "close_timeout": _CLOSE_SECONDS}
    return url, sock, options


async def _opened(url: str, **options: Any) -> ClientConnection:
    connection = await connect(url, **options)
    connection.transport.max_size = _READ_BYTES  # type: ignore[attr-defined] # how much is read at once
    return connection


def json_or_none(body: bytes | bytearray | None) -> Any:
    """Parse a body or frame as JSON; None if it is malformed."""
    try:
        return json.loads(body or b"null")
    except ValueError:
        return None
