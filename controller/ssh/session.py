"""Channels of one SSH connection: sessions (commands, shells, SFTP) and connections to ports of the sandbox.

Nothing is read from a command, a file or a port while the client's window is full, and nothing from the client while
they take nothing. So a slow reader loses no byte, and costs no memory.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from controller.ssh import frames
from controller.ssh.command import FewVariables, passed_environment
from controller.ssh.daemon_side import DaemonSide, Opened, Refused
from controller.ssh.library import asyncssh
from controller.ssh.sftp_messages import Messages

FAILED = 255
_LOCAL = ("localhost", "127.0.0.1", "::1")
_TCP_USER_DATA = asyncssh.EXTENDED_DATA_STDERR
_BREAK = b"\x03"


class Local(asyncio.Protocol):
    """The sandbox's side of a channel: a socket or pipes from the daemon.

    `take` gets what arrives. `on_end` is called at its end, with True if the connection is lost.
    """

    def __init__(
        self, take: Callable[[bytes], None], on_end: Callable[[bool], None], pause: Callable[[bool], None]
    ) -> None:
        self._take, self._ended, self._pause = take, on_end, pause

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def eof_received(self) -> bool:
        self._ended(False)
        return True  # the other direction goes on

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc is not None)

    def pause_writing(self) -> None:
        self._pause(True)

    def resume_writing(self) -> None:
        self._pause(False)


class Relay:
    """Both directions between an SSH channel and the sandbox's side. Data from the client wait until that is there."""

    def __init__(self) -> None:
        self.channel: Any = None
        self._reader: Any = None
        self._writer: Any = None
        self._early: list[bytes] = []
        self._is_at_end = self._is_paused = False
        self._opened: Opened | None = None

    async def attach(self, opened: Opened, pass_on: Callable[[bytes], None], on_end: Callable[[bool], None]) -> None:
        """Take over the descriptors of an opened channel: a socket, or a pipe to write and one to read."""
        loop, self._opened = asyncio.get_running_loop(), opened

        def take(data: bytes) -> None:
            opened.count(bytes_out=len(data))
            pass_on(data)

        if len(opened.descriptors) == 1:
            sock = socket.socket(fileno=opened.descriptors[0])
            sock.setblocking(False)
            self._reader, _ = await loop.connect_accepted_socket(lambda: Local(take, on_end, self._pause_client), sock)
            self._writer = self._reader
        else:
            into, out = os.fdopen(opened.descriptors[0], "wb", 0), os.fdopen(opened.descriptors[1], "rb", 0)
            self._writer, _ = await loop.connect_write_pipe(
                lambda: Local(take, lambda _: None, self._pause_client), into
            )
            self._reader, _ = await loop.connect_read_pipe(lambda: Local(take, on_end, self._pause_client), out)
        if self._is_paused:
            self._reader.pause_reading()
        for data in self._early:
            self.write(data)
        self._early.clear()
        if self._is_at_end:
            self.end_of_input()

    def write(self, data: bytes) -> None:
        """Pass on what the client sent."""
        if self._writer is None:
            self._early.append(data)
            self._pause_client(len(self._early) > 16)
        elif not self._writer.is_closing():
            if self._opened is not None:
                self._opened.count(bytes_in=len(data))
            self._writer.write(data)

    def end_of_input(self) -> None:
        """Pass on the end of what the client sends."""
        self._is_at_end = True
        if self._writer is not None and self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    def pause(self, paused: bool) -> None:
        """Stop reading from the sandbox, or go on."""
        self._is_paused = paused
        if self._reader is not None and not self._reader.is_closing():
            (self._reader.pause_reading if paused else self._reader.resume_reading)()

    def control(self, type_: str, **details: object) -> None:
        """Send a terminal's size, or a signal."""
        if self._opened is not None:
            self._opened.control(type_, **details)

    def close(self) -> None:
        """End both directions."""
        for transport in (self._reader, self._writer):
            if transport is not None and not transport.is_closing():
                (transport.abort if hasattr(transport, "abort") else transport.close)()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _pause_client(self, paused: bool) -> None:
        if self.channel is not None:
            (self.channel.pause_reading if paused else self.channel.resume_reading)()


class Session(asyncssh.SSHServerSession[bytes]):
    """A session: a command, a login shell, or SFTP."""

    def __init__(self, daemon: DaemonSide, connection: int, ready: "asyncio.Future[None] | None" = None) -> None:
        """`ready`: the login of a client of the port; None: the listener has done it."""
        self._daemon, self._connection, self._ready = daemon, connection, ready
        self._relay, self._frames, self._sftp_messages = Relay(), frames.Reader(), Messages()
        self._channel: Any = None
        self._command: str | None = None
        self._terminal: tuple[int, int] | None = None
        self._term = ""
        self._is_sftp = self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, chan: Any) -> None:
        self._channel = self._relay.channel = chan
        chan._env = FewVariables()  # noqa: SLF001 - asyncssh itself keeps any number

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Any) -> bool:  # noqa: ARG002
        self._term, self._terminal = term_type, (term_size[1], term_size[0])
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self._command = command
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        self._is_sftp = subsystem == "sftp"
        return self._is_sftp

    def session_started(self) -> None:
        self._task = asyncio.create_task(self._run())

    def data_received(self, data: bytes, datatype: Any) -> None:  # noqa: ARG002 - asyncssh's
        self._relay.write(data)

    def eof_received(self) -> bool:
        self._relay.end_of_input()
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:  # noqa: ARG002
        self._terminal = (height, width)
        self._relay.control("resize", rows=height, columns=width)

    def signal_received(self, signal: str) -> None:
        self._relay.control("signal", name=signal)

    def break_received(self, msec: int) -> bool:  # noqa: ARG002 - asyncssh's
        self._relay.write(_BREAK)
        return True

    def pause_writing(self) -> None:
        self._relay.pause(True)

    def resume_writing(self) -> None:
        self._relay.pause(False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncssh's
        if self._task is not None:
            self._task.cancel()
        self._relay.close()

    async def _run(self) -> None:
        try:
            if self._ready is not None:
                await asyncio.shield(self._ready)
            if self._is_sftp:
                opened = await self._daemon.open(self._connection, "files")
                await self._relay.attach(opened, self._sftp_output, lambda _: self._end(0))
            else:
                opened = await self._daemon.open(self._connection, "command", **self._request())
                await self._relay.attach(opened, self._output, self._lost)
        except Refused as error:
            self._fail(str(error))

    def _request(self) -> dict[str, object]:
        variables = passed_environment(self._channel.get_environment())
        if self._terminal is not None:
            variables["TERM"] = self._term
        return {"command": self._command, "env": variables, "terminal": self._terminal}

    def _sftp_output(self, data: bytes) -> None:
        self._channel.write(data)
        for message in self._sftp_messages.feed(data):
            self._channel.write(f"paddock: {message}\r\n".encode(), _TCP_USER_DATA)

    def _output(self, data: bytes) -> None:
        try:
            for kind, content in self._frames.feed(data):
                if kind == frames.STDOUT:
                    self._channel.write(content)
                elif kind == frames.STDERR:
                    self._channel.write(content, _TCP_USER_DATA)
                elif kind == frames.EXIT:
                    self._end(int(content))
                else:
                    self._fail(content.decode("utf-8", "replace"))
        except frames.Malformed:
            self._lost(True)

    def _lost(self, _broke: bool) -> None:
        self._fail("the connection to the command was lost")

    def _fail(self, message: str) -> None:
        """Tell the user in one line, and end."""
        if not self._is_over:
            line = f"paddock: {message}\r\n".encode("utf-8", "replace")
            self._channel.write(line, None if self._terminal else _TCP_USER_DATA)
            self._end(FAILED)

    def _end(self, code: int) -> None:
        if not self._is_over:
            self._is_over = True
            self._relay.close()
            self._channel.exit(code)


class Port(asyncssh.SSHTCPSession[bytes]):
    """A connection to a port of the sandbox."""

    def __init__(self, opened: Opened) -> None:
        self._relay, self._opened = Relay(), opened
        self._client_ended = self._program_ended = False
        self._channel: Any = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, chan: Any) -> None:
        self._channel = self._relay.channel = chan

    def session_started(self) -> None:
        self._task = asyncio.create_task(self._relay.attach(self._opened, self._channel.write, self._end))

    def data_received(self, data: bytes, datatype: Any) -> None:  # noqa: ARG002 - asyncssh's
        self._relay.write(data)

    def eof_received(self) -> bool:
        self._relay.end_of_input()
        self._client_ended = True
        if self._program_ended:  # asyncssh itself closes nothing at the second end
            self._channel.close()
        return True

    def pause_writing(self) -> None:
        self._relay.pause(True)

    def resume_writing(self) -> None:
        self._relay.pause(False)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncssh's
        self._relay.close()

    def _end(self, broke: bool) -> None:
        if self._channel.is_closing():
            return
        self._program_ended = True
        if broke or self._client_ended:
            self._channel.close()
        else:
            self._channel.write_eof()


async def open_port(
    daemon: DaemonSide, connection: int, host: str, port: int, ready: "asyncio.Future[None] | None" = None
) -> Port:
    """Connect to a port of the sandbox's own loopback. Raises ChannelOpenError."""
    if host not in _LOCAL:
        reason = f"{host}: only ports of the sandbox itself are forwarded; write localhost"
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)
    try:
        if ready is not None:
            await asyncio.shield(ready)
        return Port(await daemon.open(connection, "port", port=port))
    except Refused as error:
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from error
