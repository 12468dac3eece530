"""Open channels of SSH connections, in the daemon: commands, files and ports of a sandbox, for the SSH process.

The process is trusted with nothing: it names a connection, and gets what the caller of that connection may do in the
one sandbox that it is of.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from controller.kinds.access.access import AccessRequest
from controller.kinds.planning.binding import host_of
from controller.kinds.registry import Registry
from controller.kinds.runtime.files import FileRequest
from controller.kinds.sandbox import KIND as SANDBOX
from controller.ports import ExecStream, Meter, NullMeter, StreamError
from controller.service import errors
from controller.service.access import access
from controller.service.access.audit import Recorder
from controller.service.exec.streams import SandboxStreams
from controller.service.front.ssh import SshLogin
from controller.service.objects.objects import Objects
from controller.service.sandbox.files import SandboxFiles
from controller.service.sandbox.port_forward import PortForward
from controller.ssh.command import CommandStreams, command_line, passed_environment, refusal_text

MOST_CHANNELS = 64  # of one connection
_SUBS = {"command": "exec", "files": "files", "port": "portforward"}
_MOST_SIZE = 1 << 16
_MOST_SIGNALS = 16  # of one command, that wait
_NO_SHELL = (
    "the image has no shell (no /bin/sh); run a program by `paddock exec NAME -- PROGRAM`, or use an image with one"
)
_log = structlog.get_logger("paddock.ssh")
Answer = Callable[[Mapping[str, Any], tuple[int, ...]], None]


@dataclass(frozen=True, slots=True)
class SandboxWork:
    """The use-cases that SSH is made of."""

    registry: Registry
    objects: Objects
    sandbox_streams: SandboxStreams
    files: SandboxFiles
    forward: PortForward
    recorder: Recorder
    host: str = ""
    """This host, where there are others: its SSH port serves its own sandboxes."""


@dataclass(slots=True)
class Channel:
    """One channel. `close` ends it, from any thread; `control` is the command's, once it runs."""

    close: Callable[[], None] = lambda: None
    control: ExecStream | None = None
    closed: bool = False
    size: tuple[int, int] | None = None
    signals: list[str] = field(default_factory=list)
    is_passing_on: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def resize(self, rows: int, columns: int) -> None:
        """Have the terminal's size set, on a thread; of several at once the last one wins."""
        self._pass_on(_size((rows, columns)), "")

    def signal(self, name: str) -> None:
        """Have a signal sent, on a thread; of very many at once the last ones are dropped."""
        self._pass_on(None, name)

    def _pass_on(self, size: tuple[int, int] | None, signal: str) -> None:
        """Have it passed on by the channel's one thread: a client may send any number."""
        with self.lock:
            self.size = size or self.size
            if signal and len(self.signals) < _MOST_SIGNALS:
                self.signals.append(signal)
            if self.is_passing_on:
                return
            self.is_passing_on = True
        threading.Thread(target=self._pass_all, name="ssh control", daemon=True).start()

    def _pass_all(self) -> None:
        while True:
            with self.lock:
                size, self.size = self.size, None
                signal = self.signals.pop(0) if self.signals else ""
                if size is None and not signal:
                    self.is_passing_on = False
                    return
            if self.control is None:
                continue
            with contextlib.suppress(StreamError, ValueError):
                if size is not None:
                    self.control.resize(*size)
                if signal:
                    self.control.signal(signal)


@dataclass(slots=True)
class Connection:
    """One SSH connection: its login, and its channels by number. `on_end` is called when it has ended.

    `threads` work for its channels, also for those that were closed a moment ago.
    """

    login: SshLogin
    on_end: Callable[[], None]
    fingerprint: str = ""
    shell: str = ""
    channels: dict[int, Channel] = field(default_factory=dict)
    threads: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """End all channels, and report the end."""
        with self.lock:
            channels = list(self.channels.values())
            self.channels.clear()
        for channel in channels:
            channel.closed = True
            channel.close()
        self.on_end()

    def release(self, number: int) -> None:
        """End one channel."""
        with self.lock:
            channel = self.channels.pop(number, None)
        if channel is not None:
            channel.closed = True
            channel.close()


class Opener:
    """Opens what the process asks for; each request runs on a thread of its own."""

    def __init__(self, work: SandboxWork, meter: Meter | None = None) -> None:
        self._work, self._meter = work, meter or NullMeter()

    def open(self, connection: Connection, number: int, message: Mapping[str, Any], answer: Answer) -> None:
        """Begin to open a channel. `answer` is called with a message (empty: it is open) and its descriptors."""
        with connection.lock:
            is_full = max(len(connection.channels), connection.threads) >= MOST_CHANNELS
            if not is_full:
                channel = connection.channels[number] = Channel()
                connection.threads += 1
        what = message["what"]
        run = {"command": self._command, "files": self._files, "port": self._port}[what]
        if is_full:
            self._meter.count("paddock_ssh_refusals_total", what=what)
            answer({"message": f"{MOST_CHANNELS} channels of this connection are open; close some"}, ())
            return
        self._meter.count("paddock_ssh_channels_total", what=what)

        def refuse(reason: str) -> None:
            self._meter.count("paddock_ssh_refusals_total", what=what)
            answer({"message": reason}, ())

        def work() -> None:
            try:
                with access.acting(connection.login.caller) as refusals:
                    try:
                        run(connection, channel, message, answer)
                    finally:
                        for ask, why in refusals:
                            self._work.recorder.record_refusal(ask, why)
            except (errors.ServiceError, StreamError, OSError) as error:
                refuse(refusal_text(error))
            except Exception:
                _log.exception("ssh channel failed")
                refuse("internal error of Paddock; see the daemon's log")
            finally:
                with connection.lock:
                    connection.threads -= 1

        threading.Thread(target=work, name=f"ssh {what}", daemon=True).start()

    def _allow(self, login: SshLogin, what: str) -> None:
        """Raise ServiceError unless the caller may do this in the same sandbox still. Record it."""
        ask = AccessRequest("use", SANDBOX.name, login.namespace, login.name, _SUBS[what])
        access.require(ask, self._work.registry)
        sandbox = self._work.objects.get(SANDBOX, login.namespace, login.name)
        if sandbox.uid != login.uid:
            raise errors.Conflict(f"sandbox `{login.name}` was deleted and created anew; connect again")
        if self._work.host and (host := host_of(sandbox, self._work.host)) != self._work.host:
            raise errors.Conflict(
                f"sandbox `{login.name}` is on host `{host}`; connect to that host's SSH port, or use"
                f" `ssh {login.name}.{login.namespace}.paddock`"
            )
        self._work.recorder.record_use(ask, {"via": "ssh"})

    def _command(self, connection: Connection, channel: Channel, message: Mapping[str, Any], answer: Answer) -> None:
        login, terminal = connection.login, message.get("terminal")
        self._allow(login, "command")
        shell = connection.shell or self._shell(login)
        connection.shell = shell
        command = message.get("command")
        env = {**passed_environment({str(name): str(value) for name, value in message["env"].items()}), "SHELL": shell}
        ours, client_end = socket.socketpair()
        streams = CommandStreams(ours)
        with contextlib.closing(ours), client_end:
            stream = self._work.sandbox_streams.exec(
                SANDBOX,
                login.namespace,
                login.name,
                command_line(shell, None if command is None else str(command)),
                env=env,
                stdin=streams.input(),
                timeout_seconds=0,
                tty=terminal is not None,
                size=None if terminal is None else _size(terminal),
                hangs_up=True,
            )()

            def close() -> None:
                streams.close()
                stream.close()

            channel.control, channel.close = stream, close
            if channel.closed:  # meanwhile
                close()
                return
            answer({}, (client_end.fileno(),))
            client_end.close()
            streams.relay(stream)
            streams.drain()

    def _shell(self, login: SshLogin) -> str:
        """Return the shell of the sandbox's user. Raises ServiceError."""
        work = self._work.files.begin(SANDBOX, login.namespace, login.name, FileRequest("login", "/"))
        try:
            shell = str(work.result()["shell"])
        finally:
            work.close()
        if not shell:
            raise errors.BadRequest(f"sandbox `{login.name}`: {_NO_SHELL}")
        return shell

    def _files(self, connection: Connection, channel: Channel, _message: Mapping[str, Any], answer: Answer) -> None:
        login = connection.login
        self._allow(login, "files")
        work = self._work.files.begin(SANDBOX, login.namespace, login.name, FileRequest("sftp", "/"))
        channel.close = work.close
        if channel.closed:
            work.close()
            return
        descriptors = work.hand_over()
        answer({}, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _port(self, connection: Connection, channel: Channel, message: Mapping[str, Any], answer: Answer) -> None:
        login = connection.login
        self._allow(login, "port")
        forwarded = self._work.forward.open(SANDBOX, login.namespace, login.name, int(message["port"]))
        channel.close = forwarded.close
        if channel.closed:
            forwarded.close()
            return
        answer({}, (forwarded.sock.fileno(),))


def _size(terminal: Any) -> tuple[int, int] | None:
    rows, columns = (int(number) for number in terminal)
    return (rows, columns) if 0 < rows < _MOST_SIZE and 0 < columns < _MOST_SIZE else None
