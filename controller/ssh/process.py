"""The SSH process: without privileges, it gets connections and the host key from the daemon.

Run as `python -m controller.ssh.process FD`, where FD is its end of the socket pair. It ends with the daemon.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - loaded while files can still be read
import contextlib
import encodings.idna  # noqa: F401 - as above
import gc
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any

from controller.processes.channel import Channel, ChannelClosed, Message
from controller.processes.privileges import drop_privileges
from controller.ssh.daemon_side import DaemonSide, Refused
from controller.ssh.library import asyncssh
from controller.ssh.session import Session, open_port

USER = 18_022
"""Uid and gid of the process: no user of a host has an id from 10000 up, and no sandbox this one."""
_MOST_CONNECTIONS, _MOST_OF_SOURCE = 512, 64  # of the port
_MOST_TRIES = 24  # keys and tokens, of one connection
_MOST_KEEPALIVES = 3
_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)
_NOT_OFFERED = "is not offered; ports of the sandbox are forwarded by -L and -D"


class Server(asyncssh.SSHServer):
    """One connection, whose caller the daemon's listener has authenticated."""

    def __init__(self, daemon: DaemonSide, connection: int) -> None:
        self._daemon, self._connection = daemon, connection
        self._ready: asyncio.Future[None] | None = None

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - asyncssh's
        return False

    def session_requested(self) -> Session:
        return Session(self._daemon, self._connection, self._ready)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:  # noqa: ARG002
        return open_port(self._daemon, self._connection, dest_host, dest_port, self._ready)

    def unix_connection_requested(self, dest_path: str) -> bool:
        reason = f"{dest_path[:200]}: a Unix socket of the sandbox {_NOT_OFFERED}"
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)

    def server_requested(self, listen_host: str, listen_port: int) -> bool:  # noqa: ARG002 - asyncssh's
        return False

    def unix_server_requested(self, listen_path: str) -> bool:  # noqa: ARG002 - asyncssh's
        return False


class PortServer(Server):
    """One connection of the port, whose caller is known by a public key, or by a token as the password."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        super().__init__(process.daemon, process.next_connection())
        self._details: dict[str, object] = {}
        self._source, self._tries = "", 0

    def connection_made(self, conn: Any) -> None:
        peer = conn.get_extra_info("peername")
        self._source = str(peer[0]) if peer else ""
        if not self._process.admit(self._connection, self._source, conn):
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncssh's
        self._process.leave(self._connection)

    def begin_auth(self, username: str) -> bool:
        self._details = {"user": username, "source": self._source}
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: Any) -> bool:
        text = " ".join(key.export_public_key("openssh").decode().split()[:2])
        return await self._may({"user": username, "source": self._source, "key": text})

    async def validate_password(self, username: str, password: str) -> bool:
        return await self._may({"user": username, "source": self._source, "token": password})

    def auth_completed(self) -> None:
        self._ready = asyncio.ensure_future(self._daemon.login(self._connection, asks=False, **self._details))
        self._ready.add_done_callback(self._logged_in)

    def _logged_in(self, done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and done.exception() is None and not self._process.has(self._connection):
            self._daemon.send({"type": "ended", "connection": self._connection})  # it was lost meanwhile

    async def _may(self, details: dict[str, object]) -> bool:
        self._tries += 1
        if self._tries > _MOST_TRIES:
            return False
        self._details = details  # the last one that is proven is the one that holds
        try:
            await self._daemon.login(self._connection, asks=True, **details)
        except Refused:
            return False
        return True


class Process:
    """The process: what the daemon says is done in the event loop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._connections: dict[int, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._options: Any = None
        self._sources: dict[int, str] = {}
        self._number = 0

    async def run(self) -> None:
        """Serve until the daemon is gone."""
        loop = asyncio.get_running_loop()
        self.daemon = DaemonSide(self._channel)
        incoming: asyncio.Queue[tuple[Message, list[int]]] = asyncio.Queue()
        threading.Thread(target=self._receive_all, args=(loop, incoming), name="from the daemon", daemon=True).start()
        while True:
            self._take(*await incoming.get())

    def _receive_all(self, loop: asyncio.AbstractEventLoop, incoming: "asyncio.Queue[Any]") -> None:
        with contextlib.suppress(ChannelClosed, RuntimeError):
            while True:
                loop.call_soon_threadsafe(incoming.put_nowait, self._channel.receive())
        os._exit(0)  # the daemon is gone, and so is everything that this process is for

    def _take(self, message: Message, descriptors: list[int]) -> None:
        match message["type"]:
            case "config":
                self._options = {
                    "server_host_keys": [asyncssh.import_private_key(message["key"])],
                    "keepalive_interval": float(message["keepaliveSeconds"]),
                    "login_timeout": float(message["loginSeconds"]),
                }
                self.daemon.send({"type": "ready"})
            case "listen":
                task = asyncio.create_task(self._listen(descriptors[0]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case "serve":
                task = asyncio.create_task(self._serve(int(message["connection"]), descriptors[0]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case "end":
                if (connection := self._connections.get(int(message["connection"]))) is not None:
                    connection.abort()
            case "answer":
                self.daemon.answered(message, descriptors)

    def next_connection(self) -> int:
        """Return the number of a connection of the port; those of the daemon are positive."""
        self._number -= 1
        return self._number

    def admit(self, number: int, source: str, connection: Any) -> bool:
        """Count a connection of the port; return False if there are too many, in all or from this address."""
        alike = sum(counted_source == source for counted_source in self._sources.values())
        if len(self._sources) >= _MOST_CONNECTIONS or alike >= _MOST_OF_SOURCE:
            return False
        self._sources[number], self._connections[number] = source, connection
        return True

    def has(self, number: int) -> bool:
        """Return True while a connection of the port is open."""
        return number in self._sources

    def leave(self, number: int) -> None:
        """Forget a connection of the port."""
        if self._sources.pop(number, None) is not None:
            self._connections.pop(number, None)
            self.daemon.send({"type": "ended", "connection": number})

    async def _listen(self, descriptor: int) -> None:
        sock = socket.socket(fileno=descriptor)
        sock.setblocking(False)
        await asyncssh.listen(sock=sock, server_factory=lambda: PortServer(self), **OPTIONS, **self._options)

    async def _serve(self, number: int, descriptor: int) -> None:
        """Serve one connection until it ends."""
        sock = socket.socket(fileno=descriptor)
        sock.setblocking(False)
        try:
            connection = await asyncssh.run_server(
                sock, server_factory=lambda: Server(self.daemon, number), **OPTIONS, **self._options
            )
            self._connections[number] = connection
            await connection.wait_closed()
        except Exception:
            sock.close()
        finally:
            self._connections.pop(number, None)
            self.daemon.send({"type": "ended", "connection": number})


OPTIONS: dict[str, Any] = {
    "agent_forwarding": False,
    "allow_scp": False,
    "compression_algs": ["none"],
    "encoding": None,
    "encryption_algs": list(_CIPHERS),
    "gss_host": None,
    "keepalive_count_max": _MOST_KEEPALIVES,
    "line_editor": False,
    "server_version": "Paddock",
    "x11_forwarding": False,
}


def main() -> None:
    """Be the SSH process."""
    logging.disable(logging.CRITICAL)  # what is done in a sandbox is nobody's
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the daemon's terminal
    os.environ["HOME"] = "/nonexistent"  # asyncssh asks for one, and its user has none
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    drop_privileges(USER)
    gc.freeze()
    asyncio.run(Process(channel).run())


if __name__ == "__main__":
    main()
