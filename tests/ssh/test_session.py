"""Ends of a connection to a port: the channel is closed at the second end, whichever side is first."""

import asyncio
import socket
from typing import Any

import pytest

from controller.ssh.daemon_side import Opened
from controller.ssh.session import Port


class ClientChannel:
    """The client's channel, which records the calls of the session."""

    def __init__(self) -> None:
        self.data, self.calls = b"", asyncio.Queue[str]()
        self.closing = False

    def write(self, data: bytes) -> None:
        self.data += data

    def write_eof(self) -> None:
        self.calls.put_nowait("eof")

    def close(self) -> None:
        self.closing = True
        self.calls.put_nowait("close")

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closing


class Daemon:
    """The daemon, which hears of bytes and ends."""

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = 0

    def closed(self, connection: int, number: int) -> None: ...

    def count(self, *, bytes_in: int = 0, bytes_out: int = 0) -> None:
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out


@pytest.mark.parametrize("program_first", [True, False])
def test_channel_closes_at_the_second_end(program_first: bool) -> None:
    async def scenario() -> tuple[bytes, str]:
        program, descriptor = socket.socketpair()
        daemon: Any = Daemon()
        port, channel = Port(Opened(daemon, 1, 1, [descriptor.detach()])), ClientChannel()
        port.connection_made(channel)
        port.session_started()
        port.data_received(b"hello", None)
        loop = asyncio.get_running_loop()
        program.setblocking(False)
        assert await loop.sock_recv(program, 100) == b"hello"
        if not program_first:
            port.eof_received()
        program.sendall(b"answer")
        program.close()
        async with asyncio.timeout(10):
            if program_first:
                assert await channel.calls.get() == "eof"
                port.eof_received()
            call = await channel.calls.get()
        port.connection_lost(None)
        assert (daemon.bytes_in, daemon.bytes_out) == (len(b"hello"), len(b"answer"))
        return channel.data, call

    assert asyncio.run(scenario()) == (b"answer", "close")
