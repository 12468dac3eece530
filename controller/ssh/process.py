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
from controller.ssh.daemon_side import DaemonSide
from controller.ssh.library import asyncssh
from controller.ssh.session import Session, open_port

USER = 18_022
"""Uid and gid of the process: no user of a host has an id from 10000 up, and no sandbox this one."""
_LOGIN_SECONDS, _KEEPALIVE_SECONDS, _MOST_KEEPALIVES = 30, 30, 3
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

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - asyncssh's
        return False

    def session_requested(self) -> Session:
        return Session(self._daemon, self._connection)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:  # noqa: ARG002
        return open_port(self._daemon, self._connection, dest_host, dest_port)

    def unix_connection_requested(self, dest_path: str) -> bool:
        reason = f"{dest_path[:200]}: a Unix socket of the sandbox {_NOT_OFFERED}"
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)

    def server_requested(self, listen_host: str, listen_port: int) -> bool:  # noqa: ARG002 - asyncssh's
        return False

    def unix_server_requested(self, listen_path: str) -> bool:  # noqa: ARG002 - asyncssh's
        return False


class Process:
    """The process: what the daemon says is done in the event loop."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._connections: dict[int, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._options: Any = None

    async def run(self) -> None:
        """Serve until the daemon is gone."""
        loop = asyncio.get_running_loop()
        self._daemon = DaemonSide(self._channel)
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
                self._options = {"server_host_keys": [asyncssh.import_private_key(message["key"])]}
                self._daemon.send({"type": "ready"})
            case "serve":
                task = asyncio.create_task(self._serve(int(message["connection"]), descriptors[0]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case "end":
                if (connection := self._connections.get(int(message["connection"]))) is not None:
                    connection.abort()
            case "answer":
                self._daemon.answered(message, descriptors)

    async def _serve(self, number: int, descriptor: int) -> None:
        """Serve one connection until it ends."""
        sock = socket.socket(fileno=descriptor)
        sock.setblocking(False)
        try:
            connection = await asyncssh.run_server(
                sock, server_factory=lambda: Server(self._daemon, number), **OPTIONS, **self._options
            )
            self._connections[number] = connection
            await connection.wait_closed()
        except Exception:
            sock.close()
        finally:
            self._connections.pop(number, None)
            self._daemon.send({"type": "ended", "connection": number})


OPTIONS: dict[str, Any] = {
    "agent_forwarding": False,
    "allow_scp": False,
    "compression_algs": ["none"],
    "encoding": None,
    "encryption_algs": list(_CIPHERS),
    "gss_host": None,
    "keepalive_count_max": _MOST_KEEPALIVES,
    "keepalive_interval": _KEEPALIVE_SECONDS,
    "line_editor": False,
    "login_timeout": _LOGIN_SECONDS,
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
