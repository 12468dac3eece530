"""Serves the application on a Unix socket (tcp.py: over TCP), on a thread of its own.

Signals are the composition root's business.
"""

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
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from controller.api.server.connection_limiter import Gate
from controller.api.server.peer_credentials import PeerProtocol
from controller.api.server.request_deadline import SHARE
from controller.api.streams.stalled_clients import STALL_SECONDS, Stalls

_MODE = 0o660
_START_SECONDS = 10.0
_TICK_SECONDS = 1.0
_PATH_MAX_BYTES = 107  # of sockaddr_un


class SocketTaken(Exception):
    """The address can't be served on; says by whom it is taken, or what to do."""


def _not_the_denial(record: logging.LogRecord) -> bool:
    """uvicorn calls it an error when a WebSocket is answered with an HTTP response, which is how we refuse one.

    And when a response is not finished, which is how the client of a transfer learns that it broke off (transfer.py).
    """
    words = record.getMessage()
    return "without completing handshake" not in words and "without completing response" not in words


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket."""

    def shutdown(self) -> None:
        """The door closes. A client that said good-bye just before must not keep the door from ending the others."""
        try:
            super().shutdown()
        except InvalidState:
            self.transport.abort()  # it said good-bye: nothing is waited for any more


class _Server(uvicorn.Server):
    """Looks once a second for what changes with the time. Ten times a second, as uvicorn does, is 0.2 % of a core."""

    _told: asyncio.Event | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._told, self._loop = asyncio.Event(), asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), _TICK_SECONDS)

    def end(self) -> None:
        """From any thread: take no more requests."""
        self.should_exit = True
        if self._loop is not None and self._told is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._told.set)


class Serving:
    """uvicorn on a thread of its own, on a socket that listens already. `start` returns once requests are answered."""

    def __init__(self, config: uvicorn.Config, *, grace_seconds: int) -> None:
        self._server, self._grace_seconds = _Server(config), grace_seconds
        logging.getLogger("uvicorn.error").addFilter(_not_the_denial)
        self._thread: threading.Thread | None = None

    def start(self, listening: socket.socket) -> None:
        """Raises RuntimeError when it does not come up."""
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
        """Let the running requests end for so long, then cut them off. May be called again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._server.end()
            thread.join(self._grace_seconds + 5)


def configured(
    app: ASGIApp, *, grace_seconds: int, stall_seconds: float = STALL_SECONDS, share: float = SHARE, **more: Any
) -> uvicorn.Config:
    """How every door of the API is served. What a client says about its own address is not believed.

    One that takes nothing for `stall_seconds` of what waits for it is cut off; a user of this host, or an address
    beyond it, may have `share` of the connections.
    """
    return uvicorn.Config(
        app,
        loop="controller.api.server.connection_limiter:Loop",
        http=partial(PeerProtocol, stalls=Stalls(stall_seconds), share=share),  # type: ignore[arg-type] # it makes them, as a class
        log_config=None,
        access_log=False,
        lifespan="off",
        ws=WebSocketProtocol,
        ws_max_size=1 << 20,
        ws_per_message_deflate=False,  # a client's 256 KiB, read at once, could be 256 frames of a whole MiB each
        ws_ping_timeout=None,  # whoever waits for its slow reader answers no ping, and is not dead
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace_seconds,
        **more,
    )


class ApiServer:
    """The door on a Unix socket. `start` binds and serves; `stop` takes no more requests.

    The socket belongs to `group` (a name; empty: that of the process), whose members may connect. `group_id` is its
    number; None while it was not bound.
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
        config = configured(app, grace_seconds=grace_seconds, stall_seconds=stall_seconds, share=share)
        self._serving = Serving(config, grace_seconds=grace_seconds)
        self._inode = 0
        self.group_id: int | None = None

    def start(self) -> None:
        """Bind the socket (0660) and serve. Raises SocketTaken; returns once requests are answered."""
        listening = bind(self._path, self._group)
        made = self._path.stat()
        self._inode, self.group_id = made.st_ino, made.st_gid
        try:
            self._serving.start(Gate(listening, self._share))
        except RuntimeError:
            self._remove()
            raise

    def stop(self) -> None:
        """Take no more requests, let the running ones end, remove the socket. May be called again."""
        self._remove()  # first, so that nobody new finds the door while it closes
        self._serving.stop()

    def _remove(self) -> None:
        """Remove our socket's file, unless another daemon has put its own there."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def bind(path: Path, group: str = "") -> socket.socket:
    """A listening Unix socket at that path, mode 0660. A stale one is replaced, a live one is SocketTaken."""
    if len(os.fsencode(path)) > _PATH_MAX_BYTES:
        raise SocketTaken(f"{path}: a socket's path has at most {_PATH_MAX_BYTES} bytes; set a shorter one")
    _make_way(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(path))
        # Before listen, so that nobody can connect while the mode is still what the umask left.
        path.chmod(_MODE)
        if group:
            shutil.chown(path, group=group)
        made.listen(1024)
    except LookupError as error:
        made.close()
        raise SocketTaken(f"there is no group `{group}` for the socket {path}; make it, or set another") from error
    except OSError as error:
        made.close()
        raise SocketTaken(f"can't make the socket {path}: {error.strerror}") from error
    return made


def _make_way(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise SocketTaken(f"can't make the socket {path}: {error.strerror} ({error.filename})") from error
    if not stat.S_ISSOCK(mode):
        raise SocketTaken(f"{path} is there and is no socket; move it away, or set another path")
    owner = _answering(path)
    if owner:
        raise SocketTaken(f"another daemon answers at {path} (pid {owner}); stop it first, or set another socket")
    path.unlink(missing_ok=True)


def _answering(path: Path) -> int:
    """The pid of whoever listens there; 0 when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                return 0
            raise SocketTaken(f"can't tell whether a daemon answers at {path}: {error}; look, and remove it") from error
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        return pid
