"""The server on a Unix socket (tcp.py: over TCP), on a thread of its own. Signals are handled in app/."""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import socket
import stat
import struct
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from controller.api.server.connection_limiter import ConnectionLimiter
from controller.api.server.peer_credentials import PeerProtocol
from controller.api.server.request_deadline import SHARE
from controller.api.server.stalled_clients import STALL_SECONDS, StalledClients

_log = structlog.get_logger("paddock.api")
_MODE = 0o660
_START_SECONDS = 10.0
_TICK_SECONDS = 1.0
_NAP_SECONDS = 0.01  # between two looks at the requests that are still under way at a stop
_PATH_MAX_BYTES = 107  # of sockaddr_un


class SocketTaken(Exception):
    """The address can't be served on; the message says who holds it, or what to do."""


def _not_the_denial(record: logging.LogRecord) -> bool:
    """Filter two errors that uvicorn logs and we cause on purpose.

    A WebSocket is refused with an HTTP response. The response of a broken transfer is left unfinished (transfer.py).
    """
    message = record.getMessage()
    return "without completing handshake" not in message and "without completing response" not in message


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, whose shutdown can't fail."""

    def shutdown(self) -> None:
        """Close at shutdown. A client that closed just before must not keep the server from ending the others."""
        try:
            super().shutdown()
        except InvalidState:
            self.transport.abort()  # the client has closed already


class _Server(uvicorn.Server):
    """uvicorn's server with a tick a second. Its own ten a second cost 0.2 % of a core."""

    _stop_requested: asyncio.Event | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._stop_requested, self._loop = asyncio.Event(), asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._stop_requested.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as uvicorn does, but without naps where nothing is under way; connections accepted meanwhile end, too."""
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._wait_for_requests()
        except TimeoutError:
            _log.warning("requests cut off", count=len(self.server_state.tasks))
            for task in self.server_state.tasks:
                task.cancel(msg="Task cancelled, timeout graceful shutdown exceeded")
        await self.lifespan.shutdown()
        await asyncio.sleep(0)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    async def _wait_for_requests(self) -> None:
        """Wait until every connection and every request has ended."""
        while (self.server_state.connections or self.server_state.tasks) and not self.force_exit:
            await asyncio.sleep(_NAP_SECONDS)
        for server in self.servers:
            await server.wait_closed()

    def end(self) -> None:
        """Accept no more requests. May be called from any thread."""
        self.should_exit = True
        if self._loop is not None and self._stop_requested is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stop_requested.set)


class Serving:
    """uvicorn on a thread of its own, on a listening socket. `start` returns once requests are answered."""

    def __init__(self, config: uvicorn.Config, *, grace_seconds: int) -> None:
        self._server, self._grace_seconds = _Server(config), grace_seconds
        logging.getLogger("uvicorn.error").addFilter(_not_the_denial)
        self._thread: threading.Thread | None = None

    def start(self, listening: socket.socket) -> None:
        """Start the thread. Raises RuntimeError when the server does not start."""
        # uvicorn takes over signals only on the main thread, which this is not.
        self._thread = threading.Thread(target=self._server.run, args=([listening],), name="api", daemon=True)
        self._thread.start()
        waiting = threading.Event()
        for _ in range(int(_START_SECONDS / 0.005)):
            if self._server.started or not self._thread.is_alive():
                break
            waiting.wait(0.005)
        if not self._server.started:
            raise RuntimeError("the HTTP server did not start; the log says why")

    def stop(self) -> None:
        """Let running requests end within the grace period, then cut them off. May be called again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._server.end()
            thread.join(self._grace_seconds + 5)


def uvicorn_config(
    app: ASGIApp,
    *,
    grace_seconds: int,
    stall_seconds: float = STALL_SECONDS,
    share: float = SHARE,
    protocol: Callable[..., PeerProtocol] = PeerProtocol,
    **options: Any,
) -> uvicorn.Config:
    """Return uvicorn's configuration for a listener. Forwarded-for headers are not trusted.

    A client that reads nothing for `stall_seconds` is cut off. One user of this host, or one remote address, may have
    `share` of the connections.
    """
    return uvicorn.Config(
        app,
        loop="controller.api.server.connection_limiter:ListenerLoop",
        http=partial(protocol, clients=StalledClients(stall_seconds), share=share),  # type: ignore[arg-type] # called as a class
        log_config=None,
        access_log=False,
        lifespan="off",
        ws=WebSocketProtocol,
        ws_max_size=1 << 20,
        ws_per_message_deflate=False,  # a client's 256 KiB, read at once, could be 256 frames of a whole MiB each
        ws_ping_timeout=None,  # a client that waits for its own slow reader answers no ping, and is not dead
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace_seconds,
        **options,
    )


class ApiServer:
    """The listener on a Unix socket. `start` binds and serves; `stop` accepts no more requests.

    Members of `group` may connect (a name; empty: the process's group). `group_id` is its number; None before `start`.
    """

    def __init__(
        self,
        app: ASGIApp,
        path: Path,
        *,
        grace_seconds: int = 5,
        group: str = "",
        stall_seconds: float = STALL_SECONDS,
        share: float = SHARE,
    ) -> None:
        self._path, self._group, self._share = path, group, share
        config = uvicorn_config(app, grace_seconds=grace_seconds, stall_seconds=stall_seconds, share=share)
        self._serving = Serving(config, grace_seconds=grace_seconds)
        self._inode = 0
        self.group_id: int | None = None

    def start(self) -> None:
        """Bind the socket (0660) and serve. Raises SocketTaken; returns once requests are answered."""
        listening = bind(self._path, self._group)
        socket_stat = self._path.stat()
        self._inode, self.group_id = socket_stat.st_ino, socket_stat.st_gid
        try:
            self._serving.start(ConnectionLimiter(listening, self._share))
        except RuntimeError:
            self._remove()
            raise

    def stop(self) -> None:
        """Accept no more requests, let running ones end, remove the socket. May be called again."""
        self._remove()  # first, so that no new client finds it
        self._serving.stop()

    def _remove(self) -> None:
        """Remove our socket's file, unless another daemon has put its own there."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def bind(path: Path, group: str = "") -> socket.socket:
    """Return a listening Unix socket at that path, mode 0660. A stale one is replaced, a live one is SocketTaken."""
    if len(os.fsencode(path)) > _PATH_MAX_BYTES:
        raise SocketTaken(f"{path}: a socket's path has at most {_PATH_MAX_BYTES} bytes; set a shorter one")
    _clear_path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        # Before listen, so that no client connects while the mode is still the umask default.
        path.chmod(_MODE)
        if group:
            shutil.chown(path, group=group)
        sock.listen(1024)
    except LookupError as error:
        sock.close()
        raise SocketTaken(f"there is no group `{group}` for the socket {path}; make it, or set another") from error
    except OSError as error:
        sock.close()
        raise SocketTaken(f"can't make the socket {path}: {error.strerror}") from error
    return sock


def _clear_path(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise SocketTaken(f"can't make the socket {path}: {error.strerror} ({error.filename})") from error
    if not stat.S_ISSOCK(mode):
        raise SocketTaken(f"{path} is there and is no socket; move it away, or set another path")
    owner = _listener_pid(path)
    if owner:
        raise SocketTaken(f"another daemon answers at {path} (pid {owner}); stop it first, or set another socket")
    path.unlink(missing_ok=True)


def _listener_pid(path: Path) -> int:
    """Return the pid of the listening process; 0 when there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                return 0
            raise SocketTaken(
                f"can't tell whether a daemon answers at {path}: {error}; if none does, remove the file"
            ) from error
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        return pid
