"""The SSH process at its port: bytes that are no SSH, clients that are silent, and its end."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller.ssh.channels import SandboxWork
from controller.ssh.library import asyncssh
from controller.ssh.supervisor import SshParts, Supervisor
from tests.daemon import wait_for
from tests.helpers_api import Meter
from tests.ssh.test_gate import Host

_SECONDS = 2.0
_HELLO = b"SSH-2.0-hostile\r\n"
_HOSTILE = {
    "nothing": b"",
    "half a version": b"SSH-2.0-",
    "an old version": b"SSH-1.5-old\r\n",
    "a version, then nothing": _HELLO,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "no end of a line": b"SSH-2.0-" + b"x" * 200_000,
    "lines before the version": b"hello\r\n" * 20_000,
    "a packet of 4 GiB": _HELLO + b"\xff\xff\xff\xff" + b"\0" * 64,
    "a packet of no length": _HELLO + b"\0\0\0\0" * 16,
    "half a key exchange": _HELLO + b"\0\0\1\0\x04\x14" + b"\0" * 40,
    "packets out of order": _HELLO + b"\0\0\0\x0c\x0a\x34" + b"\0" * 10,
    "noise": _HELLO + bytes(number * 151 % 256 for number in range(100_000)),
}


@dataclass
class Front:
    """A port, and what serves it."""

    supervisor: Supervisor
    port: int
    meter: Meter

    def open_connections(self) -> float | None:
        return self.meter.gauges.get(("paddock_ssh_open_connections",))

    def login(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Return a connection by a good token; None if it was not served, or a loaded machine took too long."""
        options: dict[str, Any] = {"username": "box", "password": "good", "known_hosts": None, "config": []}
        with suppress(OSError, asyncssh.Error):
            return loop.run_until_complete(asyncssh.connect("127.0.0.1", self.port, **options))
        return None

    def serves(self) -> bool:
        """Return True if a client can log in."""
        loop = asyncio.new_event_loop()
        try:
            connection = self.login(loop)
            if connection is not None:
                connection.abort()
                loop.run_until_complete(connection.wait_closed())
            return connection is not None
        finally:
            loop.close()


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    listening, meter = socket.create_server(("127.0.0.1", 0)), Meter()
    gate = Host().gate(tmp_path)
    work: Any = SandboxWork(*(object() for _ in range(6)))  # type: ignore[arg-type]
    supervisor = Supervisor(
        SshParts(
            work,
            meter,
            tmp_path / "host_key",
            "instance",
            keys=gate.keys,
            gate=gate,
            listening=listening,
            keepalive_seconds=_SECONDS / 8,
            login_seconds=_SECONDS,
        )
    )
    port = listening.getsockname()[1]
    supervisor.start()
    yield Front(supervisor, port, meter)
    supervisor.close()


def test_bytes_that_are_no_ssh_end(front: Front) -> None:
    pid = front.supervisor.pid
    clients = {name: socket.create_connection(("127.0.0.1", front.port), 60) for name in _HOSTILE}
    for name, client in clients.items():
        with suppress(ConnectionError):  # it was closed before all was sent
            client.sendall(_HOSTILE[name])
    for client in clients.values():
        with client, suppress(ConnectionError):
            for _ in iter(partial(client.recv, 1 << 16), b""):  # until its deadline
                pass
    wait_for("a login", front.serves)
    assert front.supervisor.pid == pid, "the process itself has not ended"


def test_a_silent_client_is_ended(front: Front) -> None:
    """As a client that is stopped, and one whose cable is pulled: it answers no keepalive."""
    loop = asyncio.new_event_loop()
    connection = wait_for("a login", partial(front.login, loop))
    try:
        # The client's loop runs no more: it reads nothing, and answers nothing.
        wait_for("its end", lambda: front.open_connections() == 0)
    finally:
        connection.abort()
        loop.run_until_complete(connection.wait_closed())
        loop.close()


def test_the_port_is_served_again_after_the_process(front: Front) -> None:
    pid = front.supervisor.pid
    os.kill(pid, signal.SIGKILL)
    wait_for("another one", lambda: front.supervisor.pid not in (0, pid))
    wait_for("a login", front.serves)
